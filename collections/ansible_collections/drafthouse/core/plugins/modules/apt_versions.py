#!/usr/bin/python
"""Say which versions of packages apt can install, without changing anything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_versions
short_description: Say which versions of packages apt can install
description:
  - Reads apt's index as it is. There is no builtin module for it; C(ansible.builtin.apt) fails where a package is
    missing, after it may have changed others.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  packages: {description: Names of packages., type: list, elements: str, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Ask for the headers
  drafthouse.core.apt_versions:
    packages: [linux-headers-6.8.0-31-generic]
"""
RETURN = r"""
versions: {description: "For each of the packages its versions, newest first.", returned: always, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.apt_repository import versions


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, versions=versions(module.params["packages"]))


if __name__ == "__main__":
    main()
