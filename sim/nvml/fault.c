/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* Faults, read from /run/gpufleet-sim/faults at every call: one `<number>=<words>` a line, as gpufleet-sim writes them.
 *
 *   lost GPU                        the GPU has fallen off the bus
 *   lose CALL GPU                   the GPU falls off the bus, for this process, when the call is made
 *   hang CALL [GPU]                 the call never returns
 *   crash CALL [GPU]                the call ends the process
 *   error CALL CODE [GPU]           the call returns this NVML error
 *   hide CALL                       the library does not offer the call
 *   version-mismatch                library and loaded module disagree
 *   in-use GPU PID KIND [INSTANCE]  a process holds the GPU (kind: compute, graphics, mps, hidden)
 *   value GPU KEY TEXT              NVML's answer for one key of machine.flat
 *
 * CALL is a symbol without its version suffix (nvmlDeviceGetHandleByIndex, not ..._v2).
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim.h"

#define FAULTS "/run/gpufleet-sim/faults"

enum { MAX_WORDS = 5 };

struct words {
    char *word[MAX_WORDS];
    int count;
    char line[256];
};

static _Thread_local struct table faults;
static atomic_uint lost_here; /* a bit a GPU */

static void refresh(void)
{
    char path[MAX_PATH];
    const char *root = getenv("GPUFLEET_SIM_ROOT");
    snprintf(path, sizeof path, "%s" FAULTS, root == NULL ? "" : root);
    table_refresh(&faults, path);
}

/* The words of fault number i; the last one takes the rest of the line. */
static void split(size_t i, struct words *words)
{
    char *rest = words->line;
    snprintf(words->line, sizeof words->line, "%s", faults.rows[i].value);
    words->count = 0;
    while (words->count < MAX_WORDS && rest != NULL && *rest != '\0') {
        words->word[words->count++] = rest;
        rest = words->count < MAX_WORDS ? strchr(rest, ' ') : NULL;
        if (rest != NULL)
            *rest++ = '\0';
    }
}

static bool is(const struct words *words, const char *name, int at_least)
{
    return words->count >= at_least && strcmp(words->word[0], name) == 0;
}

static bool is_call(const char *wanted, const char *function)
{
    size_t length = strlen(wanted);
    if (strncmp(wanted, function, length) != 0)
        return false;
    return function[length] == '\0' || strncmp(function + length, "_v", 2) == 0;
}

/* True when the word at `position` is absent or names this GPU. */
static bool is_gpu(const struct words *words, int position, int gpu)
{
    return words->count <= position || (gpu >= 0 && atoi(words->word[position]) == gpu);
}

nvmlReturn_t fault_in_call(const char *function, int gpu)
{
    struct words words;
    refresh();
    for (size_t i = 0; i < faults.count; i++) {
        split(i, &words);
        if (words.count < 2 || !is_call(words.word[1], function))
            continue;
        if (is(&words, "hide", 2))
            return NVML_ERROR_FUNCTION_NOT_FOUND;
        if (is(&words, "error", 3) && is_gpu(&words, 3, gpu))
            return (nvmlReturn_t)atoi(words.word[2]);
        if (is(&words, "lose", 3) && is_gpu(&words, 2, gpu))
            atomic_fetch_or(&lost_here, 1U << gpu);
        if (is(&words, "crash", 2) && is_gpu(&words, 2, gpu))
            abort();
        while (is(&words, "hang", 2) && is_gpu(&words, 2, gpu))
            pause();
    }
    return NVML_SUCCESS;
}

bool fault_is_lost(unsigned gpu)
{
    struct words words;
    refresh();
    for (size_t i = 0; i < faults.count; i++) {
        split(i, &words);
        if (is(&words, "lost", 2) && is_gpu(&words, 1, (int)gpu))
            return true;
    }
    return atomic_load(&lost_here) >> gpu & 1;
}

bool fault_version_mismatch(void)
{
    struct words words;
    refresh();
    for (size_t i = 0; i < faults.count; i++) {
        split(i, &words);
        if (is(&words, "version-mismatch", 1))
            return true;
    }
    return false;
}

const char *fault_value(unsigned gpu, const char *key)
{
    static _Thread_local struct words words;
    refresh();
    for (size_t i = 0; i < faults.count; i++) {
        split(i, &words);
        if (is(&words, "value", 4) && is_gpu(&words, 1, (int)gpu) && strcmp(words.word[2], key) == 0) {
            if (words.count > 4) /* the text may hold blanks: undo the last cut */
                words.word[4][-1] = ' ';
            return words.word[3];
        }
    }
    return NULL;
}

bool fault_next_client(unsigned gpu, unsigned *cursor, struct client *client)
{
    struct words words;
    refresh();
    while (*cursor < faults.count) {
        split((*cursor)++, &words);
        if (is(&words, "in-use", 4) && is_gpu(&words, 1, (int)gpu)) {
            client->gpu = gpu;
            client->pid = (unsigned)strtoul(words.word[2], NULL, 10);
            snprintf(client->kind, sizeof client->kind, "%s", words.word[3]);
            client->gpu_instance = words.count > 4 ? atoi(words.word[4]) : -1;
            return true;
        }
    }
    return false;
}

bool gpu_has_client(unsigned gpu, int gpu_instance)
{
    struct client client;
    unsigned cursor = 0;
    while (fault_next_client(gpu, &cursor, &client))
        if (gpu_instance < 0 || client.gpu_instance < 0 || client.gpu_instance == gpu_instance)
            return true;
    return false;
}
