# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual machine as a process of QEMU: start, cut its power, ask whether it answers.

Its disks are overlays over those of `image`, so a fresh machine is a moment's work. Everything it may reach is QEMU's
user network; SSH comes in on a port of the loopback address.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import yaml

from sim import machine
from sim.lab.process import LabError, call, say
from sim.vm import image

STATE = image.CACHE / "run"
PID_FILE = STATE / "qemu.pid"
CONSOLE = STATE / "console.log"
KNOWN_HOSTS = STATE / "known_hosts"
FIRMWARE = Path("/usr/share/OVMF")
DISKS = ("root", "var")
MEMORY_MIB = 2048
BOOT_DEADLINE = 600.0
#: How long a kernel gets to print its first line when the processor runs it itself.
PROBE_SECONDS = 10.0


def create() -> None:
    """A machine that was never started: empty overlays, fresh firmware variables."""
    cut_power()
    base = image.ensure()
    STATE.mkdir(parents=True, exist_ok=True)
    for disk in DISKS:
        overlay = STATE / f"{disk}.qcow2"
        call(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base / f"{disk}.raw"), str(overlay)])
    if not (FIRMWARE / "OVMF_CODE_4M.fd").exists():
        raise LabError("OVMF is not installed; run `tools/bootstrap tools/system-packages-vm.txt`")
    shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", STATE / "firmware-variables.fd")
    program = STATE / "esp" / "EFI" / "BOOT" / "BOOTX64.EFI"
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(base / "grub.efi", program)
    CONSOLE.write_text("")


def start() -> None:
    """Start the machine that `create` made; returns at once."""
    if running():
        return
    if not (STATE / "root.qcow2").exists():
        raise LabError("there is no virtual machine yet: `python -m sim.vm up` makes one")
    port = _free_port()
    dmi = machine.load(image.MACHINE)["dmi"]
    argv = [
        "qemu-system-x86_64",
        "-name=gpufleet-vm",
        *acceleration(),
        "-machine=q35",
        f"-m={MEMORY_MIB}",
        f"-smp={min(4, os.cpu_count() or 1)}",
        "-nodefaults",
        "-display=none",
        f"-drive=if=pflash,format=raw,readonly=on,file={FIRMWARE}/OVMF_CODE_4M.fd",
        f"-drive=if=pflash,format=raw,file={STATE}/firmware-variables.fd",
        # The firmware starts GRUB from here: QEMU shows the folder as a FAT disk.
        "-blockdev=driver=vvfat,node-name=esp,read-only=on,dir=" + str(STATE / "esp"),
        "-device=virtio-blk-pci,drive=esp,bootindex=1",
        *(word for place, disk in enumerate(DISKS) for word in _disk(disk, place)),
        f"-netdev=user,id=net0,hostfwd=tcp:127.0.0.1:{port}-:22",
        "-device=virtio-net-pci,netdev=net0,romfile=",
        "-device=virtio-rng-pci",
        f"-smbios=type=0,vendor=Example,version={dmi['bios_version']},date=01/02/2026,uefi=on",
        f"-smbios=type=1,manufacturer={dmi['sys_vendor']},product={dmi['product_name']}",
        f"-chardev=file,id=console,path={CONSOLE},append=on",
        "-serial=chardev:console",
        f"-pidfile={PID_FILE}",
        "-daemonize",
    ]
    call(_words(argv))
    public = image.HOST_KEY.with_suffix(".pub").read_text().split()
    KNOWN_HOSTS.write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    (STATE / "port").write_text(f"{port}\n")


def _disk(name: str, place: int) -> list[str]:
    """What the guest has flushed reaches this machine's page cache, which survives the death of QEMU.

    The firmware shows GRUB only the disks that have a place in the boot order.
    """
    drive = f"-drive=if=none,id={name},format=qcow2,cache=unsafe,file={STATE}/{name}.qcow2"
    return [drive, f"-device=virtio-blk-pci,drive={name},bootindex={place + 2}"]


def _words(argv: list[str]) -> list[str]:
    """`-option=value` as the two words that QEMU wants."""
    return [argv[0], *(word for part in argv[1:] for word in part.split("=", 1))]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def acceleration() -> list[str]:
    """Hardware virtualisation where a kernel really starts with it, else software emulation.

    A machine that is virtual itself may offer /dev/kvm that accepts everything and runs nothing.
    """
    answer = image.CACHE / "accelerator"
    if not answer.exists():
        answer.write_text("kvm" if _kvm_works() else "tcg,thread=multi")
        say(f"the processor is {'used directly' if answer.read_text() == 'kvm' else 'emulated: this is slow'}")
    # Emulated, the plainest processor is the fastest one.
    return [f"-accel={answer.read_text()}", "-cpu=host" if answer.read_text() == "kvm" else "-cpu=qemu64"]


def _kvm_works() -> bool:
    """Does the firmware say its first word on this machine's own processor?"""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    argv = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-nodefaults", "-display", "none"]
    argv += ["-chardev", "stdio,id=log", "-device", "isa-debugcon,iobase=0x402,chardev=log"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        output, _ = process.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return b"SeaBIOS" in output


def running() -> bool:
    return _process() is not None


def _process() -> int | None:
    """QEMU's process id. A number is used again after a restart of this machine, so its command line is looked at."""
    if not PID_FILE.exists():
        return None
    pid = int(PID_FILE.read_text() or 0)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return pid if b"gpufleet-vm" in words else None


def cut_power() -> None:
    """What a power cut does: nothing in the machine is told."""
    pid = _process()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        while _process() is not None:
            time.sleep(0.05)
    PID_FILE.unlink(missing_ok=True)


def remove() -> None:
    """Cut its power and drop its disks."""
    cut_power()
    if STATE.exists():
        shutil.rmtree(STATE)


def ssh(*command: str) -> list[str]:
    """The ssh command line into the machine."""
    port = (STATE / "port").read_text().strip()
    options = [f"UserKnownHostsFile={KNOWN_HOSTS}", "StrictHostKeyChecking=yes", "ConnectTimeout=5", "LogLevel=ERROR"]
    flags = [word for option in options for word in ("-o", option)]
    return ["ssh", "-i", str(image.KEY), "-p", port, *flags, "admin@127.0.0.1", *command]


def wait() -> None:
    """Until SSH answers."""
    begin = time.monotonic()
    while time.monotonic() - begin < BOOT_DEADLINE:
        if not running():
            raise LabError(f"the virtual machine has ended; its console: {CONSOLE}")
        if call(ssh("true"), check=False).returncode == 0:
            say(f"the virtual machine answers after {time.monotonic() - begin:.0f} s")
            return
        time.sleep(1)
    raise LabError(f"the virtual machine did not answer within {BOOT_DEADLINE:.0f} s; its console: {CONSOLE}")


def write_inventory(path: Path) -> None:
    """An inventory of the machine at `path`, complete in itself."""
    options = f"-o UserKnownHostsFile={KNOWN_HOSTS} -o StrictHostKeyChecking=yes"
    row = {
        "ansible_host": "127.0.0.1",
        "ansible_port": int((STATE / "port").read_text()),
        "ansible_user": "admin",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": str(image.KEY),
        "ansible_ssh_common_args": options,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"all": {"children": {"gpu": {"hosts": {"vm": row}}}}}
    path.write_text("---\n" + yaml.safe_dump(document, sort_keys=False, width=120))


def describe() -> str:
    return json.dumps(
        {"running": running(), "accelerator": acceleration()[0].split("=", 1)[1], "console": str(CONSOLE)}
    )
