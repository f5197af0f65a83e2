# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A law that cannot be broken proves nothing: each is shown a small tree that keeps it, and one that does not."""

import pytest

from tests.unit.repo import laws

HEADER = laws.LICENSE_LINE + "\n"
MODULE = (
    HEADER
    + '''
DOCUMENTATION = r"""
module: demo
options:
  state: {type: str, choices: [present, absent], default: present, description: [x]}
attributes: {check_mode: {}, diff_mode: {}, idempotent: {}}
"""
EXAMPLES = r"""
- name: Do it
  gpufleet.metal.demo:
    state: present
"""
RETURN = r"""
actions: {description: x, type: list, returned: success}
"""
'''
)
#: The smallest tree that keeps every law.
GOOD = {
    "roles/demo/README.md": (
        "# demo\n\n<!-- generated: variables -->\n| variable | type | default | meaning |\n|---|---|---|---|\n"
        "| `demo_state` | str | `present` | What. One of `present`, `absent`. |\n<!-- /generated: variables -->\n"
    ),
    "roles/demo/meta/main.yml": "dependencies: []\n",
    "roles/demo/meta/argument_specs.yml": (
        "argument_specs: {main: {options: {demo_state: "
        "{type: str, choices: [present, absent], default: present, description: What.}}}}\n"
    ),
    "roles/demo/defaults/main.yml": "demo_state: present\n",
    "roles/demo/vars/main.yml": '__demo_desired:\n  state: "{{ demo_state | default(omit) }}"\n',
    "roles/demo/tasks/main.yml": (
        "- name: Do it\n  gpufleet.metal.demo:\n    state: present\n  register: __demo_result\n"
    ),
    "roles/demo/tasks/desired.yml": "[]\n",
    "roles/gpu_assess/vars/main.yml": "__gpu_assess_documents: {demo: x}\n",
    "roles/gpu_assess/tasks/desired.yml": "- ansible.builtin.import_role:\n    name: gpufleet.metal.demo\n",
    "playbooks/site.yml": (
        "- hosts: all\n  tasks:\n    - ansible.builtin.include_role:\n        name: gpufleet.metal.demo\n"
    ),
    "plugins/modules/demo.py": MODULE,
    "plugins/module_utils/_demo.py": HEADER,
    "meta/runtime.yml": "action_groups: {gpu: [demo]}\n",
    "molecule/demo/molecule.yml": "---\n",
    "molecule/config.yml": "scenario: {test_sequence: [create, check, converge]}\n",
    "ansible.cfg": "[defaults]\ninject_facts_as_vars = false\n",
    "tests/testinfra/demo/test_demo.py": HEADER + "def test_it(host):\n    pass\n",
    "tests/unit/plugins/module_utils/test_demo.py": HEADER + "# _demo\n",
}
TASK = GOOD["roles/demo/tasks/main.yml"]
SPEC = GOOD["roles/demo/meta/argument_specs.yml"]
#: law -> the files that break it (None removes one) and a part of the message.
BROKEN = [
    (laws.every_role_is_complete, {"roles/demo/README.md": None}, "no README.md"),
    (laws.every_role_is_complete, {"molecule/demo/molecule.yml": None}, "no scenario"),
    (laws.defaults_equal_the_argument_specs, {"roles/demo/defaults/main.yml": "demo_state: absent\n"}, "'absent'"),
    (laws.defaults_equal_the_argument_specs, {"roles/demo/defaults/main.yml": None}, "none in defaults"),
    (laws.names_are_prefixed, {"roles/demo/vars/main.yml": "other: 1\n"}, "__demo_"),
    (laws.names_are_prefixed, {"roles/demo/tasks/main.yml": TASK.replace("__demo_result", "r")}, "sets r"),
    (
        laws.desired_documents_equal_the_module_options,
        {"roles/demo/vars/main.yml": '__demo_desired:\n  state: "{{ demo_state }}"\n'},
        "must be",
    ),
    (
        laws.desired_documents_equal_the_module_options,
        {"roles/demo/meta/argument_specs.yml": SPEC.replace("absent]", "gone]")},
        "choices is",
    ),
    (
        laws.desired_documents_equal_the_module_options,
        {"plugins/modules/demo.py": MODULE.replace("  state:", "  more: {type: str}\n  state:")},
        "option more",
    ),
    (laws.every_concern_is_assessed_and_in_site, {"playbooks/site.yml": "[]\n"}, "does not run it"),
    (laws.readmes_are_current, {"roles/demo/README.md": "# demo\n"}, "no block"),
    (laws.readmes_are_current, {"roles/demo/meta/argument_specs.yml": SPEC.replace("What.", "Why.")}, "out of date"),
    (laws.tasks_are_declarative, {"roles/demo/tasks/main.yml": TASK + "  ignore_errors: true\n"}, "ignores errors"),
    (
        laws.tasks_are_declarative,
        {"roles/demo/tasks/main.yml": "- block:\n    - name: Nested\n      ansible.builtin.shell: ls\n"},
        "uses a shell",
    ),
    (
        laws.tasks_are_declarative,
        {"roles/demo/tasks/main.yml": "- name: Run\n  ansible.builtin.command: ls\n"},
        "without changed_when",
    ),
    (laws.tasks_are_declarative, {"roles/demo/tasks/main.yml": TASK + "  become: true\n"}, "sets become"),
    (laws.tasks_keep_off_what_the_engine_does_badly, {"roles/demo/tasks/main.yml": TASK + "  async: 5\n"}, "async"),
    (
        laws.tasks_keep_off_what_the_engine_does_badly,
        {"roles/demo/tasks/main.yml": TASK + "  become_user: x\n"},
        "beco",
    ),
    (
        laws.tasks_keep_off_what_the_engine_does_badly,
        {"roles/demo/tasks/main.yml": "- name: Run\n  ansible.builtin.script: x.sh\n"},
        "script",
    ),
    (
        laws.tasks_keep_off_what_the_engine_does_badly,
        {"roles/demo/tasks/main.yml": "- name: Ask\n  ansible.builtin.command: ls\n  register: __demo_found\n"},
        "without check_mode",
    ),
    *(
        (laws.cuda_comes_as_a_toolkit_of_one_version, {path: text}, message)
        for path, text, message in (
            ("roles/demo/defaults/main.yml", "demo_packages: [cuda]\n", "names cuda;"),
            ("roles/demo/tasks/main.yml", "- ansible.builtin.apt: {name: 'gcc,cuda=12.6-1'}\n", "names cuda=12.6-1;"),
            ("playbooks/site.yml", "- ansible.builtin.package:\n    name: [make, cuda-12-6]\n", "names cuda-12-6;"),
            ("inventories/x/all.yml", "version_lock_extra_packages: [cuda-toolkit]\n", "names cuda-toolkit;"),
            ("plugins/module_utils/_demo.py", "PACKAGES = ['make', 'cuda']\n", "names cuda"),
            ("plugins/module_utils/_demo.py", "run(['apt-get', 'install', 'cuda-drivers'])\n", "names cuda-drivers"),
        )
    ),
    (
        laws.facts_are_no_variables,
        {"roles/demo/tasks/main.yml": TASK + "  when: ansible_distribution == 'Debian'\n"},
        "ansible_distribution",
    ),
    (laws.the_engine_is_strict, {"ansible.cfg": "[defaults]\n"}, "inject_facts_as_vars"),
    (laws.the_engine_is_strict, {"Makefile": "export ANSIBLE_ALLOW_BROKEN_CONDITIONALS := 1\n"}, "broken"),
    (
        laws.every_scenario_begins_in_check_mode,
        {"molecule/config.yml": "scenario: {test_sequence: [create, converge, check]}\n"},
        "no check before converge",
    ),
    (laws.python_starts_no_shell, {"plugins/module_utils/_demo.py": "import os\nos.system('ls')\n"}, "os.system"),
    (laws.python_starts_no_shell, {"plugins/module_utils/_demo.py": "run('ls', shell=True)\n"}, "starts a shell"),
    (laws.modules_are_documented, {"plugins/modules/demo.py": MODULE.replace("diff_mode: {}, ", "")}, "diff_mode"),
    (laws.modules_are_documented, {"plugins/modules/demo.py": MODULE.replace("    state: p", "    stat: p")}, "stat"),
    (laws.modules_are_documented, {"plugins/modules/demo.py": MODULE.replace("type: list, ", "")}, "no type"),
    (laws.the_action_group_lists_every_module, {"meta/runtime.yml": "action_groups: {gpu: []}\n"}, "lacks demo"),
    (laws.every_scenario_has_tests, {"tests/testinfra/demo/test_demo.py": HEADER}, "holds no test"),
    (laws.every_backend_has_unit_tests, {"tests/unit/plugins/module_utils/test_demo.py": HEADER}, "no unit test"),
    (laws.files_are_short, {"roles/demo/tasks/main.yml": TASK + "#\n" * 60}, "more than 60"),
    (laws.production_never_knows_the_test_bed, {"plugins/module_utils/_demo.py": "import sim.lab\n"}, "test bed"),
    (laws.python_files_state_their_license, {"plugins/module_utils/_demo.py": "x = 1\n"}, "licence"),
    (laws.nothing_depends_on_this_machine, {"requirements.lock": "--index-url https://example.com\n"}, "registry"),
]


@pytest.fixture
def tree(tmp_path):
    def make(changes=()):
        for name, text in (GOOD | dict(changes)).items():
            if text is not None:
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_a_good_tree_keeps_the_law(law, tree):
    root = tree()
    roles = [violation for violation in law(root) if not violation.startswith("gpu_assess:")]
    assert roles == []


@pytest.mark.parametrize(("law", "changes", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bad_tree_breaks_the_law(law, changes, message, tree):
    violations = list(law(tree(changes)))
    assert any(message in violation for violation in violations), violations


def test_every_law_is_shown_to_fail():
    assert {law for law, _changes, _message in BROKEN} == set(laws.LAWS)


def test_D8_a_toolkit_of_one_version_and_the_lists_of_what_is_refused_may_be_named(tree):
    good = {
        "roles/demo/defaults/main.yml": "demo_packages: [cuda-toolkit-12-6, cuda-toolkit-13-0=13.0.1-1]\n",
        "plugins/module_utils/_demo.py": "REFUSED = ('cuda', 'cuda-drivers')\nWORDS = ['nvidia', 'cuda']\n",
    }
    assert list(laws.cuda_comes_as_a_toolkit_of_one_version(tree(good))) == []
