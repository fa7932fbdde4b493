#!/usr/bin/python
"""Hold containers of ours running."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containers
short_description: Hold exactly these containers running
description:
  - Removes the containers of a label that are not wanted or not as they are defined, and makes those that are missing.
  - A container is compared with its definition field by field; its image has to be there already.
  - Asks Docker over its socket, so that it needs no more than the box's own Python.
attributes:
  check_mode: {support: full, description: Tells what would be removed and started.}
options:
  containers:
    description: What shall run, as C(profiles/container.py) defines a container. Empty ends all.
    type: list
    elements: dict
    required: true
  label: {description: The label that all of these containers have., type: str, required: true}
  fresh: {description: Restart those that are as they should be., type: bool, default: false}
  home: {description: Our folder on the box. With it no other program may hold a port to be published., type: path}
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
    """Answer Ansible."""
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
        made = plan(given["containers"], given["label"], given["fresh"])
        if not module.check_mode:
            remove(made.remove)
        if given["home"]:
            _look_for_strangers(given["containers"], given["home"])
        if not module.check_mode:
            carry_out(made, removed=True)
    module.exit_json(changed=made.changes, removed=made.remove, started=made.start + made.restart)


def _look_for_strangers(containers: Sequence[Container], home: str) -> None:
    """Raise DrafthouseError where a program that is none of ours holds a port: Docker only says that it is in use."""
    # On whichever addresses, each container has one port on the box.
    ports = [port.rsplit(":", 2) for container in containers for port in container.get("ports", [])[:1]]
    problems = [found for address, port, _ in ports if (found := foreign_listener(int(port), address, home))]
    if problems:
        raise DrafthouseError(problems)


if __name__ == "__main__":
    main()
