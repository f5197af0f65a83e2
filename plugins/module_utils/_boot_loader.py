# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens on the kernel command line that this collection manages, and nothing else of the boot loader.

Two ways exist. Debian's GRUB reads drop-ins after the user's ``/etc/default/grub``; ours appends and never edits that.
Enterprise Linux has no drop-ins: ``grubby`` edits the boot entries one token at a time. Tokens are compared as a set
with what the generated entries hold, so order and duplicates of other people's tokens never matter.
"""

import re

from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError

GRUB_DEFAULTS = "/etc/default/grub"
GRUB_DROP_INS = "/etc/default/grub.d"
GRUB_CONFIGURATION = "/boot/grub/grub.cfg"
BLS_ENTRIES = "/boot/loader/entries/*.conf"
GRUB_ENVIRONMENT = "/boot/grub2/grubenv"
TIMEOUT = 300

_GENERATED = re.compile(r"### BEGIN /etc/grub\.d/10_linux ###(.*?)### END /etc/grub\.d/10_linux ###", re.DOTALL)
_LINUX_LINE = re.compile(r"^\s*linux(?:16|efi)?\s+\S+(.*)$", re.MULTILINE)
#: An assignment that throws away what earlier files put into the variable; anchored: ``..._DEFAULT`` is another one.
_OVERRIDE = re.compile(r"^\s*(?:export\s+)?GRUB_CMDLINE_LINUX=(?!.*\$\{?GRUB_CMDLINE_LINUX\b)", re.MULTILINE)


def drop_in(name):
    return "%s/99-gpufleet-%s.cfg" % (GRUB_DROP_INS, name)


def drop_in_text(tokens):
    return (
        "# Managed by gpufleet.metal. Appends to the kernel command line; your settings stay in /etc/default/grub.\n"
        'GRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX:-} %s"\n' % " ".join(tokens)
    )


def read(host, name):
    """How this host's kernel command line is made.

    :param name: whose drop-in to look at.
    :returns: ``{kind: grub|grubby|None, drop_in: text|None, entries: [[token, ...], ...] (one per boot entry),
        sources: [files that GRUB reads], overriding: [those read after our drop-in that replace the variable]}``.
    """
    if host.exists("/usr/sbin/grubby") or host.exists("/usr/bin/grubby"):
        return {"kind": "grubby", "drop_in": None, "entries": _bls_entries(host), "sources": [], "overriding": []}
    if host.exists("/usr/sbin/grub-mkconfig") and host.exists(GRUB_CONFIGURATION):
        drop_ins = host.glob(GRUB_DROP_INS + "/*.cfg")
        later = [path for path in drop_ins if path > drop_in(name)]
        return {
            "kind": "grub",
            "drop_in": host.read_text(drop_in(name)),
            "entries": _grub_entries(host.read_text(GRUB_CONFIGURATION) or ""),
            "sources": [GRUB_DEFAULTS] + drop_ins,
            "overriding": [path for path in later if _OVERRIDE.search(host.read_text(path) or "")],
        }
    return {"kind": None, "drop_in": None, "entries": [], "sources": [], "overriding": []}


def _grub_entries(text):
    """The tokens of each generated kernel entry; a user's own entries (40_custom) are not ours to judge."""
    return [sorted(set(line.split())) for section in _GENERATED.findall(text) for line in _LINUX_LINE.findall(section)]


def _bls_entries(host):
    environment = host.read_text(GRUB_ENVIRONMENT) or ""
    kernelopts = re.search(r"^kernelopts=(.*)$", environment, re.MULTILINE)
    entries = []
    for path in host.glob(BLS_ENTRIES):
        options = re.findall(r"^options\s+(.*)$", host.read_text(path) or "", re.MULTILINE)
        text = " ".join(options).replace("$kernelopts", kernelopts.group(1) if kernelopts else "")
        entries.append(sorted(set(text.split())))
    return entries


def missing(state, tokens):
    """The tokens that some boot entry lacks, sorted."""
    return sorted(
        token for token in tokens if any(token not in entry for entry in state["entries"]) or not state["entries"]
    )


def present(state, tokens):
    """The tokens that some boot entry holds, sorted."""
    return sorted(token for token in tokens if any(token in entry for entry in state["entries"]))


def apply(host, name, state, tokens, unwanted):
    """Put ``tokens`` on the command line of every boot entry and take ``unwanted`` off; proves it by re-reading.

    :param tokens: the managed tokens that are wanted, [] for none.
    :param unwanted: the managed tokens that must go.
    :raises ConcernError: the boot loader is not supported, a file that it reads is broken, or the result is not right.
    """
    if state["kind"] == "grubby":
        if tokens:
            _must(host, ["grubby", "--update-kernel=ALL", "--args=" + " ".join(tokens)])
        if unwanted:
            _must(host, ["grubby", "--update-kernel=ALL", "--remove-args=" + " ".join(unwanted)])
        _prove(host, name, tokens, unwanted)
    elif state["kind"] == "grub":
        for path in state["sources"]:
            if host.exists(path):
                _must(host, ["sh", "-n", path], remedy="Correct %s: GRUB cannot read it." % path)
        _put_drop_in(host, name, drop_in_text(tokens) if tokens else None)
        try:
            _must(host, ["grub-mkconfig", "-o", GRUB_CONFIGURATION])
            _prove(host, name, tokens, unwanted)
        except ConcernError as error:
            _put_drop_in(host, name, state["drop_in"])
            again = host.run(["grub-mkconfig", "-o", GRUB_CONFIGURATION], timeout=TIMEOUT, changes=True)
            if not again.ok:
                raise ConcernError(
                    "%s The previous settings are back, but the boot entries could NOT be generated from them: %s. "
                    "Look at %s before a reboot." % (error, again.summary(), GRUB_CONFIGURATION)
                ) from error
            raise
    else:
        raise ConcernError(
            "This host's boot loader is neither Debian's GRUB nor managed by grubby. "
            "Put '%s' on the kernel command line yourself and set nouveau_kernel_command_line: false."
            % " ".join(tokens)
        )


def _prove(host, name, tokens, unwanted):
    after = read(host, name)
    lacking, left = missing(after, tokens), present(after, unwanted)
    if lacking or left:
        raise ConcernError(
            "The boot entries were generated again, but they %s. %s"
            % (
                "lack " + " ".join(lacking) if lacking else "still hold " + " ".join(left),
                "These files replace GRUB_CMDLINE_LINUX after ours: %s. Make them append instead."
                % ", ".join(after["overriding"])
                if after["overriding"]
                else "Look for the token in %s." % GRUB_DEFAULTS,
            )
        )


def _put_drop_in(host, name, text):
    if text is None:
        host.remove(drop_in(name))
    else:
        host.write(drop_in(name), text)


def _must(host, argv, remedy="Correct what the tool complains about, then run again."):
    result = host.run(argv, timeout=TIMEOUT, changes=True)
    if not result.ok:
        raise ConcernError("%s. %s" % (result.summary(), remedy))
