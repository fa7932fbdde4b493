#!/usr/bin/python
"""Verify that the container engine runs a container, and that the container sees the GPU."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_check
short_description: Verify that the engine runs a container, and that the container sees the GPU
description:
  - Builds a small image from the box's own shell and C library, which needs no registry, runs it, and removes
    container and image. With I(gpu) the container runs C(nvidia-smi -L), which NVIDIA's toolkit adds to it.
attributes:
  check_mode: {support: partial, description: Runs nothing.}
  idempotent: {support: full, description: Leaves nothing behind.}
options:
  gpu: {description: The container must see a GPU., type: bool, default: false}
  timeout_s: {description: Seconds for each answer of the engine., type: int, default: 60}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Verify that a container sees the GPU
  drafthouse.core.container_check:
    gpu: true
"""
RETURN = r"""
output: {description: What the container printed., returned: success, type: str}
gpus: {description: How many GPUs it saw., returned: success, type: int}
seconds: {description: Wall-clock time of image and container., returned: success, type: float}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.host.docker.gpu_check import prove


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"gpu": {"type": "bool", "default": False}, "timeout_s": {"type": "int", "default": 60}},
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="check mode runs no container")
    with failing(module):
        proof = prove(module.params["gpu"], float(module.params["timeout_s"]))
    module.exit_json(changed=False, output=proof.output, gpus=proof.gpus, seconds=proof.seconds)


if __name__ == "__main__":
    main()
