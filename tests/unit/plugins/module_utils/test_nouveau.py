# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nouveau concern against literal trees. A runner that changes the tree plays the image tools."""

import json
import os
import shutil

import pytest

from ansible_collections.gpufleet.metal.plugins.module_utils import _host, _initramfs, _nouveau
from ansible_collections.gpufleet.metal.plugins.module_utils._concern import ConcernError, validated

OLD, NEW = "6.1.0-18-amd64", "6.1.0-25-amd64"
CONF = _nouveau.MODPROBE_FILE


class Machine:
    """A tree with kernels and images, and the commands that work on them. ``ran`` lists what was run."""

    def __init__(self, root, dracut=False, releases=(OLD, NEW)):
        self.root = str(root)
        self.dracut = dracut
        self.ran = []
        self.answers = {}
        self.stale_builds = False
        self.after_command = None
        self.put("/proc/sys/kernel/osrelease", releases[0] + "\n")
        self.put("/sys/module/ext4/refcnt", "1\n")
        self.put("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 quiet\n")
        self.put("/usr/bin/dracut" if dracut else "/usr/sbin/mkinitramfs", "")
        for release in releases:
            self.put(f"/lib/modules/{release}/kernel/drivers/gpu/drm/nouveau/nouveau.ko", "")
            self.put("/boot/vmlinuz-" + release, "")
            self.image(self.image_path(release), release, ["nouveau"])

    def image_path(self, release):
        return ("/boot/initramfs-%s.img" if self.dracut else "/boot/initrd.img-%s") % release

    def real(self, path):
        return self.root + path

    def put(self, path, text):
        os.makedirs(os.path.dirname(self.real(path)), exist_ok=True)
        with open(self.real(path), "w", encoding="utf-8") as handle:
            handle.write(text)

    def text(self, path):
        with open(self.real(path), encoding="utf-8") as handle:
            return handle.read()

    def image(self, path, release, modules):
        """An image is its own listing."""
        lines = ["init"] + [f"usr/lib/modules/{release}/kernel/drivers/gpu/{module}.ko.xz" for module in modules]
        folder = self.real("/etc/modprobe.d")
        lines += ["etc/modprobe.d/" + name for name in (sorted(os.listdir(folder)) if os.path.isdir(folder) else [])]
        self.put(path, "\n".join(lines) + "\n")

    def build(self, path, release):
        if self.stale_builds:
            return
        omitted = os.path.exists(self.real(_nouveau.DRACUT_FILE))
        os.path.exists(self.real(path)) and os.unlink(self.real(path))
        self.image(path, release, [] if omitted else ["nouveau"])

    def run(self, argv, timeout, env):
        self.ran.append(argv)
        if tuple(argv) in self.answers:
            rc, out = self.answers[tuple(argv)]
            return _host.Result(argv, rc, out, out if rc else "")
        tool = argv[0]
        if tool in ("lsinitramfs", "lsinitrd"):
            return _host.Result(argv, 0, self.text(argv[1]))
        if tool == "update-initramfs":
            self.build(self.image_path(argv[3]), argv[3])
        elif tool == "dracut":
            self.build(argv[2], argv[3])
        elif tool == "kdumpctl":
            self.build(f"/boot/initramfs-{OLD}kdump.img", OLD)
        elif tool == "systemctl":
            pass
        elif tool == "/etc/kernel/postinst.d/kdump-tools":
            self.build("/var/lib/kdump/initrd.img-" + argv[1], argv[1])
        elif tool == "ln":
            os.path.exists(self.real(argv[3])) and os.unlink(self.real(argv[3]))
            os.link(self.real(argv[2]), self.real(argv[3]))
        elif tool == "cp":
            self.put(argv[3], self.text(argv[2]))
        elif tool == "mv":
            os.replace(self.real(argv[2]), self.real(argv[3]))
        else:
            raise AssertionError(f"unrecorded command: {argv!r}")
        if self.after_command:
            self.after_command()
        return _host.Result(argv, 0)

    def host(self):
        return _host.Host(root=self.root, runner=self.run)

    def inspect(self, **desired):
        concern = _nouveau.Nouveau()
        return concern.inspect(self.host(), validated(concern, desired))

    def converge(self, **desired):
        concern = _nouveau.Nouveau()
        host = self.host()
        document = validated(concern, desired)
        state, difference = concern.inspect(host, document)
        concern.apply(host, document, state, difference)

    def builds(self):
        return [
            argv for argv in self.ran if argv[0] in ("update-initramfs", "dracut", "/etc/kernel/postinst.d/kdump-tools")
        ]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def whats(difference):
    return [item["what"] for item in difference.items]


def test_virgin_host_is_planned_without_any_change(machine):
    before = sorted(os.walk(machine.root))
    state, difference = machine.inspect()
    assert whats(difference) == [CONF, "/boot/initrd.img-" + NEW, "/boot/initrd.img-" + OLD]
    assert sorted(os.walk(machine.root)) == before
    assert {argv[0] for argv in machine.ran} == {"lsinitramfs"}


def test_A1_blacklist_on_disk_does_not_count_when_the_image_was_never_rebuilt(machine):
    machine.put(CONF, _nouveau.modprobe_text())
    _state, difference = machine.inspect()
    assert whats(difference) == ["/boot/initrd.img-" + NEW, "/boot/initrd.img-" + OLD]
    assert "without the present blacklist" in difference.items[0]["why"]


def test_A1_nova_core_in_the_image_counts_as_nouveau_does(machine):
    machine.converge()
    os.unlink(machine.real(CONF))
    machine.image("/boot/initrd.img-" + NEW, NEW, ["nova-core"])
    machine.put(CONF, _nouveau.modprobe_text())
    _state, difference = machine.inspect()
    assert "nova_core" in [item["why"] for item in difference.items if item["what"] == "/boot/initrd.img-" + NEW][0]


def test_A1_blacklist_names_both_drivers_and_modesetting():
    lines = _nouveau.modprobe_text().splitlines()[1:]
    assert lines[-3:] == ["blacklist nouveau", "blacklist nova_core", "options nouveau modeset=0"]


def test_A2_image_with_an_older_blacklist_of_the_same_name_is_stale(machine):
    machine.put(CONF, "blacklist nouveau\n")
    for release in (OLD, NEW):
        machine.image("/boot/initrd.img-" + release, release, ["nouveau"])
    machine.put(CONF, _nouveau.modprobe_text())
    newer = os.stat(machine.real("/boot/initrd.img-" + OLD)).st_mtime + 10
    os.utime(machine.real(CONF), (newer, newer))
    _state, difference = machine.inspect()
    assert whats(difference) == ["/boot/initrd.img-" + NEW, "/boot/initrd.img-" + OLD]


def test_A2_interrupted_run_is_continued(machine):
    machine.converge()
    machine.put(CONF, "")
    os.unlink(machine.real(CONF))
    machine.image("/boot/initrd.img-" + NEW, NEW, ["nouveau"])  # as the kernel package's hook would have left it
    machine.converge()
    assert machine.inspect()[1].status == "clean"


def test_A4_dracut_value_is_padded():
    value = _nouveau.dracut_text().splitlines()[-1].split("=", 1)[1].strip('"')
    assert value.startswith(" ") and value.endswith(" ")
    assert value.split() == ["nouveau", "nova_core"]
    assert "omit_dracutmodules" not in _nouveau.dracut_text()


def test_A5_crash_kernel_image_is_rebuilt_too(machine):
    machine.image("/var/lib/kdump/initrd.img-" + OLD, OLD, ["nouveau"])
    machine.converge()
    assert ["/etc/kernel/postinst.d/kdump-tools", OLD] in machine.builds()
    assert machine.inspect()[1].status == "clean"


def test_A5_crash_kernel_of_enterprise_linux_is_rebuilt_and_loaded_again(tmp_path):
    machine = Machine(tmp_path, dracut=True)
    machine.put("/usr/lib/systemd/system/kdump.service", "")
    machine.image(f"/boot/initramfs-{OLD}kdump.img", OLD, ["nouveau"])
    machine.converge()
    assert ["kdumpctl", "rebuild"] in machine.ran
    assert machine.ran[-1] == ["systemctl", "try-restart", "kdump.service"]
    assert machine.inspect()[1].status == "clean"


@pytest.mark.parametrize("dracut", [False, True])
def test_A6_the_tool_that_is_installed_builds_the_image(tmp_path, dracut):
    machine = Machine(tmp_path, dracut=dracut)
    machine.converge()
    assert {argv[0] for argv in machine.builds()} == {"dracut" if dracut else "update-initramfs"}
    assert os.path.exists(machine.real(_nouveau.DRACUT_FILE)) is dracut
    assert machine.inspect()[1].status == "clean"


def test_A7_every_installed_kernel_is_rebuilt_not_only_the_running_one(machine):
    machine.converge()
    assert machine.builds() == [["update-initramfs", "-u", "-k", release] for release in (NEW, OLD)]


def test_missing_image_is_created(machine):
    os.unlink(machine.real("/boot/initrd.img-" + NEW))
    machine.converge()
    assert ["update-initramfs", "-c", "-k", NEW] in machine.builds()


def test_A9_full_boot_refuses_before_any_change(machine, monkeypatch):
    monkeypatch.setattr(_host.Host, "free_bytes", lambda self, path: 1024)
    with pytest.raises(ConcernError, match="/boot has 0 MiB free.*No image was changed"):
        machine.converge()
    assert not os.path.exists(machine.real(CONF))
    assert machine.builds() == []


def test_A9_space_counts_every_image_and_the_build_folder():
    images = [{"path": "/boot/" + name, "size": size, "kind": "boot"} for name, size in (("a", 100 << 20), ("b", None))]
    needed = _initramfs.space_needed(images, images)
    assert needed["/boot"] == (220 << 20) + _initramfs.SPACE_MARGIN
    assert needed["/var/tmp"] == (400 << 20) + _initramfs.SPACE_MARGIN


def test_A9_failed_build_puts_everything_back(machine):
    before = {release: machine.text("/boot/initrd.img-" + release) for release in (OLD, NEW)}
    machine.answers[("update-initramfs", "-u", "-k", OLD)] = (
        1,
        "zstd: error 25 : Write error : No space left on device",
    )
    with pytest.raises(ConcernError, match="No space left on device"):
        machine.converge()
    assert {release: machine.text("/boot/initrd.img-" + release) for release in (OLD, NEW)} == before
    assert not os.path.exists(machine.real(CONF))
    assert [name for name in os.listdir(machine.real("/boot")) if "gpufleet" in name] == []


def test_rc_0_proves_nothing_the_new_image_is_looked_into(machine):
    machine.stale_builds = True
    with pytest.raises(ConcernError, match="it still loads nouveau.*update_initramfs=no"):
        machine.converge()
    assert not os.path.exists(machine.real(CONF))


def test_second_run_is_clean_and_looks_into_no_image(machine):
    machine.converge()
    machine.ran.clear()
    _state, difference = machine.inspect()
    assert difference.status == "clean"
    assert machine.ran == []


def test_record_is_not_trusted_for_an_image_that_changed(machine):
    machine.converge()
    os.unlink(machine.real(CONF))
    machine.image("/boot/initrd.img-" + NEW, NEW, ["nouveau"])
    machine.put(CONF, _nouveau.modprobe_text())
    assert "/boot/initrd.img-" + NEW in whats(machine.inspect()[1])


def test_damaged_record_only_costs_a_look(machine):
    machine.converge()
    machine.put(_initramfs.RECORD, "{ not json")
    assert machine.inspect()[1].status == "clean"


def test_plan_writes_no_record(machine):
    machine.inspect()
    assert not os.path.exists(machine.real(_initramfs.RECORD))


@pytest.mark.parametrize("undo", [CONF, "/boot/initrd.img-" + NEW])
def test_what_is_undone_by_hand_is_named_and_repaired(machine, undo):
    machine.converge()
    os.unlink(machine.real(undo))
    assert undo in whats(machine.inspect()[1])
    machine.converge()
    assert machine.inspect()[1].status == "clean"


def test_modules_that_the_host_does_not_show_are_unknown(machine):
    machine.converge()
    shutil.rmtree(machine.real("/sys/module"))
    _state, difference = machine.inspect()
    assert [entry["what"] for entry in difference.unknown] == ["nouveau", "nova_core"]


def test_image_that_cannot_be_looked_into_is_unknown(machine):
    machine.answers[("lsinitramfs", "/boot/initrd.img-" + NEW)] = (2, "cpio: premature end of archive")
    _state, difference = machine.inspect()
    assert [entry["what"] for entry in difference.unknown] == ["/boot/initrd.img-" + NEW]
    assert "premature end of archive" in difference.unknown[0]["why"]


def test_loaded_nouveau_is_pending_once_it_is_blocked(machine):
    machine.converge()
    machine.put("/sys/module/nouveau/refcnt", "3\n")
    _state, difference = machine.inspect()
    assert difference.status == "pending"
    assert difference.pending[0]["what"] == "nouveau"


def test_A14_refused_unload_is_not_an_error(machine):
    machine.put("/sys/module/nouveau/refcnt", "0\n")
    machine.answers[("modprobe", "-r", "nouveau")] = (1, "modprobe: FATAL: Module nouveau is in use.")
    machine.converge()
    assert ["modprobe", "-r", "nouveau"] in machine.ran
    assert machine.inspect()[1].status == "pending"


def test_A14_a_nouveau_in_use_is_left_alone(machine):
    machine.put("/sys/module/nouveau/refcnt", "1\n")
    machine.converge()
    assert [argv for argv in machine.ran if argv[0] == "modprobe"] == []


def test_kernel_without_nouveau_still_gets_the_blacklist(tmp_path):
    machine = Machine(tmp_path)
    for release in (OLD, NEW):
        machine.image("/boot/initrd.img-" + release, release, [])
    assert whats(machine.inspect()[1]) == [CONF]


def test_withdraw_removes_only_ours_and_rebuilds(machine):
    machine.put("/etc/modprobe.d/local.conf", "blacklist nouveau\n")
    machine.converge()
    machine.ran.clear()
    actions = _nouveau.withdraw(machine.host())
    assert actions[0] == "Remove " + CONF
    assert len(machine.builds()) == 2
    assert os.path.exists(machine.real("/etc/modprobe.d/local.conf"))
    assert machine.inspect(state="absent")[1].status == "clean"
    assert _nouveau.withdraw(machine.host()) == []


def test_withdraw_with_dracut_rebuilds_what_left_the_driver_out(tmp_path):
    machine = Machine(tmp_path, dracut=True)
    machine.converge()
    machine.ran.clear()
    _nouveau.withdraw(machine.host())
    assert len(machine.builds()) == 2
    assert "nouveau.ko" in machine.text(f"/boot/initramfs-{OLD}.img")


def test_previous_image_of_an_interrupted_run_is_cleared_away(machine):
    machine.converge()
    kept = f"/boot/initrd.img-{OLD}{_initramfs.PREVIOUS_SUFFIX}"
    machine.put(kept, "old")
    assert whats(machine.inspect()[1]) == [kept]
    machine.converge()
    assert not os.path.exists(machine.real(kept))


def test_an_image_that_an_interrupted_run_took_away_comes_back(machine):
    machine.converge()
    image = f"/var/lib/kdump/initrd.img-{OLD}"
    machine.image(image + _initramfs.PREVIOUS_SUFFIX, OLD, [])
    machine.converge()
    assert os.path.exists(machine.real(image))
    assert machine.inspect()[1].status == "clean"


def test_record_names_what_each_image_holds(machine):
    machine.converge()
    record = json.loads(machine.text(_initramfs.RECORD))
    assert record["/boot/initrd.img-" + OLD]["modules"] == ["nouveau"]
    assert record["/boot/initrd.img-" + OLD]["configuration"] == ["gpufleet-nouveau.conf"]


def test_each_image_is_looked_into_once_before_and_once_after_its_rebuild(machine):
    machine.converge()
    looks = [argv for argv in machine.ran if argv[0] == "lsinitramfs"]
    assert len(looks) == 4


def test_an_image_that_needed_no_rebuild_is_remembered_too(machine):
    for release in (OLD, NEW):
        machine.image("/boot/initrd.img-" + release, release, [])
    machine.converge()
    machine.ran.clear()
    machine.inspect()
    assert machine.ran == []


@pytest.mark.parametrize("dracut", [False, True])
def test_a_power_cut_after_any_command_is_made_good_by_the_next_run(tmp_path, dracut):
    """The tree as it is after each command is what a power cut leaves; none of the cleaning up has happened there."""
    machine = Machine(tmp_path / "host", dracut=dracut)
    machine.image(f"/boot/initramfs-{OLD}kdump.img" if dracut else f"/var/lib/kdump/initrd.img-{OLD}", OLD, ["nouveau"])
    cuts = []

    def keep():
        cuts.append(tmp_path / str(len(cuts)))
        shutil.copytree(machine.root, cuts[-1])

    machine.after_command = keep
    machine.converge()
    assert len(cuts) >= 6
    for cut in cuts:
        machine.root, machine.after_command = str(cut), None
        machine.converge()
        state, difference = machine.inspect()
        assert difference.status == "clean"
        assert list(cut.rglob("*.gpufleet-*")) == []
        assert all(not _nouveau.loads(image, state["blacklist_written_ns"]) for image in state["initramfs"]["images"])


def test_a_power_cut_leaves_a_record_of_how_to_go_on_and_back(machine):
    machine.converge()
    assert "site.yml" in machine.text(CONF)
    assert "nouveau_state: absent" in machine.text(CONF)


def no_hard_links(machine):
    for release in (OLD, NEW):
        path = "/boot/initrd.img-" + release
        machine.answers[("ln", "-f", path, path + ".gpufleet-previous")] = (1, "Operation not permitted")


def test_A9_half_a_copy_never_takes_the_place_of_a_whole_image(machine):
    """/boot on a file system without hard links, and too full for the copy."""
    no_hard_links(machine)
    path = f"/boot/initrd.img-{OLD}"
    before = machine.text(path)
    machine.answers[("cp", "-a", path, path + ".gpufleet-new")] = (1, "No space left on device")
    machine.put(path + ".gpufleet-new", "half")
    with pytest.raises(ConcernError, match="No space left on device"):
        machine.converge()
    assert machine.text(path) == before
    assert [name for name in os.listdir(machine.real("/boot")) if "gpufleet" in name] == []


def test_A9_images_are_copied_where_no_hard_link_can_be(machine):
    no_hard_links(machine)
    machine.converge()
    assert machine.inspect()[1].status == "clean"
    assert [name for name in os.listdir(machine.real("/boot")) if "gpufleet" in name] == []


def test_A9_an_image_that_cannot_be_put_back_is_told_with_the_remedy(machine):
    path = f"/boot/initrd.img-{NEW}"
    machine.stale_builds = True
    no_hard_links(machine)
    machine.answers[("mv", "-f", path + ".gpufleet-previous", path)] = (1, "Read-only file system")
    with pytest.raises(ConcernError, match="could NOT be put back.*Read-only.*Do not reboot"):
        machine.converge()
    assert os.path.exists(machine.real(path + ".gpufleet-previous"))


def test_A5_a_crash_kernel_that_is_not_loaded_anew_is_told(machine):
    machine.put("/usr/lib/systemd/system/kdump-tools.service", "")
    machine.image(f"/var/lib/kdump/initrd.img-{OLD}", OLD, ["nouveau"])
    machine.answers[("systemctl", "try-restart", "kdump-tools.service")] = (1, "Job failed")
    with pytest.raises(ConcernError, match="crash kernel was not loaded anew.*systemctl restart kdump-tools.service"):
        machine.converge()
    assert machine.inspect()[1].status == "clean"


def test_withdraw_does_not_claim_an_image_that_it_could_not_look_into(machine):
    machine.converge()
    os.unlink(machine.real(_initramfs.RECORD))
    machine.answers[("lsinitramfs", f"/boot/initrd.img-{NEW}")] = (1, "cpio: premature end")
    with pytest.raises(ConcernError, match=f"may still carry it: /boot/initrd.img-{NEW}"):
        _nouveau.withdraw(machine.host())


def test_A2_a_damaged_image_of_an_interrupted_run_is_replaced_by_the_kept_one(machine):
    path = f"/boot/initrd.img-{OLD}"
    machine.put(path + ".gpufleet-previous", machine.text(path))
    machine.put(path, "")  # an empty listing: it cannot be looked into
    machine.converge()
    assert machine.inspect()[1].status == "clean"


def proof(machine, **document):
    concern = _nouveau.Nouveau()
    return concern.prove(machine.host(), validated(concern, document))


def test_A1_the_proof_looks_into_each_image_although_its_record_is_good(machine):
    machine.converge()
    machine.ran.clear()
    [check] = proof(machine)
    assert (check["id"], check["result"]) == ("initramfs", "pass")
    assert sorted(argv[1] for argv in machine.ran) == ["/boot/initrd.img-" + OLD, "/boot/initrd.img-" + NEW]


def test_A1_the_proof_does_not_believe_a_record_that_lies(machine):
    machine.image("/boot/initrd.img-" + OLD, OLD, ["nouveau"])
    machine.converge()
    machine.answers[("lsinitramfs", "/boot/initrd.img-" + OLD)] = (0, f"lib/modules/{OLD}/kernel/nouveau.ko\n")
    assert machine.inspect()[1].status == "clean"
    [check] = proof(machine)
    assert check["result"] == "fail" and OLD in check["evidence"] and NEW not in check["evidence"]


def test_the_proof_of_an_image_that_cannot_be_read_is_not_measured(machine):
    machine.converge()
    machine.answers[("lsinitramfs", "/boot/initrd.img-" + OLD)] = (127, "No such file or directory")
    assert proof(machine)[0]["result"] == "not_measured"


def test_the_proof_of_a_host_without_images_is_not_measured(tmp_path):
    assert _nouveau.Nouveau().prove(_host.Host(root=str(tmp_path)), {"state": "present"})[0]["result"] == "not_measured"


def test_there_is_no_proof_of_a_block_that_is_not_wanted(machine):
    assert proof(machine, state="absent") == []
