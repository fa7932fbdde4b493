#!/usr/bin/python
"""Merge the measured rounds of an experiment into results, or record the decision about another round."""

from __future__ import annotations

DOCUMENTATION = r"""
module: judge_rounds
short_description: Judge the measured rounds and decide whether another one follows
description:
  - Writes the result of every arm from the kept steps up to round I(last).
  - The action of the same name judges them on the controller, and calls this again with the decision.
  - Another round follows while the evidence requires one and the budget of the experiment allows it.
  - Runs on the box with the Python of its own environment.
attributes:
  check_mode: {support: full, description: Nothing is written and nothing follows.}
options:
  resolved: {description: The resolved profile., type: dict, required: true}
  last: {description: The last round that was measured., type: int, required: true}
  decided: {description: The decision to record. For the action., type: dict}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Judge the rounds so far
  drafthouse.core.judge_rounds:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
    last: 2
"""
RETURN = r"""
last: {description: The last round that is to be measured now., returned: always, type: int}
steps: {description: "The steps of the next round, none at the end.", returned: always, type: list}
decided: {description: "The decision, as in rounds.json.", returned: success, type: dict}
costs: {description: "Seconds that each round took, as [round, seconds].", returned: without decided, type: list}
drafthouse_interim: {description: "The interim verdict, for people.", returned: success, type: str}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.locks import only_one
from ..module_utils.experiment.loop import keep_decision, put_together


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "resolved": {"type": "dict", "required": True},
            "last": {"type": "int", "required": True},
            "decided": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    resolved = module.params["resolved"]
    last = module.params["last"]
    decided = module.params["decided"]
    if module.check_mode:
        module.exit_json(changed=True, last=last, steps=[])
    with failing(module), only_one(Path(resolved["site"]["home"]) / "benchmark.lock"):
        if decided:
            module.exit_json(changed=True, decided=decided, **keep_decision(resolved, decided))
        costs = put_together(resolved, last)
    module.exit_json(changed=True, last=last, steps=[], costs=list(costs.items()))


if __name__ == "__main__":
    main()
