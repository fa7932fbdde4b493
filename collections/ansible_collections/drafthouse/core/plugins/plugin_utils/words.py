"""Types of what Ansible passes to our actions and gets back, and the result of a task that failed."""

from __future__ import annotations

from typing import Any

from ..module_utils.core.errors import DrafthouseError

#: Variables of a host: those of the user's inventory too, with values of any type.
TaskVars = dict[str, Any]
#: Result of a task or module: changed, failed, msg, ansible_facts, and keys of its own.
Answer = dict[str, Any]
#: The arguments of a module, by name.
Arguments = dict[str, Any]


def failure(error: DrafthouseError) -> Answer:
    """Result of a task that failed with ``error``; its key ``problems`` is what our callbacks print."""
    return {"failed": True, "changed": False, **error.result}
