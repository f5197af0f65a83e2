// Copyright (c) 2026, the gpufleet.metal authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
/* nvidia-uvm: unified memory, with a character device of its own; holds core while it is loaded. */
#include <linux/fs.h>

#include "nv.h"

NV_MODULE("Stand-in for nvidia-uvm");

static int uvm_disable_hmm;
module_param(uvm_disable_hmm, int, 0444);

static const struct file_operations uvm_operations = { .owner = THIS_MODULE };
static int uvm_major;

static int __init uvm_init(void)
{
    uvm_major = register_chrdev(0, "nvidia-uvm", &uvm_operations);
    return uvm_major < 0 ? uvm_major : nvidia_core_attach("nvidia-uvm");
}

static void __exit uvm_exit(void)
{
    nvidia_core_detach("nvidia-uvm");
    unregister_chrdev(uvm_major, "nvidia-uvm");
}

module_init(uvm_init);
module_exit(uvm_exit);
