# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the child asks, in order; and how the parent puts the answers together."""

from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import binding as _binding
from ansible_collections.gpufleet.metal.plugins.module_utils._nvml import fields, links, mig, processes, values

SYSTEM_FIELDS = (
    ("driver_version", lambda nv: values.text(nv.nvmlSystemGetDriverVersion())),
    ("nvml_version", lambda nv: values.text(nv.nvmlSystemGetNVMLVersion())),
    ("cuda", lambda nv: _cuda(nv.nvmlSystemGetCudaDriverVersion_v2())),
    ("driver_branch", lambda nv: values.text(nv.nvmlSystemGetDriverBranch().branch)),
    ("excluded_gpus", lambda nv: nv.nvmlGetExcludedDeviceCount()),
)
#: After so many answers in a row that say "this GPU is lost", the rest is not asked.
_LOST_ANSWERS = 3
#: Codes that say that there is nothing to be had, not that something went wrong.
_UNSUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")


def _cuda(number):
    return {"major": number // 1000, "minor": number % 1000 // 10}


def gpu_fields(subsets):
    """The fields asked of every GPU, for these subsets: list of (dotted name, reader)."""
    chosen = list(fields.IDENTITY)
    if "nvml" in subsets:
        chosen += fields.FIELDS
    if "nvml" in subsets or "mig" in subsets:
        chosen += mig.MODE_FIELDS
    if "topology" in subsets:
        chosen.append(("fabric", links.fabric))
    if "processes" in subsets:
        chosen += processes.FIELDS
    return chosen


def names(subsets):
    """Dotted names of everything that a GPU's facts have, asked or not."""
    found = []
    for name, reader in gpu_fields(subsets):
        found += [f"{name}.{key}" for key in reader.keys] if isinstance(reader, fields.Group) else [name]
    if "topology" in subsets:
        found += ["nvlink.switch_links", "nvlink.links"]
    if "mig" in subsets:
        found += [name for name, _reader in mig.FIELDS + mig.ENABLED_FIELDS]
    return found


class Asker:
    """The child's side: asks one field at a time and says beforehand which."""

    def __init__(self, emit, nv):
        self._emit = emit
        self._nv = nv
        self.lost = 0

    def ask(self, gpu, name, read):
        """Ask, emit the answer or the error, and return the answer (None when there is none)."""
        nv = self._nv
        self._emit("ask", gpu, name)
        try:
            value = read()
        except nv.NVMLError as error:
            self.lost = self.lost + 1 if error.value == nv.NVML_ERROR_GPU_IS_LOST else 0
            if error.value in [getattr(nv, code) for code in _UNSUPPORTED]:
                self._emit("unsupported", gpu, name)
            else:
                self._emit("error", gpu, name, error.value, str(error))
        except (fields.NotSupported, AttributeError):  # the second: a binding that is older than the field
            self._emit("unsupported", gpu, name)
        # bindings differ in signatures and a driver may answer anything; one field must not take the others along
        except Exception as error:
            self._emit("error", gpu, name, None, f"{type(error).__name__}: {error}")
        else:
            self.lost = 0
            self._emit("value", gpu, name, value)
            return value
        return None


def work(host, option, library, subsets, done):
    """The child's work, as a function of ``emit``.

    :param done: indexes of GPUs that are not to be asked again, and ``"system"`` once that is read.
    """

    def run(emit):
        try:
            nv, origin = _binding.load(host, option, library)
        except _binding.BindingError as error:
            emit("unavailable", None, str(error))
            return
        except OSError as error:
            emit("unavailable", 12, f"the NVML library cannot be loaded: {error}")
            return
        emit("binding", origin)
        try:
            nv.nvmlInit()
            count = nv.nvmlDeviceGetCount()
        except nv.NVMLError as error:
            emit("unavailable", error.value, str(error))
            return
        asker = Asker(emit, nv)
        if "system" not in done:
            _system(emit, asker, nv, count)
        handles = {}
        for index in range(count):
            if index not in done or "topology" in subsets:
                handles[index] = _gpu(emit, asker, nv, index, subsets, done)
        if "topology" in subsets:
            _topology(asker, nv, {index: gpu for index, gpu in handles.items() if gpu is not None}, done)

    return run


def _system(emit, asker, nv, count):
    emit("count", count)
    for name, read in SYSTEM_FIELDS:
        asker.ask(None, name, lambda read=read: read(nv))
    emit("done", "system")


def _gpu(emit, asker, nv, index, subsets, done):
    """Ask one GPU everything that is not known yet; its handle, or None when it cannot be used further."""
    if ("gave up", index) in done:
        return None
    asker.lost = 0
    handles = []
    asker.ask(index, "handle", lambda: handles.append(nv.nvmlDeviceGetHandleByIndex(index)))
    if index not in done:
        if handles:
            _ask_gpu(asker, nv, index, handles[0], subsets)
        emit("done", index)
    return handles[0] if handles and not asker.lost else None


def _ask_gpu(asker, nv, index, gpu, subsets):
    """One GPU's fields, then what depends on their answers: MIG instances and the single NVLinks."""
    answers = {}

    def ask_all(wanted):
        for name, read in wanted:
            lost = asker.lost >= _LOST_ANSWERS
            answers[name] = None if lost else asker.ask(index, name, lambda read=read: read(nv, gpu))

    ask_all(gpu_fields(subsets))
    if "mig" in subsets and answers["mig"]:
        ask_all(mig.FIELDS + (mig.ENABLED_FIELDS if answers["mig"]["enabled"] else mig.DISABLED_FIELDS))
    if "topology" in subsets:
        ask_all((("nvlink.switch_links", links.switch_link_count), ("nvlink.link_count", links.link_count)))
        ask_all(
            (f"nvlink.links.{link}", lambda nv, gpu, link=link: links.link(nv, gpu, link))
            for link in range(answers.get("nvlink.link_count") or 0)
        )


def _topology(asker, nv, handles, done):
    """One row a GPU: its relation to every GPU after it."""
    for index, handle in handles.items():
        if ("row", index) not in done:
            others = [other for other in handles if other > index]
            asker.ask(
                index,
                "topology",
                lambda handle=handle, others=others: [
                    [other, links.relation(nv, handle, handles[other])] for other in others
                ],
            )
