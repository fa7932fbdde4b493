#!/usr/bin/python
"""End what an interrupted run has left on the box: its jobs and its servers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: interrupted
short_description: End what an interrupted run has left on the box
description:
  - Ends background jobs, which outlive the run, with all processes that they have started.
  - A server that an earlier run has accepted is left alone; if it does not run, the box restores it by itself.
  - Needs none of our programs on the box.
attributes:
  check_mode: {support: full, description: It does nothing.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  servers:
    description: Servers to end; C(of_run) means those that run although no server was accepted yet.
    type: str
    choices: [of_run, all, none]
    default: of_run
author: Drafthouse
"""
EXAMPLES = r"""
- name: Stop what an interrupted run has left
  drafthouse.core.interrupted:
    home: /opt/drafthouse
"""
RETURN = r"""
said: {description: What was done., returned: success, type: list, elements: str}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.serving.interrupt import SERVERS, interrupt


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "servers": {"type": "str", "choices": list(SERVERS), "default": "of_run"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=False, said=[])
    with failing(module):
        said = interrupt(Path(given["home"]), given["servers"])
    module.exit_json(changed=bool(said), said=said)


if __name__ == "__main__":
    main()
