#!/usr/bin/python
"""Measure one step of an experiment on the box."""

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark
short_description: Measure one step of an experiment
description:
  - Sends the suites' prompts to the arms that I(step) names and keeps what was measured.
  - Runs on the box with the Python of its own environment, against loopback.
attributes:
  check_mode: {support: full, description: Nothing is sent and nothing is written.}
options:
  resolved: {description: The resolved profile., type: dict, required: true}
  step: {description: "One of its experiment's steps: number, round, suites, arms.", type: dict, required: true}
  request_timeout_s: {description: Seconds until a request counts as failed., type: float, default: 600}
  wait_s: {description: Seconds to wait for other work on the machine to end., type: float, default: 0}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Measure the first step
  drafthouse.core.benchmark:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
    step: "{{ drafthouse_profile.experiment.steps[0] }}"
"""
RETURN = r"""
files: {description: Paths of the files written., returned: always, type: list}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.locks import only_one
from ..module_utils.core.progress import Progress
from ..module_utils.experiment.loop import measure_one_step


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "resolved": {"type": "dict", "required": True},
            "step": {"type": "dict", "required": True},
            "request_timeout_s": {"type": "float", "default": 600},
            "wait_s": {"type": "float", "default": 0},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True, files=[])
    tell = Progress(given["progress_file"])
    with failing(module), only_one(Path(given["resolved"]["site"]["home"]) / "benchmark.lock"):
        file = measure_one_step(given["resolved"], given["step"], given["request_timeout_s"], tell, given["wait_s"])
    module.exit_json(changed=True, files=[str(file)])


if __name__ == "__main__":
    main()
