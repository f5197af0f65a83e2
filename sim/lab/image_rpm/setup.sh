#!/bin/sh
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Runs once in a container of a Debian image and makes a host of it whose packages are rpms: dnf in place of apt.
# /packages holds the rpms that a fresh host has installed.
set -eu
export DEBIAN_FRONTEND=noninteractive
tool=$1 # dnf4 or dnf5

rm -f /etc/apt/apt.conf.d/*needrestart /etc/dpkg/dpkg.cfg.d/needrestart # would look at each package for seconds
apt-get update -qq
case $tool in
dnf4)
    apt-get install -qq -y --no-install-recommends rpm dnf dnf-plugins-core python3-dnf gpg
    rm /etc/dnf/plugins/local.conf /usr/lib/python3/dist-packages/dnf-plugins/local.py # adds a repository of its own
    ;;
dnf5) # not in a stable release yet; nothing else is taken from there than what it needs
    suite=sid
    cat >/etc/apt/sources.list.d/$suite.sources <<EOF
Types: deb
URIs: $(sed -n 's/^deb \([^ ]*\) [a-z]* main$/\1/p' /etc/apt/sources.list.d/*.list | head -n 1)
Suites: $suite
Components: main
Check-Valid-Until: no
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOF
    printf 'Package: *\nPin: release n=%s\nPin-Priority: 50\n' "$suite" >/etc/apt/preferences.d/$suite
    apt-get update -qq
    apt-get install -qq -y -t $suite --no-install-recommends rpm dnf5 python3-libdnf5 gpg
    rm /etc/dnf/libdnf5-plugins/local.conf # adds a repository of its own
    ln -s dnf5 /usr/bin/dnf
    ;;
esac
# What the package of dnf's automatic updates has on an EL host and Debian's lacks: its units, and dnf4's program.
cp -a /lab-root/. /
case $tool in
dnf4) rm /usr/lib/systemd/system/dnf5-automatic.* ;;
dnf5) rm /usr/lib/systemd/system/dnf-automatic* /usr/bin/dnf-automatic ;;
esac

# From here on this is an rpm host: no apt, no dpkg, and none of their automatic updates.
systemctl disable --quiet apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service
rm -rf /var/lib/dpkg /var/lib/apt /var/cache/apt /etc/apt /etc/needrestart /etc/debian_version \
    /usr/bin/apt /usr/bin/apt-* /usr/bin/dpkg /usr/bin/dpkg-* /usr/bin/unattended-upgrade* \
    /usr/lib/systemd/system/apt-daily* /usr/lib/systemd/system/unattended-upgrades.service

mkdir -p /etc/rpm
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros.lab # where EL has it; Debian's is in the user's home
rpm --initdb
rpm --install --nosignature --excludedocs /packages/*.rpm
