#!/usr/bin/python
"""Take a box of a fleet out of traffic, or put it back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: replica_traffic
short_description: Take a box of a fleet out of traffic, or put it back
description:
  - C(out) has the box's /ready say that it takes no more requests, and waits until its engine has no running one.
    Nothing is stopped. Requests are counted by the engine itself; one that does not tell is given all of C(wait_s).
  - C(in) takes that back, as far as it was the same owner's. A run first asks for one real answer, and waits until the
    front has seen the box.
  - Standard library only; any Python from 3.10 on.
attributes:
  check_mode: {support: full, description: Tells whether the box would be taken out or put back.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  state: {description: What is to be., type: str, choices: [out, in], required: true}
  owner:
    description: Whose word it is, a person's (C(drain)) or a run's (C(run)). Nobody takes back another's.
    type: str
    choices: [drain, run]
    default: drain
  wait_s:
    description: Seconds that running requests have to end. After that the task fails.
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
running: {description: Requests that still run; null where the engine does not tell., returned: success, type: int}
seconds: {description: How long it took., returned: success, type: float}
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.addons.fleet.traffic import Moved, order_of, put_in, take_out
from ..module_utils.core.errors import failing
from ..module_utils.serving.out_of_traffic import out_file


def main() -> None:
    """Answer Ansible."""
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
    home, owner, state = Path(given["home"]), given["owner"], given["state"]
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
