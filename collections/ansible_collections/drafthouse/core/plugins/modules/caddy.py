#!/usr/bin/python
"""Find the program of the gateway, or unpack the distribution's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: caddy
short_description: Find the program of the gateway, or unpack the distribution's
description:
  - Takes the program that is named, else one that is installed, else the distribution's package, which apt downloads
    and checks and which is unpacked into a folder of ours. Nothing is installed, no unit is started.
  - A newer package of the distribution replaces the unpacked one.
attributes:
  check_mode: {support: full, description: Says whether it would unpack one.}
options:
  path: {description: The program. Empty looks for one., type: str, default: ""}
  folder: {description: Where to unpack it., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Find Caddy
  drafthouse.core.caddy:
    folder: /opt/drafthouse/gateway/bin
"""
RETURN = r"""
path: {description: The program., returned: success, type: str}
version: {description: Its version., returned: success, type: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.host.caddy import ensure_caddy


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={"path": {"type": "str", "default": ""}, "folder": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    try:
        found = ensure_caddy(module.params["path"], Path(module.params["folder"]), check=module.check_mode)
    except DrafthouseError as error:
        module.fail_json(**error.result)
    module.exit_json(changed=found.changed, path=found.path, version=found.version)


if __name__ == "__main__":
    main()
