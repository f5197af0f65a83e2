/*
 * Copyright (c) 2026, the gpufleet.metal authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stand-in for nouveau.ko: only what modinfo, depmod and an initramfs look at. Nothing ever loads it.
 */
static const char modinfo[] __attribute__((section(".modinfo"), used, aligned(1))) =
	"license=GPL and additional rights\0"
	"description=stand-in for nouveau on a simulated host\0"
	"alias=pci:v000010DEd*sv*sd*bc03sc*i*\0"
	"name=nouveau\0" VERMAGIC;
