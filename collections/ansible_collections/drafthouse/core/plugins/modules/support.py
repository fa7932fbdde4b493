#!/usr/bin/python
"""Gather the texts of a box for a support bundle, without secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: support
short_description: Gather the texts of a box for a support bundle
description:
  - Returns the ends of logs, the server's files, the box's history, versions, and what Docker reports about our
    containers. Files are chosen by name; folders with keys are left out.
  - Secrets are removed before anything leaves the box.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  engine_home: {description: Folder of the engine's environment., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Write a support bundle
  drafthouse.core.support:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run, {'box': drafthouse_box}) }}"
    checks: "{{ checks }}"
    folder: build/support
"""
RETURN = r"""
texts: {description: Texts by their file names in the bundle., returned: success, type: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.operate.support_facts import gather


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"home": {"type": "path", "required": True}, "engine_home": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, texts=gather(Path(given["home"]), Path(given["engine_home"])))


if __name__ == "__main__":
    main()
