#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Runs once inside the new root, as the last step of the image build: two real kernels with their headers, a stand-in
# nouveau in each, an initramfs that carries it, and a grub.cfg.
set -eu
export DEBIAN_FRONTEND=noninteractive

# A probe of the boot disk has nothing to look at in a container; everything else of grub is the real thing.
dpkg-divert --quiet --local --rename --add /usr/sbin/grub-probe
install -m 0755 /usr/local/share/gpufleet-lab/grub-probe /usr/sbin/grub-probe

# The two newest kernel ABIs that also have headers: a host must have something to boot into next.
releases=$(apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9][^ ]*-cloud-amd64\)$/\1/p' |
    grep -x "$(cat /usr/local/share/gpufleet-lab/kernel-pattern)" | sort -V | tail -n 2)
[ "$(echo "$releases" | wc -l)" -eq 2 ]
packages=$(for release in $releases; do echo "linux-image-$release linux-headers-$release"; done)

# Kernels are installed without their initramfs; it is made below, once nouveau lies in place.
sed -i 's/^update_initramfs=.*/update_initramfs=no/' /etc/initramfs-tools/update-initramfs.conf
# shellcheck disable=SC2086 # a list of package names
apt-get install -y --no-install-recommends $packages
sed -i 's/^update_initramfs=.*/update_initramfs=yes/' /etc/initramfs-tools/update-initramfs.conf

for release in $releases; do
    directory=/lib/modules/$release/kernel/drivers/gpu/drm/nouveau
    vermagic=$(modinfo -k "$release" -F vermagic loop)
    mkdir -p "$directory"
    gcc=$(ls /usr/bin/gcc-[0-9]* | head -n 1)
    "$gcc" -c -o "$directory/nouveau.ko" -DVERMAGIC="\"vermagic=$vermagic\"" /usr/local/share/gpufleet-lab/nouveau.c
    depmod "$release"
    update-initramfs -c -k "$release"
    lsinitramfs "/boot/initrd.img-$release" | grep -q 'nouveau\.ko'
done
mkdir -p /boot/grub
update-grub

# Whoever asks for these by name or by path gets the simulated host's own; the real kmod and uname answer behind them.
library=/usr/local/lib/gpufleet-sim
for tool in modprobe insmod rmmod lsmod modinfo depmod; do
    dpkg-divert --quiet --local --rename --add "/sbin/$tool"
    ln -sf "$library/modules.py" "/sbin/$tool"
done
dpkg-divert --quiet --local --rename --add /bin/lsmod
ln -sf "$library/modules.py" /bin/lsmod
ln -s "$library/modules.py" /usr/local/bin/uname
ln -s "$library/modules.py" /usr/local/sbin/uname
ln -s "$library/control.py" /usr/local/sbin/gpufleet-sim
ln -s "$library/next_kernel" /usr/local/sbin/gpufleet-lab-next-kernel
mkdir -p "$library" /var/lib/gpufleet-sim

# Who runs the playbooks: a user who may become root, as on a real server.
useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
