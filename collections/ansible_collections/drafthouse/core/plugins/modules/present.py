#!/usr/bin/python
"""Say which paths are there: one answer for a list."""

from __future__ import annotations

DOCUMENTATION = r"""
module: present
short_description: Say which paths are there
description:
  - What a loop over ansible.builtin.stat says, in one round trip.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  paths: {description: Files or folders., type: list, elements: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Look for both
  drafthouse.core.present:
    paths: [/var/run/docker.sock, /opt/drafthouse/venv/bin/python]
"""
RETURN = r"""
paths: {description: Those that are there., returned: success, type: list, elements: str}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={"paths": {"type": "list", "elements": "path", "required": True}}, supports_check_mode=True
    )
    module.exit_json(changed=False, paths=[path for path in module.params["paths"] if Path(path).exists()])


if __name__ == "__main__":
    main()
