#!/usr/bin/python
"""Make a pinned Python environment, unless it is there already."""

from __future__ import annotations

DOCUMENTATION = r"""
module: python_env
short_description: Make a pinned Python environment
description:
  - Makes a virtual environment from exact versions, with uv if it is given, else with venv and pip.
  - C(ansible.builtin.pip) is not enough. It has neither uv nor C(--torch-backend), checks every package in each run
    (slow with a hundred packages, and it needs the network), and takes an environment that a killed run left
    half-made for a complete one.
  - A stamp file with the hash of the recipe is written last. When it matches, nothing else is done.
attributes:
  check_mode: {support: full, description: Returns the commands that would be run.}
  diff_mode: {support: none, description: An environment has no useful text.}
  idempotent: {support: full, description: By the stamp.}
options:
  path: {description: Folder of the environment., type: path, required: true}
  packages:
    description: Exact versions, installed with their dependencies.
    type: list
    elements: str
    default: []
  no_deps_packages:
    description: Exact versions, installed without dependencies. A complete lock belongs here.
    type: list
    elements: str
    default: []
  uv: {description: Path of the program uv. Empty means venv and pip., type: path}
  python: {description: Interpreter to build on. Default is the one that runs this module., type: path}
  find_links: {description: Folder or page of further wheels; an empty text means none., type: str}
  no_index:
    description: Take packages from I(find_links) alone, for a box without a network.
    type: bool
    default: false
  torch_backend:
    description: Which build of torch. Left out of the commands when I(find_links) has torch.
    type: str
    choices: [cpu, auto]
  metadata_stub:
    description: Name and version of a distribution that is installed under another name.
    type: dict
    options:
      name: {description: Its name., type: str, required: true}
      version: {description: Its version., type: str, required: true}
  extra_index_url: {description: An index that is searched before the usual one., type: str}
  prerelease: {description: Also allow pre-releases., type: bool, default: false}
  unpinned: {description: Allow names without a version. For nightly builds., type: bool, default: false}
  source_packages:
    description: Exact versions that are built on the box, with the packages of the environment.
    type: list
    elements: str
    default: []
  build_packages:
    description: Exact versions that their build needs.
    type: list
    elements: str
    default: []
  hashes:
    description:
      - Hashes of versions that are listed without, by C(name==version).
      - An installation step whose versions all have hashes accepts no file without one.
    type: dict
    default: {}
  image_folders:
    description:
      - Folders of programs of the image that the box was made from. A Python there that has exactly these packages is
        used, and nothing is installed. Left out, none is looked for.
    type: list
    elements: str
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Make the engine's environment
  drafthouse.core.python_env:
    path: /opt/drafthouse/engines/llamacpp-2026.10.11549-cpu
    packages: [xllamacpp==2026.10.11549]
    uv: /opt/drafthouse/venv/bin/uv
"""
RETURN = r"""
path: {description: The environment., returned: success, type: str}
sha256: {description: Hash of the recipe., returned: success, type: str}
unhashed: {description: Packages installed without a check of hashes., returned: success, type: list, elements: str}
image: {description: The image's Python that is used instead; empty if none., returned: success, type: str}
tool: {description: "uv or pip; image where nothing was installed.", returned: success, type: str}
commands: {description: Commands that were run or would be., returned: success, type: list, elements: list}
seconds: {description: Wall-clock time of making it., returned: success, type: float}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.progress import Progress
from ..module_utils.host.env_recipe import EnvRecipe
from ..module_utils.host.venv import ensure_env


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "no_deps_packages": {"type": "list", "elements": "str", "default": []},
            "uv": {"type": "path"},
            "python": {"type": "path"},
            "find_links": {"type": "str"},
            "no_index": {"type": "bool", "default": False},
            "torch_backend": {"type": "str", "choices": ["cpu", "auto"]},
            "metadata_stub": {
                "type": "dict",
                "options": {"name": {"type": "str", "required": True}, "version": {"type": "str", "required": True}},
            },
            "source_packages": {"type": "list", "elements": "str", "default": []},
            "build_packages": {"type": "list", "elements": "str", "default": []},
            "extra_index_url": {"type": "str"},
            "prerelease": {"type": "bool", "default": False},
            "unpinned": {"type": "bool", "default": False},
            "hashes": {"type": "dict", "default": {}},
            "image_folders": {"type": "list", "elements": "str"},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    recipe = EnvRecipe.of(given)
    tell = Progress(given["progress_file"])
    with failing(module):
        done = ensure_env(
            recipe,
            uv=given["uv"] or None,
            find_links=given["find_links"] or None,
            no_index=given["no_index"],
            image_folders=given["image_folders"],
            check=module.check_mode,
            progress=lambda step, line: tell({"text": f"{step}: {line}"}),
        )
    module.exit_json(**vars(done))


if __name__ == "__main__":
    main()
