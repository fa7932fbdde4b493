#!/usr/bin/python
"""Gather what of a box goes into a support bundle, without secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: support
short_description: Gather what of a box goes into a support bundle
description:
  - Returns the ends of logs, the files that serve, the box's own history, versions, and what Docker says of our
    containers, as texts. Files are taken by name; no folder of keys is among them.
  - Secrets are taken out before anything leaves the box.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  engine_home: {description: Folder of the engine's environment., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather
  drafthouse.core.support:
    resolved: "{{ drafthouse_profile | combine(drafthouse_run, {'box': drafthouse_box}) }}"
    checks: "{{ checks }}"
    folder: build/support
"""
RETURN = r"""
texts: {description: The texts by their names in the bundle., returned: success, type: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.operate.support_facts import gather


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "engine_home": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, texts=gather(Path(given["home"]), Path(given["engine_home"])))


if __name__ == "__main__":
    main()
