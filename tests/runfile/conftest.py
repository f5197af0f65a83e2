# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages built once a session, and hosts that are a folder: GPUFLEET_SIM_ROOT keeps everything inside it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sim.runfile.package import build

REAL_HEADERS = sorted(Path("/lib/modules").glob("*/build/Makefile"))

# Stands in for make where a test is not about the build: leaves files where the modules would be.
MAKE = """#!/bin/sh
[ "$1" = -C ] || exit 2
case " $* " in *" modules "*) ;; *) exit 0 ;; esac
for m in nvidia nvidia-uvm nvidia-modeset nvidia-drm nvidia-peermem; do echo $m >$2/$m.ko; done
"""


@pytest.fixture(scope="session")
def nvml(tmp_path_factory):
    """A library with nothing in it: these tests are about the package, and must not need the simulated NVML."""
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text("int placeholder;\n")
    library = folder / "libnvidia-ml.so"
    subprocess.run(["gcc", "-shared", "-o", library, folder / "nvml.c"], check=True)
    return library


@pytest.fixture(scope="session")
def package(nvml, tmp_path_factory):
    """package(version) -> path of the .run"""
    folder, built = tmp_path_factory.mktemp("packages"), {}

    def get(version):
        if version not in built:
            built[version] = build(version, folder, nvml=nvml)
        return built[version]

    return get


class Host:
    """A root folder with a kernel, its headers, and commands found before the machine's own."""

    def __init__(self, root, kernel="6.1.0-1-test"):
        self.root, self.kernel, self.shims = root / "root", kernel, root / "shims"
        self.path = "/usr/bin:/bin"  # without sbin, so that an installed dkms is not found unless a test wants it
        for folder in (
            "tmp",
            "usr/lib/x86_64-linux-gnu",
            "usr/bin",
            "sys/bus/pci/devices",
            f"lib/modules/{kernel}/build",
        ):
            (self.root / folder).mkdir(parents=True)
        (self.root / f"lib/modules/{kernel}/build/Makefile").write_text("")
        self.shims.mkdir()
        self.shim("uname", f'#!/bin/sh\n[ "$1" = -r ] || exec /usr/bin/uname "$@"\necho {kernel}\n')
        self.shim("make", MAKE)
        self.shim("depmod", "#!/bin/sh\n")
        self.shim("ldconfig", "#!/bin/sh\n")
        self.shim("modprobe", "#!/bin/sh\necho 'modprobe reached from a test' >&2\nexit 99\n")

    def shim(self, name, text):
        (self.shims / name).write_text(text)
        (self.shims / name).chmod(0o755)

    def write(self, path, text=""):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def gpu(self, device, address="0000:1b:00.0"):
        for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("device", device)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", text + "\n")

    def command(self, *argv):
        env = {"PATH": f"{self.shims}:{self.path}", "GPUFLEET_SIM_ROOT": str(self.root), "LC_ALL": "C"}
        return subprocess.run(
            [str(word) for word in argv],
            env=env,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def install(self, run, *options, tmpdir=True):
        place = [f"--tmpdir={self.root}/tmp"] if tmpdir else []
        return self.command("sh", run, "--silent", *place, *options)

    def log(self, name="nvidia-installer"):
        return (self.root / f"var/log/{name}.log").read_text()

    def files(self):
        """Everything but what the test itself put there, logs and the linker's cache."""
        found = {
            str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir() or path.is_symlink()
        }
        return {
            path
            for path in found
            if not re.match(r"etc/ld.so.cache|sys/|var/log/|lib/modules/[^/]+/build|etc/gpufleet", path)
        }


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def building_host(tmp_path):
    """A host whose kernel has real headers, so that the modules are really compiled."""
    if not REAL_HEADERS:
        pytest.skip(
            "no kernel headers on this machine (linux-headers-cloud-amd64 brings some); the lab's hosts have them"
        )
    headers = REAL_HEADERS[-1].parent
    host = Host(tmp_path, headers.parent.name)
    shutil.rmtree(host.root / f"lib/modules/{host.kernel}/build")
    (host.root / f"lib/modules/{host.kernel}/build").symlink_to(headers.resolve())
    (host.shims / "make").unlink()
    return host


@pytest.fixture
def dkms_host(building_host):
    """As building_host, with the real dkms. The real depmod stays out: dkms would run it on this machine's modules."""
    if not shutil.which("dkms"):
        pytest.skip("dkms is not installed on this machine; the lab's hosts have it")
    building_host.path = os.environ["PATH"]
    return building_host
