#!/usr/bin/python
"""See that nobody else listens where an engine is about to."""

from __future__ import annotations

DOCUMENTATION = r"""
module: port_free
short_description: Fail where another program holds an engine's port
description:
  - Names the process that listens on one of I(ports), unless it is an engine of ours.
  - What took a port since preflight is found here, before Docker fails without a name.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  host: {description: The address that the engines listen on., type: str, required: true}
  ports: {description: The ports., type: list, elements: int, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Verify that the ports are free
  drafthouse.core.port_free:
    home: /opt/drafthouse
    host: 127.0.0.1
    ports: [8000]
"""
RETURN = r""""""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.host.port_holder import stranger_at


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "host": {"type": "str", "required": True},
            "ports": {"type": "list", "elements": "int", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    problems = [found for port in given["ports"] if (found := stranger_at(port, given["host"], given["home"]))]
    if problems:
        module.fail_json(**DrafthouseError(problems).result)
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
