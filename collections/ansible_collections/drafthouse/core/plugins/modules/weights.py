#!/usr/bin/python
"""Put the weights of a resolved profile in place."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights
short_description: Put the weights of a resolved profile in place
description:
  - Four sources - a path, a Python package that carries the file, a recipe over other weights, the Hugging Face hub.
  - Runs with the Python of the box's own environment. What is there already is neither read nor fetched again.
attributes:
  check_mode: {support: full, description: Tells what would be put in place.}
options:
  items:
    description: The resolved profile's list, each after what it is made from.
    type: list
    elements: dict
    required: true
  engine_python:
    description: Python of the engine's environment, for recipes that need its libraries.
    type: path
    required: true
  hub_token:
    description: Token for gated repositories. An option and not the environment, which process lists show.
    type: str
  lock: {description: File that is locked meanwhile; one fetch at a time., type: path, required: true}
  uv: {description: Path of uv, which unpacks packages., type: path, required: true}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Put the weights in place
  drafthouse.core.weights:
    items: "{{ drafthouse.weights }}"
    engine_python: "{{ drafthouse.engine.home }}/bin/python"
    uv: "{{ drafthouse.site.home }}/uv/bin/uv"
    lock: "{{ drafthouse.site.home }}/weights.lock"
"""
RETURN = r"""
placed: {description: "For each item: id, changed, bytes, seconds.", returned: always, type: list}
notes: {description: Lines for a person, such as the revision to commit., returned: always, type: list}
"""

from contextlib import nullcontext
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.problems import HouseError
from ..module_utils.progress import Progress
from ..module_utils.single import only_one
from ..module_utils.weights import Tools, put_in_place


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "items": {"type": "list", "elements": "dict", "required": True},
            "engine_python": {"type": "path", "required": True},
            "hub_token": {"type": "str", "no_log": True},
            "lock": {"type": "path", "required": True},
            "uv": {"type": "path", "required": True},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    tell = Progress(module.params["progress_file"])
    tools = Tools(module.params["uv"], module.params["engine_python"], module.params["hub_token"])
    placed = []
    try:
        with nullcontext() if module.check_mode else only_one(Path(module.params["lock"])):
            for item in module.params["items"]:
                done = put_in_place(item, tell, tools, module.check_mode)
                placed.append({"id": item["id"], **done})
    except HouseError as error:
        module.fail_json(**error.result, placed=placed)
    module.exit_json(
        changed=any(done["changed"] for done in placed),
        placed=placed,
        notes=[done["note"] for done in placed if done["note"]],
    )


if __name__ == "__main__":
    main()
