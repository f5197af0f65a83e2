// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* Shared by the five modules. NV_VERSION_STRING, NV_MODULE_LICENSE and NV_BANNER come from nv-version.h, written when the runfile is built. */
#ifndef NV_H
#define NV_H

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>

#include "nv-version.h"

/* The symbols that make the modules depend on one another, as the real ones do: uvm, modeset and peermem on nvidia, drm on modeset. */
int nvidia_core_attach(const char *user);
void nvidia_core_detach(const char *user);
int nvidia_modeset_attach(const char *user);
void nvidia_modeset_detach(const char *user);

#define NV_MODULE(text)                 \
    MODULE_LICENSE(NV_MODULE_LICENSE);  \
    MODULE_VERSION(NV_VERSION_STRING);  \
    MODULE_DESCRIPTION(text)

#endif
