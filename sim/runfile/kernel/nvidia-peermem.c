// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* nvidia-peermem: peer memory for RDMA adapters; holds core while it is loaded. */
#include "nv.h"

NV_MODULE("Stand-in for nvidia-peermem");

static int peerdirect_support;
module_param(peerdirect_support, int, 0444);

static int __init peermem_init(void)
{
    return nvidia_core_attach("nvidia-peermem");
}

static void __exit peermem_exit(void)
{
    nvidia_core_detach("nvidia-peermem");
}

module_init(peermem_init);
module_exit(peermem_exit);
