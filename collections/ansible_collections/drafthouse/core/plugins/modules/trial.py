#!/usr/bin/python
"""Measure a running arm on some prompts for the tuner, and stop early if it is much slower than the leader."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trial
short_description: Measure a running arm on some prompts, and stop early if it is much slower
description:
  - Measures the arm that serves on the site's port, for the tuner (C(make tune)).
  - Each answer is compared with the leader's to the same prompt; an arm that is far behind does not get the rest.
  - Runs on the box with the Python of its own environment, against loopback. Nothing is written there.
attributes:
  check_mode: {support: full, description: Sends nothing.}
options:
  resolved: {description: The resolved profile of the candidate., type: dict, required: true}
  arm: {description: The arm that serves., type: str, required: true}
  asks:
    description: "The prompts as plain data: suite, kind, prompt_id, messages, output_tokens, temperature."
    type: list
    elements: dict
    default: []
  seconds: {description: Time limit; the trial then ends with the answers it has., type: float, required: true}
  concurrency: {description: Requests at the same time., type: int, default: 1}
  seed: {description: Seed for sampling; the tuner uses the same for all arms of a turn., type: int, default: 1}
  reference:
    description: Milliseconds per token of the leader on these prompts. Empty sends every prompt.
    type: dict
    default: {}
  label: {description: Name of the trial in the progress., type: str, default: trial}
  texts: {description: Return the answers at temperature 0 too., type: bool, default: false}
  task:
    description: File of the controller with asks, concurrency, seed, reference, label and texts; the action reads it.
    type: str
  answers: {description: Folder of the controller for the trial; written by the action., type: str}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Measure the candidate
  drafthouse.core.trial:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run) }}"
    arm: speculative
    seconds: 300
    task: build/tune/task.json
    answers: build/tune/answers
"""
RETURN = r"""
trial: {description: "Status, milliseconds per token by prompt, acceptance.", returned: success, type: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.locks import only_one
from ..module_utils.core.progress import Progress
from ..module_utils.tuning.trial import TrialOptions, endpoint_of, run_trial


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "resolved": {"type": "dict", "required": True},
            "arm": {"type": "str", "required": True},
            "asks": {"type": "list", "elements": "dict", "default": []},
            "seconds": {"type": "float", "required": True},
            "concurrency": {"type": "int", "default": 1},
            "seed": {"type": "int", "default": 1},
            "reference": {"type": "dict", "default": {}},
            "label": {"type": "str", "default": "trial"},
            "texts": {"type": "bool", "default": False},
            "task": {"type": "str"},
            "answers": {"type": "str"},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=False, trial={})
    options = TrialOptions(
        concurrency=given["concurrency"],
        seconds=given["seconds"],
        seed=given["seed"],
        reference={name: float(value) for name, value in given["reference"].items()},
        label=given["label"],
        texts=given["texts"],
    )
    # The lock of every measurement; it ends jobs that an earlier run left on the box.
    with failing(module), only_one(Path(given["resolved"]["site"]["home"]) / "benchmark.lock"):
        endpoint = endpoint_of(given["resolved"], given["arm"])
        trial = run_trial(endpoint, given["asks"], options, Progress(given["progress_file"]))
    module.exit_json(changed=False, trial=trial)


if __name__ == "__main__":
    main()
