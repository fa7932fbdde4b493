"""What an inventory sets of the roles, and the names that it had before: read once, at the beginning of every play.

Ansible checks a role's arguments each time it begins, some of them behind an hour of measuring. Here all are checked
before anything is changed; the playbooks therefore include their roles without that (`rolespec_validate`).
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.utils.display import Display

from ..module_utils.core.errors import DrafthouseError, Problem
from ..module_utils.core.yaml_documents import read_yaml
from ..module_utils.profiles.workspace import ROOT, role_settings
from .words import TaskVars

_display = Display()
#: Words of the command line with which something is removed or restored: in an inventory they are somebody else's.
_COMMANDS: dict[str, object] = {
    "weights": False,
    "images": False,
    "container_engine": False,
    "nvidia_driver": False,
    "release": "",
}
_OLD = ("profile", "overrides", "engine_version")


def settings_of_roles(variables: TaskVars, command_line: TaskVars, templar: Any) -> dict[str, Any]:
    """The facts by which `drafthouse_<setting>` of an inventory reaches the role.

    A setting without our prefix is read with a warning where its role can take it; else it is somebody else's, and the
    role's default stands in its place. Raises DrafthouseError for every setting of ours that its role cannot take.
    """
    facts: dict[str, Any] = {}
    problems: list[Problem] = []
    # The host's own: with a play's roles come their defaults, which refer to what only their tasks know.
    host = variables["hostvars"][variables["inventory_hostname"]]
    roles = dict(role_settings())
    for name in command_line:
        if role := _role_of(name):
            roles[name] = role
    for name in sorted(key for key in host if isinstance(key, str)):
        setting = name.removeprefix("drafthouse_")
        if setting not in roles:
            facts |= _of_no_role(name, host, command_line)
        elif setting == name or setting not in command_line:
            option, value = _options(roles[setting])[setting], templar.template(host[name])
            wrong = ArgumentSpecValidator({setting: option}).validate({setting: value}).error_messages
            if name == setting and name not in command_line:
                facts |= _of_old_name(name, wrong, option.get("default"))
                continue
            facts[setting] = value
            needed = f"what the role {roles[setting]} takes"
            problems += [Problem("invalid-setting", words, needed, f"correct {name}", name) for words in wrong]
    if problems:
        raise DrafthouseError(problems)
    return facts


def _of_old_name(name: str, wrong: list[str], default: object) -> dict[str, Any]:
    """The fact in place of a setting without our prefix: none where the role takes it, else the role's default."""
    if not wrong:
        _warn(f"{name} is read, and has a new name: drafthouse_{name}")
        return {}
    _warn(f"{name} is not read: {wrong[0]}; ours is drafthouse_{name}")
    return {name: default}


def _of_no_role(name: str, host: TaskVars, command_line: TaskVars) -> dict[str, Any]:
    """The fact in place of a word of the command line that an inventory has; others are left as they are."""
    if name in command_line:
        return {}
    if name in _COMMANDS:
        _warn(f"{name} of the inventory is not read: it is a word of the command line (-e {name}=...)")
        return {name: _COMMANDS[name]}
    if name in _OLD and f"drafthouse_{name}" not in host:
        _warn(f"{name} of the inventory is read, and has a new name: drafthouse_{name}")
    return {}


def _role_of(setting: str) -> str:
    """The role that has the setting, also one that a playbook sets: the command line stands above it. '' for none."""
    roles = sorted(path.name for path in (ROOT / "roles").iterdir() if setting.startswith(f"{path.name}_"))
    return next((role for role in roles if setting in _options(role)), "")


def _options(role: str) -> dict[str, Any]:
    """The role's options, as its argument specs have them."""
    file = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    options: dict[str, Any] = read_yaml(file, "argument specs", "restore the file")["argument_specs"]["main"]["options"]
    return options


def _warn(words: str) -> None:
    # Once a run, however many hosts there are: Ansible passes over a warning that it has shown.
    _display.warning(words)
