"""What passes between Ansible and our actions, and how they say what is wrong: the problems travel in the result."""

from __future__ import annotations

from typing import Any

from ..module_utils.core.errors import DrafthouseError

#: Variables of a host, as Ansible hands them over: names of anybody's, values of any type.
TaskVars = dict[str, Any]
#: What a task answers to Ansible, and a module to its action: changed, failed and msg, ansible_facts, and its own.
Answer = dict[str, Any]
#: The arguments of a module, by name.
Arguments = dict[str, Any]


def failure(error: DrafthouseError) -> Answer:
    """The result of a task that found ``error``."""
    return {"failed": True, "changed": False, **error.result}
