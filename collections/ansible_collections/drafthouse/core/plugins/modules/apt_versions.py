#!/usr/bin/python
"""List the versions of packages that apt can install, without changing anything."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_versions
short_description: List the versions of packages that apt can install
description:
  - Reads apt's index without updating it. No builtin module does that; C(ansible.builtin.apt) fails if a package is
    missing, after it may have changed others.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  packages: {description: Names of packages., type: list, elements: str, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the versions of the kernel headers
  drafthouse.core.apt_versions:
    packages: [linux-headers-6.8.0-31-generic]
"""
RETURN = r"""
versions: {description: "For each of the packages its versions, newest first.", returned: always, type: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.apt_repository import versions


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"packages": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, versions=versions(module.params["packages"]))


if __name__ == "__main__":
    main()
