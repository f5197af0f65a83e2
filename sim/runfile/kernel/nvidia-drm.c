// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* nvidia-drm: direct rendering manager; holds modeset while it is loaded. */
#include "nv.h"

NV_MODULE("Stand-in for nvidia-drm");

static bool modeset;
module_param(modeset, bool, 0444);
static bool fbdev;
module_param(fbdev, bool, 0444);

static int __init drm_init(void)
{
    return nvidia_modeset_attach("nvidia-drm");
}

static void __exit drm_exit(void)
{
    nvidia_modeset_detach("nvidia-drm");
}

module_init(drm_init);
module_exit(drm_exit);
