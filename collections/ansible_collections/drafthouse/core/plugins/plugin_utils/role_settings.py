"""Settings of roles from the inventory, also under their old names, checked at the beginning of every play.

Ansible checks a role's arguments when the role begins, which may be after an hour of measuring. Here all are checked
before anything is changed, so the playbooks include their roles with `rolespec_validate: false`.
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
#: Variables of the command line that remove or restore something, with their defaults. An inventory cannot set them.
_COMMANDS: dict[str, object] = {
    "weights": False, "images": False, "container_engine": False, "nvidia_driver": False, "release": "",
}  # fmt: skip
_OLD = ("profile", "overrides", "engine_version")


def settings_of_roles(variables: TaskVars, command_line: TaskVars, templar: Any) -> dict[str, Any]:
    """Facts that pass `drafthouse_SETTING` of an inventory to the role's variable SETTING.

    A setting without our prefix is an old name. It is used, with a warning, if the role accepts the value; if not, it
    belongs to something else, and the role's default replaces it. Raises DrafthouseError with all settings with our
    prefix whose value the role does not accept.
    """
    facts: dict[str, Any] = {}
    problems: list[Problem] = []
    # Not ``variables``, which has the defaults of the play's roles too: templates that only their tasks can fill in.
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
    """Fact for a setting without our prefix: {} if the role accepts its value, else the role's default."""
    if not wrong:
        _warn(f"{name} is read, and has a new name: drafthouse_{name}")
        return {}
    _warn(f"{name} is not read: {wrong[0]}; ours is drafthouse_{name}")
    return {name: default}


def _of_no_role(name: str, host: TaskVars, command_line: TaskVars) -> dict[str, Any]:
    """Fact for a variable that is no role's setting: the default for those of the command line, {} for others."""
    if name in command_line:
        return {}
    if name in _COMMANDS:
        _warn(f"{name} of the inventory is not read: it is a word of the command line (-e {name}=...)")
        return {name: _COMMANDS[name]}
    if name in _OLD and f"drafthouse_{name}" not in host:
        _warn(f"{name} of the inventory is read, and has a new name: drafthouse_{name}")
    return {}


def _role_of(setting: str) -> str:
    """Role of a setting, even one that a playbook sets itself, since the command line has precedence; "" for none."""
    roles = sorted(path.name for path in (ROOT / "roles").iterdir() if setting.startswith(f"{path.name}_"))
    return next((role for role in roles if setting in _options(role)), "")


def _options(role: str) -> dict[str, Any]:
    """Options of the role, from its argument specs."""
    file = ROOT / "roles" / role / "meta" / "argument_specs.yml"
    options: dict[str, Any] = read_yaml(file, "argument specs", "restore the file")["argument_specs"]["main"]["options"]
    return options


def _warn(text: str) -> None:
    # Shown once in a run for all hosts: Ansible leaves out repeated warnings.
    _display.warning(text)
