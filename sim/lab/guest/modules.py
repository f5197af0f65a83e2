#!/usr/bin/python3
# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""modprobe, rmmod, insmod, lsmod, modinfo and uname of a simulated host; which one is decided by the name it is run as.

Questions (dependencies, configuration, module files) go to the real kmod, told which kernel this host runs. Only
loading and unloading is pretended: it changes the view instead of a kernel.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import view

KMOD = "/usr/bin/kmod"
CONTROL = "/usr/local/sbin/gpufleet-sim"
QUESTIONS = {"-c", "--showconfig", "-D", "--show-depends", "-R", "--resolve-alias", "-n", "--dry-run", "--show", "-V"}
QUESTIONS |= {"--version", "-h", "--help", "--show-modversions", "--dump-modversions"}


class Refused(Exception):
    """What the real tool would print before it exits with 1."""


def release():
    return Path("/proc/sys/kernel/osrelease").read_text().strip()


def normal(name):
    return name.replace("-", "_")


def kmod(*argv):
    """Ask the real tool `argv[0]`; a failure is passed on."""
    done = subprocess.run(argv, executable=KMOD, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr.rstrip("\n") or f"{argv[0]} failed")
    return done.stdout


def field(path, name):
    return kmod("modinfo", "-F", name, path).strip().split("\n")[0]


def insert(path, options, program):
    """Load the module file `path`, as init_module(2) and the module's own start-up would."""
    name = normal(field(path, "name") or Path(path).name.split(".")[0])
    loaded = view.modules()
    problem = None
    if name in loaded:
        problem = "File exists"
    elif field(path, "vermagic").split(" ")[0] != release():
        problem = "Exec format error"
    elif name == "nvidia" and (view.gpu_driver(loaded) or not view.machine()["gpus"]):
        problem = "No such device"
    uses = [normal(used) for used in field(path, "depends").split(",") if used]
    if not problem and not all(used in loaded for used in uses):
        problem = "Unknown symbol in module, or unknown parameter (see dmesg)"
    if problem:
        quoted = f"'{normal(name)}'" if program == "modprobe" else f"module {path}"
        raise Refused(f"{program}: ERROR: could not insert {quoted}: {problem}")
    flavour = "proprietary" if field(path, "license") == "NVIDIA" else "open"
    version = field(path, "version")
    loaded[name] = {"path": path, "version": version, "options": options, "uses": uses, "flavour": flavour}
    if name == "nvidia" and os.path.exists(CONTROL):
        subprocess.run([CONTROL, "load", version, flavour], check=True, stdout=subprocess.DEVNULL)
    view.save(loaded)


def remove(name, program):
    """Unload one module, unless something holds it."""
    loaded = view.modules()
    if name not in loaded:
        raise Refused(f"{program}: ERROR: Module {name} is not currently loaded")
    held = view.holders(name, loaded)
    if held:
        raise Refused(f"{program}: ERROR: Module {name} is in use by: {' '.join(held)}")
    if view.users(name):
        raise Refused(f"{program}: ERROR: Module {name} is in use")
    if name == "nvidia" and os.path.exists(CONTROL):
        subprocess.run([CONTROL, "unload"], check=True, stdout=subprocess.DEVNULL)
    del loaded[name]
    view.save(loaded)


def load(names, options, blacklist, quiet=False):
    """modprobe: what the real one would load, in its order."""
    flags = ["--use-blacklist"] if blacklist else []
    for name in names:
        try:
            steps = kmod("modprobe", "-S", release(), *flags, "--show-depends", name, *options).splitlines()
        except Refused:
            if quiet:
                continue
            raise
        follow(steps)


def follow(steps):
    """Do what `modprobe --show-depends` printed."""
    for step in steps:
        kind, _, rest = step.strip().partition(" ")
        if kind == "install":
            done = subprocess.run(["/bin/sh", "-c", rest], check=False)
            if done.returncode:
                raise Refused(f"modprobe: ERROR: Error running install command '{rest}'")
        elif kind == "insmod":
            path, *given = rest.split()
            if normal(Path(path).name.split(".")[0]) not in view.modules():
                insert(path, given, "modprobe")


def unload(names, quiet):
    """modprobe -r: the modules, then what they alone had used."""
    for name in map(normal, names):
        loaded = view.modules()
        if name not in loaded:
            if not quiet:
                kmod("modprobe", "-S", release(), "--show-depends", name)
            continue
        uses = loaded[name]["uses"]
        remove(name, "modprobe")
        for used in uses:
            if not view.holders(used, view.modules()) and not view.users(used):
                unload([used], quiet=True)


def modprobe(arguments):
    options = [word for word in arguments if word.startswith("-")]
    words = [word for word in arguments if not word.startswith("-")]
    letters = "".join(word[1:] for word in options if not word.startswith("--"))
    if QUESTIONS & set(options) or "S" in letters or any(word.startswith("--set-version") for word in options):
        version = [] if "S" in letters or "--set-version" in " ".join(options) else ["-S", release()]
        os.execv(KMOD, ["modprobe", *version, *arguments])
    quiet = "q" in letters or "--quiet" in options
    if "r" in letters or "--remove" in options:
        unload(words, quiet)
    elif "a" in letters or "--all" in options:
        load(words, [], "b" in letters or "--use-blacklist" in options, quiet)
    else:
        load(words[:1], words[1:], "b" in letters or "--use-blacklist" in options, quiet)


def insmod(arguments):
    path, *options = [word for word in arguments if not word.startswith("-")]
    if not os.path.exists(path):
        raise Refused(f"insmod: ERROR: could not load module {path}: No such file or directory")
    insert(os.path.realpath(path), options, "insmod")


def rmmod(arguments):
    for word in arguments:
        if not word.startswith("-"):
            remove(normal(word), "rmmod")


def lsmod(arguments):
    loaded = view.modules()
    print(f"{'Module':24}{'Size':>6}  Used by")
    for name in reversed(list(loaded)):
        held = view.holders(name, loaded)
        print(f"{name:24}{16384:>6}  {len(held) + view.users(name)} {','.join(held)}".rstrip())


def modinfo(arguments):
    given = any(word in ("-k", "--set-version", "-V", "--version", "-h", "--help") for word in arguments)
    os.execv(KMOD, ["modinfo", *([] if given else ["-k", release()]), *arguments])


def depmod(arguments):
    """The real depmod indexes the kernel it runs on unless told: it is told."""
    named = any(word[:1].isdigit() for word in arguments)
    os.execv(KMOD, ["depmod", *arguments, *([] if named else [release()])])


def uname(arguments):
    """The real uname, with the release of the simulated kernel put in place of the real one's."""
    done = subprocess.run(["/usr/bin/uname", *arguments], capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout.replace(os.uname().release, release()))
    sys.stderr.write(done.stderr)
    return done.returncode


TOOLS = {tool.__name__: tool for tool in (modprobe, insmod, rmmod, lsmod, modinfo, depmod, uname)}


def main():
    tool = os.path.basename(sys.argv[0])
    if tool == "uname":
        return uname(sys.argv[1:])
    if tool in ("modprobe", "insmod", "rmmod") and os.geteuid() == 0:
        view.STATE.parent.mkdir(parents=True, exist_ok=True)
        with open(view.STATE.parent / "modules.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                TOOLS[tool](sys.argv[1:])
            except Refused as refusal:
                print(refusal, file=sys.stderr)
                return 1
            finally:
                view.refresh()
        return 0
    if tool in ("insmod", "rmmod"):
        print(f"{tool}: ERROR: Operation not permitted", file=sys.stderr)
        return 1
    try:
        TOOLS[tool](sys.argv[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
