/* Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
/* A file of `key=value` lines: how the machine and the state reach this library, and leave it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

static int by_key(const void *one, const void *other)
{
    return strcmp(((const struct row *)one)->key, ((const struct row *)other)->key);
}

static void sort(struct table *table)
{
    if (table->count > 0)
        qsort(table->rows, table->count, sizeof *table->rows, by_key);
}

void table_clear(struct table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        free(table->rows[i].key);
        free(table->rows[i].value);
    }
    free(table->rows);
    memset(table, 0, sizeof *table);
}

static void append(struct table *table, const char *key, const char *value)
{
    struct row *rows = realloc(table->rows, (table->count + 1) * sizeof *rows);
    if (rows == NULL)
        abort();
    table->rows = rows;
    rows[table->count].key = strdup(key);
    rows[table->count].value = strdup(value);
    table->count++;
}

static void stamp_of(const char *path, long long stamp[3])
{
    struct stat status;
    memset(stamp, 0, 3 * sizeof *stamp);
    if (stat(path, &status) == 0) {
        stamp[0] = status.st_size;
        stamp[1] = status.st_mtim.tv_sec * 1000000000LL + status.st_mtim.tv_nsec;
        stamp[2] = (long long)status.st_ino;
    }
}

void table_read(struct table *table, const char *path)
{
    char *line = NULL;
    size_t size = 0;
    table_clear(table);
    stamp_of(path, table->stamp);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    while (getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *separator = strchr(line, '=');
        if (separator == NULL)
            continue;
        *separator = '\0';
        append(table, line, separator + 1);
    }
    free(line);
    fclose(file);
    sort(table);
}

void table_refresh(struct table *table, const char *path)
{
    long long now[3];
    stamp_of(path, now);
    if (memcmp(now, table->stamp, sizeof now) != 0)
        table_read(table, path);
}

static struct row *find(const struct table *table, const char *key)
{
    struct row wanted = {.key = (char *)key};
    if (table->count == 0)
        return NULL;
    return bsearch(&wanted, table->rows, table->count, sizeof *table->rows, by_key);
}

const char *table_get(const struct table *table, const char *key)
{
    const struct row *row = find(table, key);
    return row == NULL ? NULL : row->value;
}

void table_set(struct table *table, const char *key, const char *value)
{
    struct row *row = find(table, key);
    if (row != NULL) {
        free(row->value);
        row->value = strdup(value);
        return;
    }
    append(table, key, value);
    sort(table);
}

bool table_write(const struct table *table, const char *path)
{
    char temporary[MAX_PATH + 16];
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    FILE *file = fopen(temporary, "we");
    if (file == NULL)
        return false;
    for (size_t i = 0; i < table->count; i++)
        fprintf(file, "%s=%s\n", table->rows[i].key, table->rows[i].value);
    bool written = fclose(file) == 0 && rename(temporary, path) == 0;
    if (!written)
        unlink(temporary);
    return written;
}
