# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OCI hook: on machines with version 1 control groups, give a host its own systemd control group.

The container runtime runs it, as root, between creating and starting a host; the state of the host comes on standard
input. With version 2 control groups the runtime does the same itself and there is nothing left to do.
"""

import json
import os
import sys

OWNED = ("", "cgroup.procs", "tasks", "notify_on_release", "cgroup.clone_children")


def main():
    process = json.load(sys.stdin)["pid"]
    with open(f"/proc/{process}/uid_map") as stream:
        owner = int(stream.read().split()[1])
    if owner == 0:
        sys.exit("a simulated host must have its own user namespace")
    with open(f"/proc/{process}/cgroup") as stream:
        groups = [line.rstrip("\n").split(":", 2) for line in stream]
    for _number, controller, path in groups:
        if controller == "name=systemd":
            for name in OWNED:
                target = os.path.join("/sys/fs/cgroup/systemd" + path, name)
                if os.path.exists(target):
                    os.chown(target, owner, owner)


main()
