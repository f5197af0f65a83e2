// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* nvidia-modeset: mode setting; holds core while it is loaded. */
#include "nv.h"

NV_MODULE("Stand-in for nvidia-modeset");

int nvidia_modeset_attach(const char *user)
{
    pr_info("nvidia-modeset: %s attached\n", user);
    return 0;
}
EXPORT_SYMBOL(nvidia_modeset_attach);

void nvidia_modeset_detach(const char *user)
{
    pr_info("nvidia-modeset: %s detached\n", user);
}
EXPORT_SYMBOL(nvidia_modeset_detach);

static int __init modeset_init(void)
{
    return nvidia_core_attach("nvidia-modeset");
}

static void __exit modeset_exit(void)
{
    nvidia_core_detach("nvidia-modeset");
}

module_init(modeset_init);
module_exit(modeset_exit);
