#!/usr/bin/python
"""List which of some paths exist."""

from __future__ import annotations

DOCUMENTATION = r"""
module: present
short_description: List which of some paths exist
description:
  - As a loop over M(ansible.builtin.stat), in one round trip.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  paths: {description: Files or folders., type: list, elements: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather which of both exist
  drafthouse.core.present:
    paths: [/var/run/docker.sock, /opt/drafthouse/venv/bin/python]
"""
RETURN = r"""
paths: {description: Those that exist., returned: success, type: list, elements: str}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, paths=[path for path in module.params["paths"] if Path(path).exists()])


if __name__ == "__main__":
    main()
