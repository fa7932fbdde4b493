#!/usr/bin/python
"""Unpack a bundle on the box, every byte verified."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bundle
short_description: Unpack a bundle of wheels, weights and an image on the box
description:
  - The action of the same name copies the bundle to the box first, and goes on where a copy broke off.
  - Every member is held against the sha256 of the manifest. The folder is put in place when all of them were right.
  - A folder that holds this very bundle is left alone, and then nothing is copied.
attributes:
  check_mode: {support: full, description: Tells whether it would be unpacked.}
options:
  src: {description: The bundle; for the action a file of the controller., type: path, required: true}
  dest: {description: Folder on the box., type: path, required: true}
  id: {description: The sha256 of its manifest. Set by the action., type: str}
  copied: {description: Whether I(src) is a copy to remove at the end. Set by the action., type: bool, default: false}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Unpack the bundle
  drafthouse.core.bundle:
    src: /media/stick/drafthouse-cpu-smollm2-ngram.tar
    dest: /opt/drafthouse/bundle
"""
RETURN = r"""
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

import platform
import sys
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.core.progress import Progress
from ..module_utils.operate.offline_bundle import is_unpacked, read_manifest, require_suits, unpack


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "id": {"type": "str"},
            "copied": {"type": "bool", "default": False},
            "progress_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    bundle, folder = Path(given["src"]), Path(given["dest"])
    if given["id"] and is_unpacked(folder, given["id"]):
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        require_suits(read_manifest(bundle), f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine())
        changed = unpack(bundle, folder, Progress(given["progress_file"]))
    except DrafthouseError as error:
        module.fail_json(**error.result)
    finally:
        # Of no use any more when it was unpacked, and none for the next copy to go on with when it is wrong.
        if given["copied"]:
            bundle.unlink(missing_ok=True)
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
