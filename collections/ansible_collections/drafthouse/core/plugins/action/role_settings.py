"""Hold what the inventory and the command line set of the roles against the roles' own argument specs, once a run.

Ansible checks a role's arguments each time it begins, some of them behind an hour of measuring. Here all are checked
before anything is changed; site.yml therefore includes its roles without that (`rolespec_validate`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils.core.errors import DrafthouseError, Problem
from ..module_utils.core.yaml_documents import yaml_of
from ..module_utils.profiles.workspace import ROOT
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars, failure

if TYPE_CHECKING:
    from collections.abc import Iterator


class ActionModule(Action):
    """`drafthouse.core.role_settings`: no arguments."""

    _VALID_ARGS: frozenset[str] = frozenset()

    def answer(self, variables: TaskVars) -> Answer:
        """Return every setting that its role cannot take."""
        problems = list(self._wrong(variables))
        return failure(DrafthouseError(problems)) if problems else {"changed": False}

    def _wrong(self, variables: TaskVars) -> Iterator[Problem]:
        # The host's own: with a play's roles come their defaults, which refer to what only their tasks know.
        host = variables["hostvars"][variables["inventory_hostname"]]
        for file in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
            role = file.parts[-3]
            names = [name for name in host if isinstance(name, str) and name.startswith(f"{role}_")]
            if not names:
                continue
            options = yaml_of(file.read_text("utf-8"))["argument_specs"]["main"]["options"]
            for name in sorted(options.keys() & set(names)):
                told = ArgumentSpecValidator({name: options[name]}).validate({name: self._templar.template(host[name])})
                for words in told.error_messages:
                    yield Problem("invalid-setting", words, f"what the role {role} takes", f"correct {name}", name)
