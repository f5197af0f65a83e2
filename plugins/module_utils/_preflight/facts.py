# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks need to know of a host, read in one go. Changes nothing; see :func:`probe_exec` for the one probe."""

import re
import sys

from ansible_collections.gpufleet.metal.plugins.module_utils import (
    _apt,
    _boot_loader,
    _dnf,
    _driver_facts,
    _initramfs,
    _kernel,
    _modules,
    _nouveau,
    _packages,
    _pci,
    _version_lock,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._nvidia_driver import (
    boot,
    build,
    display,
    fabric,
    installer,
    members,
    runfile,
    supported_gpus,
    unload,
    version_set,
)
from ansible_collections.gpufleet.metal.plugins.module_utils._preflight.finding import removed, wanted

DPKG_UPDATES = "/var/lib/dpkg/updates"
#: Keys with which DKMS signs modules, Ubuntu's and Debian's place first.
MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
#: Certificates that the firmware and shim trust; a key that is enrolled stands in one of these as it is.
TRUSTED_KEYS = (
    "/sys/firmware/efi/mok-variables/MokListRT",
    "/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23",
    "/sys/firmware/efi/efivars/db-d719b2cb-3d3a-4596-a3bc-dad00e67656f",
)
#: dpkg's words for a package with which something is still to be done, as dpkg --audit tells.
UNFINISHED = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
INSTALLERS = re.compile(r"NVIDIA-Linux-[^/\0]*\.run|nvidia-installer")


def read(host, desired, probe=False):
    """Everything the checks judge: a dict; the code below names its keys, the readers' documentation their shapes."""
    kernel = _kernel.read(host)
    driver = wanted(desired, "nvidia_driver") if own_gpus(host) else None
    changed = driver or removed(desired)
    targets = build.targets(kernel)
    return {
        "python": list(sys.version_info[:2]),
        "os": os_release(host),
        "architecture": runfile.architecture(host),
        "unreadable": host.unreadable,
        "manager": _packages.manager(host),
        "lists_error": None,
        "unfinished": [
            "%s (%s)" % (name, package["status"])
            for name, package in sorted(_packages.installed(host).items())
            if package["status"] in UNFINISHED
        ],
        "dpkg_updates": [name for name in host.listdir(DPKG_UPDATES) if name.isdigit()],
        "locks": package_locks(host),
        "lock_obstacles": lock_obstacles(host),
        "installers": installers(host) if changed else [],
        "kernel": kernel,
        "targets": targets,
        "headers": sorted(
            path.split("/")[-1] for path in host.glob("/usr/src/linux-headers-*") + host.glob("/usr/src/kernels/*")
        ),
        "missing_packages": candidates(host, build.missing_packages(host, kernel, targets)) if driver else {},
        "pci": _pci.read(host),
        "own_gpus": own_gpus(host),
        "supported": supported(host, driver, probe) if driver else None,
        "fabric": fabric.Fabric().read(host, driver) if driver else None,
        "driver": _driver_facts.read(host),
        "users": unload.read(host, members.unit_of(changed) if changed else None),
        "display": display.Display().read(host, driver) if driver else None,
        "foreign_unit": bool(driver and driver["persistence"]) and boot.foreign_unit(host),
        "in_kernel_drivers": in_kernel_drivers(host),
        "key": module_key(host),
        "boot": _boot_loader.read(host, "nouveau"),
        "graphical_unlock": graphical_unlock(host, kernel["cmdline"]),
        "space": space(host, desired, targets),
        "tmpdir": tmpdir(host, driver["tmpdir"], probe) if driver else None,
    }


def own_gpus(host):
    """The GPUs that a driver on this host would drive: not those handed to virtual machines."""
    return [gpu for gpu in _pci.read(host)["gpus"] if gpu["driver"] != _pci.PASSTHROUGH_DRIVER]


def in_kernel_drivers(host):
    """Those of nouveau and nova_core that are loaded; None when the host does not show its modules."""
    loaded = {module: _modules.loaded(host, module) for module in _nouveau.MODULES}
    return None if None in loaded.values() else [module for module in loaded if loaded[module]]


def lock_obstacles(host):
    """What keeps this host's package manager from locking versions: list of sentences; None: it has no means at all."""
    backend = _version_lock.backend_of(host)
    return backend and [row["why"] for row in backend.conflicts(backend.read(host), [])]


def os_release(host):
    """``{id, version, like, name}`` of /etc/os-release; empty strings for what it lacks."""
    text = host.read_text("/etc/os-release") or host.read_text("/usr/lib/os-release") or ""
    fields = {key: value.strip().strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}
    keys = {"id": "ID", "version": "VERSION_ID", "like": "ID_LIKE", "name": "PRETTY_NAME"}
    return {key: fields.get(field, "") for key, field in keys.items()}


def package_locks(host):
    """Who is at work with the host's package manager: list of clauses."""
    held = ["%(path)s by %(command)s (pid %(pid)s)" % lock for lock in _apt.lock_holders(host)]
    return held + (_dnf.running(host) if _packages.manager(host) == "dnf" else [])


def lists_are_due(read):
    """True when fetching apt's package lists may answer what they do not answer now."""
    parts = read["fabric"]["parts"] if read["fabric"] else []
    unknown = [part for part in parts if not part["fits"] and not part["offer"]]
    return read["manager"] == "apt" and bool(unknown or not all(read["missing_packages"].values()))


def refresh(host):
    """Fetch apt's package lists; why that did not work, or None."""
    answer = host.run(["apt-get", "update", "--error-on=any"], timeout=600, changes=True)
    return None if answer.ok else answer.summary()


def supported(host, driver, probe):
    """What the wanted driver's runfile says of this host's GPUs (see :func:`supported_gpus.read`), or None.

    Only a runfile that is there and is the wanted one is asked, and only before its driver is installed.
    """
    filename = runfile.name(driver["version"], runfile.architecture(host) or "unknown")
    path = "%s/%s" % (runfile.DIRECTORY, filename)
    library = _driver_facts.read(host)["library"]
    if not probe or not host.exists(path) or (library and library["version"] == driver["version"]):
        return None
    if runfile.sha256(host, path) != runfile.expected_sha256(host, driver, filename):
        return None
    folder = existing(host, driver["tmpdir"])
    if (host.free_bytes(folder) or 0) < runfile.UNPACKED_FACTOR * host.stat(path).st_size:
        return None
    return supported_gpus.read(host, path, folder, sorted({gpu["device"] for gpu in own_gpus(host)}))


def installers(host):
    """Driver installers at work: list of ``{pid, command, ours}``; ``ours``: a run of the role started it."""
    found = []
    for path in host.glob("/proc/[0-9]*/cmdline"):
        words = (host.read_text(path) or "").replace("\0", " ")
        match = INSTALLERS.search(words)
        if match:
            pid = path.split("/")[2]
            # systemd-run, which waits for the unit, stands outside of it
            ours = installer.UNIT in words + (host.read_text("/proc/%s/cgroup" % pid) or "")
            found.append({"pid": int(pid), "command": match.group(0), "ours": ours})
    return found


def candidates(host, packages):
    """package -> True (apt can install it), False (no repository has it), None (no apt, or no package lists)."""
    if not packages:
        return {}
    if not version_set.listed(host) or _packages.manager(host) != "apt":
        return dict.fromkeys(packages)
    text = host.run(["apt-cache", "policy"] + packages, timeout=60).out
    offered = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (.*)$", text, re.MULTILINE))
    return {package: offered.get(package, "(none)") != "(none)" for package in packages}


def module_key(host):
    """The key that signs modules: ``{path: str|None, enrolled: bool|None}``; None: what is trusted cannot be read."""
    for path in MODULE_KEYS:
        key = host.read_bytes(path)
        if key:
            trusted = [data for data in (host.read_bytes(store) for store in TRUSTED_KEYS) if data]
            return {"path": path, "enrolled": any(key in data for data in trusted) if trusted else None}
    return {"path": None, "enrolled": False}


def graphical_unlock(host, cmdline):
    """True when the root disk's passphrase is asked on a splash screen and no console= shows it otherwise (A14)."""
    encrypted = any(
        line.split() and not line.lstrip().startswith("#")
        for line in (host.read_text("/etc/crypttab") or "").splitlines()
    )
    plymouth = host.exists("/usr/sbin/plymouthd") or host.exists("/sbin/plymouthd")
    words = cmdline.split()
    return encrypted and plymouth and "splash" in words and not any(word.startswith("console=") for word in words)


def space(host, desired, targets):
    """Per file system, what the wanted changes need: list of ``{paths, needed, free}``, bytes; see :func:`needs`."""
    systems: dict = {}
    for path, needed in sorted(needs(host, desired, targets).items()):
        parent = existing(host, path)
        stat = host.stat(parent)
        if stat is None:
            continue
        entry = systems.setdefault(stat.st_dev, {"paths": [], "needed": 0, "free": host.free_bytes(parent)})
        entry["paths"].append(path)
        entry["needed"] += needed
    return list(systems.values())


#: Bytes. Measured on data-center drivers of the branches 535 to 580, rounded up.
MIB = 1024 * 1024
UNPACKED = 2000 * MIB
LIBRARIES = 1500 * MIB
MODULES_PER_KERNEL = 600 * MIB
INSTALLED_MODULES = 150 * MIB
RUNFILE = 450 * MIB


def needs(host, desired, targets):
    """path -> bytes that the wanted changes will write there; empty for what is done already."""
    needed = {}
    driver, nouveau = wanted(desired, "nvidia_driver"), wanted(desired, "nouveau")
    driver = driver if own_gpus(host) else None
    library = _driver_facts.read(host)["library"]
    if driver and (library is None or library["version"] != driver["version"]):
        needed = {
            driver["tmpdir"]: UNPACKED,
            "/usr": LIBRARIES,
            "/var/lib/dkms": MODULES_PER_KERNEL * max(1, len(targets)),
            "/lib/modules": INSTALLED_MODULES * max(1, len(targets)),
            runfile.DIRECTORY: RUNFILE,
        }
    if nouveau:
        _state, difference = _nouveau.Nouveau().inspect(host, nouveau)
        due = {item["what"] for item in difference.items}
        images = _initramfs.read(host)["images"]
        for folder, size in _initramfs.space_needed(
            [image for image in images if image["path"] in due], images
        ).items():
            needed[folder] = needed.get(folder, 0) + size
    return needed


def existing(host, path):
    """The path, or its nearest parent that exists."""
    while path != "/" and not host.exists(path):
        path = path.rsplit("/", 1)[0] or "/"
    return path


def tmpdir(host, path, probe):
    """``{path, mount, options: [str], probe: True|False|None}`` of the installer's temporary directory."""
    mount, flags = None, []
    for line in (host.read_text("/proc/mounts") or "").splitlines():
        fields = line.split()
        point = fields[1].replace("\\040", " ") if len(fields) > 3 else ""
        # the longest mount point wins; a later mount on the same one hides the earlier
        if point and (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(mount or ""):
            mount, flags = point, [word for word in fields[3].split(",") if "=" not in word]
    ran = probe_exec(host, existing(host, path)) if probe else None
    return {"path": path, "mount": mount, "options": flags, "probe": ran}


def probe_exec(host, folder):
    """Whether a program runs from ``folder``: writes a one-line script there, runs it and removes it (C1).

    Mount options alone do not tell: a security module can forbid it too.
    """
    program = folder.rstrip("/") + "/.gpufleet-exec-probe"
    try:
        host.write(program, "#!/bin/sh\nexit 0\n", mode=0o700)
        return host.run([program], timeout=20).ok
    except OSError:
        return False  # a read-only file system runs nothing that is put there
    finally:
        host.remove(program)
