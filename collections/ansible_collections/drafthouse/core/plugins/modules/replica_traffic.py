#!/usr/bin/python
"""Take a box of a fleet out of traffic, or put it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_traffic
short_description: Take a box of a fleet out of traffic, or put it back
description:
  - C(out) makes the box's /ready refuse more requests, and waits until its engine has no running ones. Nothing is
    stopped. The engine counts its requests; for an engine that does not, the whole C(wait_s) is waited.
  - C(in) undoes that, if it was the same owner's. A run first sends one real request, and waits until the front has
    noticed the box.
  - Standard library only; any Python from 3.10 on.
attributes:
  check_mode: {support: full, description: Tells whether the box would be taken out or put back.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  state: {description: What to do., type: str, choices: [out, in], required: true}
  owner:
    description: Who takes it out, a person (C(drain)) or a run (C(run)). Neither undoes the other's.
    type: str
    choices: [drain, run]
    default: drain
  wait_s:
    description: Seconds in which running requests must end; otherwise the task fails.
    type: float
    default: 600
  why: {description: The reason that the fleet's status shows., type: str, default: drained by hand}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Take the box out of traffic
  drafthouse.core.replica_traffic:
    home: /opt/drafthouse
    state: out
    wait_s: 120
"""
RETURN = r"""
running: {description: Requests that still run; null if the engine does not count them., returned: success, type: int}
seconds: {description: How long it took., returned: success, type: float}
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.fleet.traffic import Moved, order_of, put_in, take_out
from ..module_utils.core.errors import failing
from ..module_utils.serving.out_of_traffic import out_file


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["out", "in"], "required": True},
            "owner": {"type": "str", "choices": ["drain", "run"], "default": "drain"},
            "wait_s": {"type": "float", "default": 600.0},
            "why": {"type": "str", "default": "drained by hand"},
        },
        supports_check_mode=True,
    )
    given = module.params
    home = Path(given["home"])
    owner = given["owner"]
    state = given["state"]
    with failing(module):
        if module.check_mode:
            order_of(home)
            done = Moved(out_file(home, owner).exists() != (state == "out"), None, 0.0)
        elif state == "out":
            done = take_out(home, owner, given["why"], given["wait_s"])
        else:
            done = put_in(home, owner)
    module.exit_json(**asdict(done))


if __name__ == "__main__":
    main()
