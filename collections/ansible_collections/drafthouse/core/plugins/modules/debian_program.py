#!/usr/bin/python
"""Find a program of the gateway or the monitoring, or unpack the distribution's."""

from __future__ import annotations

DOCUMENTATION = r"""
module: debian_program
short_description: Find a program of the gateway or the monitoring, or unpack the distribution's
description:
  - Takes the program that is named, else one that is installed, else the distribution's package, which apt downloads
    and checks and which is unpacked into a folder of ours. Nothing is installed, no unit is started.
  - A newer package of the distribution replaces the unpacked one.
attributes:
  check_mode: {support: full, description: Says whether it would unpack one.}
options:
  name: {description: The program., type: str, choices: [blackbox, caddy, node, prometheus], required: true}
  path: {description: The program. Empty looks for one., type: str, default: ""}
  folder: {description: Where to unpack it., type: path, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Find Prometheus
  drafthouse.core.debian_program:
    name: prometheus
    folder: /opt/drafthouse/monitoring/bin/prometheus
"""
RETURN = r"""
path: {description: The program., returned: success, type: str}
version: {description: Its version., returned: success, type: str}
stamp: {description: What another file of it changes; empty where check mode has none., returned: success, type: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.host.deb_unpack import ensure
from ..module_utils.host.debian_programs import PROGRAMS


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True, "choices": list(PROGRAMS)},
            "path": {"type": "str", "default": ""},
            "folder": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    with failing(module):
        found = ensure(PROGRAMS[given["name"]], given["path"], Path(given["folder"]), check=module.check_mode)
    module.exit_json(changed=found.changed, path=found.path, version=found.version, stamp=_stamp(Path(found.path)))


def _stamp(program: Path) -> str:
    """Return what another file changes. A version does not tell: the distribution mends one under the same."""
    try:
        seen = program.stat()
    except OSError:
        return ""
    return f"{seen.st_size} {seen.st_mtime_ns}"


if __name__ == "__main__":
    main()
