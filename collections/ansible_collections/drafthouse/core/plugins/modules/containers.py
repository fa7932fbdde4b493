#!/usr/bin/python
"""Ensure that exactly the given containers of a label run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containers
short_description: Ensure that exactly these containers run
description:
  - Removes containers of the label that are not listed or differ from their definition, and creates missing ones.
  - A container is compared with its definition field by field; its image must be on the box already.
  - Talks to Docker over its socket, so it needs only the box's own Python.
attributes:
  check_mode: {support: full, description: Tells what would be removed and started.}
options:
  containers:
    description: "The containers, as profiles/container.py defines them. Empty removes all."
    type: list
    elements: dict
    required: true
  label: {description: The label that all of these containers have., type: str, required: true}
  fresh: {description: Restart containers that are right already., type: bool, default: false}
  home: {description: Our folder on the box. With it the task fails if another program holds a port., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Ensure exactly the baseline arm runs
  drafthouse.core.containers:
    containers: "{{ drafthouse_profile | drafthouse.core.arm_containers({'baseline': 8000}) }}"
    label: drafthouse.arm
    home: /opt/drafthouse
"""
RETURN = r"""
removed: {description: Names of the containers that were removed., returned: always, type: list}
started: {description: Names of those that were started or restarted., returned: always, type: list}
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError, failing
from ..module_utils.host.port_holder import foreign_listener
from ..module_utils.serving.containers import carry_out, has_engine, plan, remove

if TYPE_CHECKING:
    from ..module_utils.profiles.container import Container


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "containers": {"type": "list", "elements": "dict", "required": True},
            "label": {"type": "str", "required": True},
            "fresh": {"type": "bool", "default": False},
            "home": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode and not has_engine():  # it is installed first
        names = [container["name"] for container in given["containers"]]
        module.exit_json(changed=bool(names), removed=[], started=names)
    with failing(module):
        todo = plan(given["containers"], given["label"], given["fresh"])
        if not module.check_mode:
            remove(todo.remove)
        if given["home"]:
            _check_ports(given["containers"], given["home"])
        if not module.check_mode:
            carry_out(todo, removed=True)
    module.exit_json(changed=todo.changes, removed=todo.remove, started=todo.start + todo.restart)


def _check_ports(containers: Sequence[Container], home: str) -> None:
    """Raise DrafthouseError with the programs that hold the containers' ports; Docker would not name them."""
    problems = []
    for container in containers:
        # Each container has one port on the box, published at one or more addresses.
        for published in container.get("ports", [])[:1]:
            address, port, _ = published.rsplit(":", 2)
            problem = foreign_listener(int(port), address, home)
            if problem:
                problems.append(problem)
    if problems:
        raise DrafthouseError(problems)


if __name__ == "__main__":
    main()
