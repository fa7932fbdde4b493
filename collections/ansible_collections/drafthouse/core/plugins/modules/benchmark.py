#!/usr/bin/python
"""Measure one step of an experiment on the box, or put the steps together as the arms' results."""

from __future__ import annotations

DOCUMENTATION = r"""
module: benchmark
short_description: Measure one step of an experiment, or put its steps together
description:
  - With I(step), sends the suites' prompts to the arms that the step names and keeps what was measured.
  - With I(assemble), writes the result of every arm from the kept steps.
  - Runs on the box with the Python of its own environment, against loopback.
attributes:
  check_mode: {support: full, description: Nothing is sent and nothing is written.}
options:
  resolved: {description: The resolved profile., type: dict, required: true}
  step: {description: "One of its experiment's steps: number, round, suites, arms.", type: dict}
  assemble: {description: Put the kept steps together., type: bool, default: false}
  request_timeout_s: {description: Seconds until a request counts as failed., type: float, default: 600}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Measure the first step
  drafthouse.core.benchmark:
    resolved: "{{ drafthouse }}"
    step: "{{ drafthouse.experiment.steps[0] }}"
"""
RETURN = r"""
files: {description: What was written., returned: always, type: list}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.experiment import assemble_results, measure_one_step
from ..module_utils.problems import HouseError
from ..module_utils.progress import Progress
from ..module_utils.single import only_one


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "resolved": {"type": "dict", "required": True},
            "step": {"type": "dict"},
            "assemble": {"type": "bool", "default": False},
            "request_timeout_s": {"type": "float", "default": 600},
            "progress_file": {"type": "path"},
        },
        required_one_of=[("step", "assemble")],
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True, files=[])
    tell = Progress(given["progress_file"])
    try:
        files: list[Path] = []
        with only_one(Path(given["resolved"]["site"]["home"]) / "benchmark.lock"):
            if given["step"]:
                files.append(measure_one_step(given["resolved"], given["step"], given["request_timeout_s"], tell))
            if given["assemble"]:
                files += assemble_results(given["resolved"])
    except HouseError as error:
        module.fail_json(**error.result)
    module.exit_json(changed=True, files=[str(path) for path in files])


if __name__ == "__main__":
    main()
