#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Runs once inside the new root, as the last step of the image build: two real kernels with their headers, the memory-only
# PCI functions for each, a lean initramfs with the distribution's own nouveau, grub.cfg and GRUB as an EFI program.
set -eu
export DEBIAN_FRONTEND=noninteractive
share=/usr/local/share/gpufleet-vm

# The two newest kernel ABIs that also have headers: a host must have something to boot into next.
releases=$(apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9][0-9.-]*-amd64\)$/\1/p' |
    grep -x "$(cat $share/kernel-pattern)" | sort -V | tail -n 2)
[ "$(echo "$releases" | wc -l)" -eq 2 ]
packages=$(for release in $releases; do echo "linux-image-$release linux-headers-$release"; done)

# Kernels are installed without their initramfs; it is made below, once the module lies in place.
sed -i 's/^update_initramfs=.*/update_initramfs=no/' /etc/initramfs-tools/update-initramfs.conf
# shellcheck disable=SC2086 # a list of package names
apt-get install -y --no-install-recommends $packages make
sed -i 's/^update_initramfs=.*/update_initramfs=yes/' /etc/initramfs-tools/update-initramfs.conf

for release in $releases; do
    # Built in a copy: the sources stay clean, and nothing of the build stays on the host.
    build=$(mktemp -d)
    cp $share/pcibus/* "$build"
    make -C "/lib/modules/$release/build" M="$build" modules >/dev/null
    install -D -m 0644 "$build/gpufleet-pcibus.ko" "/lib/modules/$release/extra/gpufleet-pcibus.ko"
    rm -r "$build"
    depmod "$release"
    update-initramfs -c -k "$release"
    lsinitramfs "/boot/initrd.img-$release" | grep -q 'nouveau\.ko'
    lsinitramfs "/boot/initrd.img-$release" | grep -q 'gpufleet-pcibus\.ko'
done
apt-get purge -y make >/dev/null

# The probe of the boot disk has nothing to look at here; on the running host everything of grub is the real thing.
mkdir -p /boot/grub
dpkg-divert --quiet --local --rename --add /usr/sbin/grub-probe
install -m 0755 $share/grub-probe /usr/sbin/grub-probe
update-grub
sed -i "s#root=/dev/vda#root=UUID=$(grub-probe --target=fs_uuid /)#" /boot/grub/grub.cfg # there is no /dev/disk here
rm /usr/sbin/grub-probe
dpkg-divert --quiet --local --rename --remove /usr/sbin/grub-probe
grub-mkimage --format=x86_64-efi --output=/boot/gpufleet-grub.efi --prefix=/boot/grub --config=$share/grub-start.cfg \
    all_video boot configfile echo ext2 fat gzio linux loadenv minicmd normal part_gpt reboot search search_fs_uuid \
    search_label serial terminal test true

# Who runs the playbooks: a user who may become root, as on a real server.
useradd --create-home --shell /bin/bash admin
echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
install -d -o admin -g admin -m 0700 /home/admin/.ssh
install -o admin -g admin -m 0600 $share/authorized_keys /home/admin/.ssh/authorized_keys
systemctl enable systemd-networkd.service
systemctl disable e2scrub_reap.service # looks for LVM at every boot, slowly
rm -r $share
