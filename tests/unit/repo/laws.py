# Copyright (c) 2026, the gpufleet.metal authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The laws of this repository: functions ``law(root) -> list of violations``, each a sentence that names the file.

They look at files only; what needs Ansible to run is in test_artifact.py and test_inventory.py. To add a law, write a
function here and give test_laws_can_fail.py a tree that breaks it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import yaml

from tools import role_docs

NAMESPACE = "gpufleet.metal"
#: Keywords of a task; every other key of a task is its action.
TASK_KEYWORDS = {
    "any_errors_fatal",
    "args",
    "async",
    "become",
    "become_user",
    "block",
    "always",
    "rescue",
    "changed_when",
    "check_mode",
    "collections",
    "connection",
    "debugger",
    "delay",
    "delegate_facts",
    "delegate_to",
    "diff",
    "environment",
    "failed_when",
    "ignore_errors",
    "ignore_unreachable",
    "listen",
    "loop",
    "loop_control",
    "module_defaults",
    "name",
    "no_log",
    "notify",
    "poll",
    "register",
    "remote_user",
    "retries",
    "run_once",
    "tags",
    "throttle",
    "timeout",
    "until",
    "vars",
    "when",
    "with_items",
}
#: Variables of the engine itself that roles and playbooks may use.
MAGIC_VARIABLES = {
    "ansible_facts",
    "ansible_check_mode",
    "ansible_connection",
    "ansible_failed_result",
    "ansible_play_hosts",
    "ansible_play_hosts_all",
    "ansible_playbook_python",
    "ansible_python_interpreter",
}
#: Where tasks and plays hold further tasks.
SECTIONS = ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")
#: Longest allowed text, in lines.
BUDGETS = {
    "roles/*/tasks/main.yml": 60,
    "roles/*/tasks/*.yml": 100,
    "plugins/modules/*.py": 300,
    "plugins/module_utils/**/*.py": 400,
    "molecule/*/molecule.yml": 20,
}
#: What a role's option and its module's option must agree on.
SHARED_KEYS = ("type", "elements", "choices", "default")
#: Any package of CUDA's but a toolkit of one version: those bring a driver of packages, or may one day (D8).
CUDA = re.compile(r"cuda(?!-toolkit-\d+-\d+(?:[=*]|$))(?:[-=*].*)?")
TEST_BED = re.compile(
    r"gpufleet-sim|\bsim\.[a-z]|import sim\b|simulated (?:gpu|host|machine|nvml)|test bed", re.IGNORECASE
)
DOCUMENTATION_BLOCK = re.compile(r'^(?:DOCUMENTATION|EXAMPLES|RETURN) = r?"""(.*?)"""', re.DOTALL | re.MULTILINE)
LICENSE_LINE = "# SPDX-License-Identifier: GPL-3.0-or-later"
PYTHON_SOURCES = ("plugins", "fleet", "sim", "tests", "tools")


@cache
def _load(path):
    return yaml.safe_load(path.read_text())


def _yaml(path, missing=None):
    """A YAML file's document; ``missing`` when there is none or it is empty."""
    document = _load(path) if path.is_file() else None
    return missing if document is None else document


def roles(root):
    """The folders of the roles, sorted."""
    return sorted(folder for folder in root.glob("roles/*") if folder.is_dir())


def options_of(role):
    """A role's public variables: name -> option of its argument spec."""
    return _yaml(role / "meta/argument_specs.yml", {}).get("argument_specs", {}).get("main", {}).get("options") or {}


def tasks_in(document):
    """Every task of a task list or playbook, those within blocks and plays too."""
    for entry in document if isinstance(document, list) else []:
        if not isinstance(entry, dict):
            continue
        sections = [
            entry.get(key) for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers")
        ]
        if "hosts" not in entry and "block" not in entry:
            yield entry
        for section in sections:
            yield from tasks_in(section)


def action_of(task):
    """The task's action as ``(name, arguments)``; ``(None, None)`` when it has none or several."""
    found = [key for key in task if key not in TASK_KEYWORDS and not key.startswith("with_")]
    return (found[0], task[found[0]]) if len(found) == 1 else (None, None)


def task_files(root):
    patterns = ("roles/*/tasks/**/*.yml", "roles/*/handlers/*.yml", "playbooks/*.yml", "molecule/shared/**/*.yml")
    return sorted(path for pattern in patterns for path in root.glob(pattern))


def _constants(body):
    """Names assigned to a literal string in a module's or class's body: name -> parsed YAML."""
    return {
        node.targets[0].id: yaml.safe_load(node.value.value)
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.isupper()
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def module_docs(root, path):
    """A module's ``DOCUMENTATION`` with its fragments merged in, ``EXAMPLES`` and ``RETURN``, parsed."""
    blocks = dict.fromkeys(("DOCUMENTATION", "EXAMPLES", "RETURN")) | _constants(ast.parse(path.read_text()).body)
    documentation = blocks["DOCUMENTATION"] or {}
    fragments = documentation.get("extends_documentation_fragment", [])
    for fragment in [fragments] if isinstance(fragments, str) else fragments:
        name, _, part = fragment.removeprefix(NAMESPACE + ".").partition(".")
        source = root / "plugins/doc_fragments" / f"{name}.py"
        classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
        merged = _constants(classes[0].body)[part.upper() or "DOCUMENTATION"]
        for section in ("options", "attributes"):
            documentation[section] = {**merged.get(section, {}), **(documentation.get(section) or {})}
    return blocks


def module_options(root, name):
    """The documented options of the collection's module ``name``, or None when there is no such module."""
    path = root / "plugins/modules" / f"{name}.py"
    return (module_docs(root, path)["DOCUMENTATION"] or {}).get("options") or {} if path.is_file() else None


# -- roles ---------------------------------------------------------------------------------------------------------


def every_role_is_complete(root):
    for role in roles(root):
        for needed in ("README.md", "meta/main.yml", "meta/argument_specs.yml", "tasks/main.yml", "tasks/desired.yml"):
            if not (role / needed).is_file():
                yield f"{role.name}: has no {needed}"
        scenarios = root.glob("molecule/*/molecule.yml")
        if not any(path.parent.name == role.name or f"/{role.name}/test_" in path.read_text() for path in scenarios):
            yield f"{role.name}: has no scenario molecule/{role.name}/molecule.yml"


def defaults_equal_the_argument_specs(root):
    for role in roles(root):
        options, defaults = options_of(role), _yaml(role / "defaults/main.yml", {})
        documented = {name: option["default"] for name, option in options.items() if "default" in option}
        for name in sorted(documented.keys() | defaults.keys()):
            if name not in options:
                yield f"{role.name}: defaults/main.yml has {name}, meta/argument_specs.yml does not"
            elif documented.get(name) is None and defaults.get(name) is None:
                continue  # no value by default, said in either way
            elif name not in defaults:
                yield f"{role.name}: {name} has a default in meta/argument_specs.yml, none in defaults/main.yml"
            elif name not in documented:
                yield f"{role.name}: {name} has a default in defaults/main.yml, none in the spec"
            elif documented[name] != defaults[name]:
                ours, theirs = defaults[name], documented[name]
                yield f"{role.name}: {name} is {ours!r} in defaults/main.yml, {theirs!r} in the spec"
        yield from (
            f"{role.name}: {name} has no description" for name in options if not options[name].get("description")
        )


def names_are_prefixed(root):
    for role in roles(root):
        public, internal = f"{role.name}_", f"__{role.name}_"
        yield from (
            f"{role.name}: {name} must begin with {public}" for name in options_of(role) if not name.startswith(public)
        )
        for name in _yaml(role / "vars/main.yml", {}):
            if not name.startswith(internal):
                yield f"{role.name}: vars/main.yml has {name}, which must begin with {internal}"
        for path in sorted(role.glob("tasks/**/*.yml")):
            for task in tasks_in(_yaml(path)):
                names = [task["register"]] if "register" in task else []
                names += list(task.get("vars") or [])
                if action_of(task)[0] == "ansible.builtin.set_fact":
                    names += [name for name in action_of(task)[1] if name != "cacheable"]
                if action_of(task)[0] in ("ansible.builtin.include_role", "ansible.builtin.import_role"):
                    continue  # its vars belong to the other role
                for name in names:
                    if name.startswith("ansible_"):
                        continue  # how to connect
                    # gpu_assess registers what every playbook reads, under a name of its own
                    if not name.startswith((internal, public)) and name != "__gpu_assessment":
                        yield f"{role.name}: {path.name} sets {name}, which must begin with {internal}"


def desired_documents_equal_the_module_options(root):
    for role in roles(root):
        document = _yaml(role / "vars/main.yml", {}).get(f"__{role.name}_desired")
        if document is None:
            continue
        options = options_of(role)
        accepted = module_options(root, role.name)
        for name, value in document.items():
            variable = f"{role.name}_{name}"
            if value != f"{{{{ {variable} | default(omit) }}}}":
                yield f"{role.name}: __{role.name}_desired.{name} must be '{{{{ {variable} | default(omit) }}}}'"
            if variable not in options:
                yield f"{role.name}: __{role.name}_desired has {name}, but {variable} is no variable of the role"
            elif accepted is not None and name in accepted:
                yield from _disagreements(role.name, variable, options[variable], accepted[name])
        if accepted is None:
            yield f"{role.name}: there is no module plugins/modules/{role.name}.py"
        elif role.name in _concerns(root):
            accepted = {name for name in accepted if not name.startswith("_")}  # those come from an action plugin
            for name in sorted(document.keys() ^ accepted):
                side = (
                    "the module has it, the desired document not" if name in accepted else "the module does not know it"
                )
                yield f"{role.name}: option {name}: {side}"


def _concerns(root):
    """The roles that gpu_assess assesses."""
    return _yaml(root / "roles/gpu_assess/vars/main.yml", {}).get("__gpu_assess_documents", {})


def _disagreements(role, variable, ours, modules):
    for key in SHARED_KEYS:
        mine, theirs = ours.get(key), modules.get(key)
        if key == "type":
            mine, theirs = mine or "str", theirs or "str"
        if key == "default" and (
            isinstance(mine, str) and "{{" in mine or (mine in ("", None) and theirs in ("", None))
        ):
            continue  # composed from a collection-wide input, or "nothing" on both sides
        if mine != theirs:
            yield f"{role}: {variable}: {key} is {mine!r} in the argument spec, {theirs!r} in the module"


def every_concern_is_assessed_and_in_site(root):
    site = (root / "playbooks/site.yml").read_text()
    imported = (root / "roles/gpu_assess/tasks/desired.yml").read_text()
    for name in _concerns(root):
        if f"name: {NAMESPACE}.{name}\n" not in site:
            yield f"{name}: is assessed, but playbooks/site.yml does not run it"
        if f"name: {NAMESPACE}.{name}\n" not in imported:
            yield f"{name}: roles/gpu_assess/tasks/desired.yml does not import it"


def readmes_are_current(root):
    for role in roles(root):
        readme = role / "README.md"
        if not readme.is_file():
            continue
        spec = _yaml(role / "meta/argument_specs.yml", {}).get("argument_specs", {}).get("main", {})
        try:
            current = role_docs.updated(readme.read_text(), spec) == readme.read_text()
        except ValueError as error:
            yield f"{role.name}: README.md {error}"
            continue
        if not current:
            yield f"{role.name}: README.md is out of date; run: make docs"


# -- tasks ---------------------------------------------------------------------------------------------------------


def tasks_are_declarative(root):
    for path in task_files(root):
        where = path.relative_to(root)
        for task in tasks_in(_yaml(path)):
            name = task.get("name", "a task without a name")
            action, _arguments = action_of(task)
            if "ignore_errors" in task:
                yield f"{where}: '{name}' ignores errors"
            if action in ("shell", "raw", "ansible.builtin.shell", "ansible.builtin.raw"):
                yield f"{where}: '{name}' uses a shell"
            if action in ("command", "ansible.builtin.command") and "changed_when" not in task:
                yield f"{where}: '{name}' runs a command without changed_when"
            if where.parts[0] == "roles" and task.get("become"):
                yield f"{where}: '{name}' sets become; only playbooks do"


def tasks_keep_off_what_the_engine_does_badly(root):
    """A background job is lost with its status file (P11), a script needs a temporary folder that runs programs (P13),
    becoming an unprivileged user needs ACLs (P14), a command that check mode skips leaves no result to look at (P1)."""
    for path in task_files(root):
        where = path.relative_to(root)
        for task in tasks_in(_yaml(path)):
            name = task.get("name", "a task without a name")
            action, _arguments = action_of(task)
            yield from (f"{where}: '{name}' uses {word}" for word in ("async", "become_user") if word in task)
            if action in ("script", "ansible.builtin.script"):
                yield f"{where}: '{name}' uses a script"
            asks = action in ("command", "ansible.builtin.command") and "register" in task
            if asks and "check_mode" not in task and where.parts[0] != "molecule":
                yield f"{where}: '{name}' registers a command without check_mode"


def cuda_comes_as_a_toolkit_of_one_version(root):
    """The metapackage ``cuda`` replaces the runfile's driver by one of packages (D8)."""
    paths = [path for folder in ("roles", "playbooks", "inventories") for path in root.glob(f"{folder}/**/*.yml")]
    for path in sorted(paths):
        for name in sorted({word for word in _words(_yaml(path)) if CUDA.fullmatch(word)}):
            yield f"{path.relative_to(root)}: names {name}; only cuda-toolkit-X-Y brings no driver"
    for path in sorted(root.glob("plugins/**/*.py")):
        for line, names in _package_lists(ast.parse(path.read_text())):
            for name in filter(CUDA.fullmatch, names):
                yield f"{path.relative_to(root)}:{line}: names {name}; only cuda-toolkit-X-Y brings no driver"


def _package_lists(module):
    """``(line, texts)`` of every literal list of what to install: ``PACKAGES = [...]``, or a command with install."""
    named = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and "PACKAGES" in getattr(node.targets[0], "id", "")
    }
    for node in ast.walk(module):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            texts = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if id(node) in named or "install" in texts:
                yield node.lineno, texts


def _words(document):
    """Every word of every text in a YAML document: values and list items, no keys."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        for entry in document:
            yield from _words(entry)
    elif isinstance(document, str):
        yield from re.split(r"[\s,'\"\[\]]+", document)


def facts_are_no_variables(root):
    """Facts are read from ansible_facts only (P5); what else begins with ansible_ is how to connect, or the play."""
    for path in sorted(path for folder in ("roles", "playbooks") for path in root.glob(f"{folder}/**/*.yml")):
        for name in sorted(set(re.findall(r"\bansible_[a-z_]+", path.read_text())) - MAGIC_VARIABLES):
            yield f"{path.relative_to(root)}: {name} is a fact's old name, or unknown to this law"


def the_engine_is_strict(root):
    """Facts are no variables (P5) and a conditional that is no boolean fails (P3), wherever Ansible runs for us."""
    configuration = (root / "ansible.cfg").read_text()
    if not re.search(r"^inject_facts_as_vars = false$", configuration, re.MULTILINE):
        yield "ansible.cfg: inject_facts_as_vars is not false"
    for pattern in ("ansible.cfg", "Makefile", "tools/*", "molecule/**/*.yml", ".github/**/*.yml", "tests/**/*.cfg"):
        for path in sorted(path for path in root.glob(pattern) if path.is_file()):
            if "allow_broken_conditionals" in path.read_text().lower():
                yield f"{path.relative_to(root)}: allows broken conditionals"


def every_scenario_begins_in_check_mode(root):
    """The fresh host is met in check mode first (P1)."""
    for path in sorted(root.glob("molecule/*.yml")) + sorted(root.glob("molecule/*/molecule.yml")):
        sequence = (_yaml(path, {}).get("scenario") or {}).get("test_sequence")
        if sequence and ("check" not in sequence or sequence.index("check") > sequence.index("converge")):
            yield f"{path.relative_to(root)}: no check before converge"


def python_starts_no_shell(root):
    for path in sorted(root.glob("plugins/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("shell", "use_unsafe_shell") and _is_true(node.value):
                yield f"{path.relative_to(root)}:{node.value.lineno}: starts a shell"
            if isinstance(node, ast.Attribute) and node.attr in ("system", "popen") and _is_name(node.value, "os"):
                yield f"{path.relative_to(root)}:{node.lineno}: os.{node.attr} starts a shell"


def _is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


def _is_name(node, name):
    return isinstance(node, ast.Name) and node.id == name


# -- modules -------------------------------------------------------------------------------------------------------


def modules_are_documented(root):
    for path in sorted(root.glob("plugins/modules/*.py")):
        docs = module_docs(root, path)
        attributes = (docs["DOCUMENTATION"] or {}).get("attributes") or {}
        for attribute in ("check_mode", "diff_mode", "idempotent"):
            if attribute not in attributes:
                yield f"{path.name}: attributes lacks {attribute}"
        if not docs["RETURN"]:
            yield f"{path.name}: has no RETURN"
        yield from (f"{path.name}: {problem}" for problem in _return_problems(docs["RETURN"] or {}))
        yield from (f"{path.name}: {problem}" for problem in _example_problems(root, docs["EXAMPLES"]))


def _return_problems(values, prefix=""):
    for name, value in values.items():
        for needed in ("description", "type") if prefix else ("description", "type", "returned"):
            if needed not in value:
                yield f"RETURN: {prefix}{name} has no {needed}"
        yield from _return_problems(value.get("contains") or {}, f"{prefix}{name}.")


def _example_problems(root, examples):
    if not isinstance(examples, list) or not examples:
        yield "EXAMPLES is no list of tasks"
        return
    for task in tasks_in(examples):
        action, arguments = action_of(task)
        if action is None or action.count(".") != 2:
            yield f"EXAMPLES: '{task.get('name')}' has no action with a full name, or several"
        elif action.startswith(NAMESPACE + "."):
            accepted = module_options(root, action.rpartition(".")[2])
            if accepted is None:
                yield f"EXAMPLES: there is no {action}"
            else:
                unknown = sorted(set(arguments or {}) - set(accepted))
                yield from (f"EXAMPLES: {action} has no option {name}" for name in unknown)


def the_action_group_lists_every_module(root):
    listed = _yaml(root / "meta/runtime.yml", {}).get("action_groups", {}).get("gpu", [])
    present = {path.stem for path in root.glob("plugins/modules/*.py")}
    for name in sorted(present ^ set(listed)):
        yield f"meta/runtime.yml: action group gpu {'lacks' if name in present else 'lists the missing'} {name}"


# -- tests ---------------------------------------------------------------------------------------------------------


def every_scenario_has_tests(root):
    for scenario in sorted(path.parent for path in root.glob("molecule/*/molecule.yml")):
        files = list((root / "tests/testinfra" / scenario.name).glob("test_*.py"))
        if not any(re.search(r"^def test_", path.read_text(), re.MULTILINE) for path in files):
            yield f"molecule/{scenario.name}: tests/testinfra/{scenario.name} holds no test: verify proves nothing"


def every_backend_has_unit_tests(root):
    for path in sorted(root.glob("plugins/module_utils/_*")):
        name = path.stem
        tests = root / "tests/unit/plugins/module_utils"
        mentioned = any(re.search(rf"\b{name}\b", test.read_text()) for test in tests.glob("**/*.py"))
        if name not in ("__init__", "__pycache__") and not mentioned:
            yield f"plugins/module_utils/{path.name}: no unit test in {tests.relative_to(root)} mentions it"


# -- the tree ------------------------------------------------------------------------------------------------------


def files_are_short(root):
    for pattern, limit in BUDGETS.items():
        for path in sorted(root.glob(pattern)):
            text = path.read_text()
            if pattern.startswith("plugins/modules"):
                text = re.sub(
                    r'^(?:DOCUMENTATION|EXAMPLES|RETURN) = r?"""(.*?)"""', "", text, flags=re.DOTALL | re.MULTILINE
                )
            if len(text.splitlines()) > limit:
                yield f"{path.relative_to(root)}: {len(text.splitlines())} lines, more than {limit}"


def production_never_knows_the_test_bed(root):
    # A comment may say what a test bed does differently; code, tasks and defaults may not.
    for path in sorted(path for folder in ("plugins", "roles", "playbooks") for path in root.glob(f"{folder}/**/*")):
        if path.suffix not in (".py", ".yml", ".j2", ".service", ".sh"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if TEST_BED.search(line.partition("#")[0]):
                yield f"{path.relative_to(root)}:{number}: knows the test bed: {line.strip()}"


def python_files_state_their_license(root):
    for path in sorted(path for folder in PYTHON_SOURCES for path in root.glob(f"{folder}/**/*.py")):
        if "build" not in path.parts and path.stat().st_size and LICENSE_LINE not in path.read_text()[:500]:
            yield f"{path.relative_to(root)}: does not begin with the licence header"


def nothing_depends_on_this_machine(root):
    here = str(root.resolve())
    suffixes = (".py", ".yml", ".md", ".cfg", ".toml", ".txt", ".in", ".lock", ".json", ".c", ".h", ".j2")
    hidden = (".git", ".venv", ".cache", ".ansible", "build", "reports")
    shown = [top for top in root.iterdir() if not top.name.startswith(hidden)]
    for path in sorted(path for top in shown for path in (top.rglob("*") if top.is_dir() else [top])):
        if path.suffix not in suffixes or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        if here in text:
            yield f"{path.relative_to(root)}: names the place of this checkout"
        if path.suffix == ".lock" and "://" in text:
            yield f"{path.relative_to(root)}: names a package registry"


LAWS = (
    every_role_is_complete,
    defaults_equal_the_argument_specs,
    names_are_prefixed,
    desired_documents_equal_the_module_options,
    every_concern_is_assessed_and_in_site,
    readmes_are_current,
    tasks_are_declarative,
    tasks_keep_off_what_the_engine_does_badly,
    cuda_comes_as_a_toolkit_of_one_version,
    facts_are_no_variables,
    the_engine_is_strict,
    every_scenario_begins_in_check_mode,
    python_starts_no_shell,
    modules_are_documented,
    the_action_group_lists_every_module,
    every_scenario_has_tests,
    every_backend_has_unit_tests,
    files_are_short,
    production_never_knows_the_test_bed,
    python_files_state_their_license,
    nothing_depends_on_this_machine,
)


def repository():
    """The root of this checkout."""
    return Path(__file__).parents[3]
