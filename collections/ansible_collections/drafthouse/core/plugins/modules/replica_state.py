#!/usr/bin/python
"""Tell whether a replica of a fleet takes requests, and what it serves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_state
short_description: Tell whether a replica of a fleet takes requests, and what it serves
description:
  - Reads the replica's marks, asks its engine whether it is healthy and how many requests it has. Changes nothing.
  - Standard library only; any Python from 3.10 on.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  home: {description: Our folder on the box., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the replica's state
  drafthouse.core.replica_state:
    home: /opt/drafthouse
"""
RETURN = r"""
replica:
  description: "state (ready, drained, sick, away), why, running, profile, arm, engine, version."
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.fleet.replica import state_of
from ..module_utils.core.errors import failing


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(argument_spec={"home": {"type": "path", "required": True}}, supports_check_mode=True)
    with failing(module):
        replica = state_of(Path(module.params["home"]))
    module.exit_json(changed=False, replica=replica)


if __name__ == "__main__":
    main()
