#!/usr/bin/python
"""Take a replica of a fleet out of traffic, or put it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drain
short_description: Take a replica of a fleet out of traffic, or put it back
description:
  - C(drained) has the box's gateway tell the fleet's front that it takes no more requests, and waits until those that
    run have ended. C(undrained) takes that back. Nothing is stopped.
  - Requests are counted by the engine itself. One that does not tell is given all of C(wait_s).
  - Standard library only; any Python from 3.10 on.
attributes:
  check_mode: {support: full, description: Tells whether the box would be drained or put back.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  state: {description: What is to be., type: str, choices: [drained, undrained], required: true}
  wait_s:
    description: Seconds that running requests have to end. After that the task fails, and the box stays drained.
    type: float
    default: 600
  why: {description: The reason that the fleet's status shows., type: str, default: drained by hand}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Take the box out of traffic
  drafthouse.core.drain:
    home: /opt/drafthouse
    state: drained
    wait_s: 120
"""
RETURN = r"""
running: {description: Requests that still run; null where the engine does not tell., returned: success, type: int}
seconds: {description: How long it waited., returned: success, type: float}
"""

from dataclasses import asdict, replace
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.fleet.replica import DRAINED, Drained, drain, mark, order_of, undrain
from ..module_utils.core.errors import failing


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["drained", "undrained"], "required": True},
            "wait_s": {"type": "float", "default": 600.0},
            "why": {"type": "str", "default": "drained by hand"},
        },
        supports_check_mode=True,
    )
    given = module.params
    home = Path(given["home"])
    wanted = given["state"] == "drained"
    done = Drained(changed=False, running=None, seconds=0.0)
    with failing(module):
        if module.check_mode:
            order_of(home)
            done = replace(done, changed=mark(home, DRAINED).exists() != wanted)
        elif wanted:
            done = drain(home, given["wait_s"], given["why"])
        else:
            done = replace(done, changed=undrain(home))
    module.exit_json(**asdict(done))


if __name__ == "__main__":
    main()
