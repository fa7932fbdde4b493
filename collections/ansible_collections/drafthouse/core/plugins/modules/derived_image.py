#!/usr/bin/python
"""Build an image from a Containerfile unless it is there, or remove all images built so."""

from __future__ import annotations

DOCUMENTATION = r"""
module: derived_image
short_description: Build an image derived from the engine's own
description:
  - An existing image is left alone. Its name has a hash of the Containerfile, so a change gives another name.
  - C(absent) removes every image that was built so and that no container uses.
attributes:
  check_mode: {support: full, description: Says whether it would build or remove.}
options:
  name: {description: Name and tag of the image; needed where it shall be present., type: str}
  containerfile: {description: Text of the Containerfile; needed where it shall be present., type: str}
  state: {description: Whether it shall be there., type: str, choices: [present, absent], default: present}
  progress_file: {description: JSONL file for the progress., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Build the engine's image
  drafthouse.core.derived_image:
    name: localhost/drafthouse-vllm:0.32.0-suffix-0123456789ab
    containerfile: |
      FROM vllm/vllm-openai:v0.32.0
      RUN uv pip install --system --no-cache arctic-inference==0.1.1
"""
RETURN = r"""
removed: {description: Images that were removed., returned: state is absent, type: list, elements: str}
kept: {description: Those that a container uses., returned: state is absent, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.progress import Progress
from ..module_utils.host.docker.derived_image import derived_images, remove_all
from ..module_utils.host.docker.image_digest import on_box
from ..module_utils.host.docker.images import build


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "containerfile": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "progress_file": {"type": "path"},
        },
        required_if=[("state", "present", ("name", "containerfile"))],
        supports_check_mode=True,
    )
    given = module.params
    if given["state"] == "absent":
        if module.check_mode:
            module.exit_json(changed=bool(derived_images()), removed=derived_images(), kept=[])
        removed, kept = remove_all()
        module.exit_json(changed=bool(removed), removed=removed, kept=kept)
    tell = Progress(given["progress_file"])
    with failing(module):
        is_there = on_box(given["name"]) is not None
        if is_there or module.check_mode:
            module.exit_json(changed=not is_there)
        build(given["name"], given["containerfile"], lambda line: tell({"text": f"building the image: {line[:120]}"}))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
