// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* nvidia-uvm: unified memory; holds core while it is loaded. */
#include "nv.h"

NV_MODULE("Stand-in for nvidia-uvm");

static int uvm_disable_hmm;
module_param(uvm_disable_hmm, int, 0444);

static int __init uvm_init(void)
{
    return nvidia_core_attach("nvidia-uvm");
}

static void __exit uvm_exit(void)
{
    nvidia_core_detach("nvidia-uvm");
}

module_init(uvm_init);
module_exit(uvm_exit);
