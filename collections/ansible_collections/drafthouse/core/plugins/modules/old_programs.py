#!/usr/bin/python
"""Remove archives of earlier versions' programs that nothing on the box uses any more."""

from __future__ import annotations

DOCUMENTATION = r"""
module: old_programs
short_description: Remove archives of earlier versions' programs that nothing on the box uses any more
description:
  - Keeps an archive from which a process runs, or which a script of ours starts. A later run removes it.
attributes:
  check_mode: {support: full, description: Tells what it would remove.}
options:
  home: {description: Our folder on the box., type: path, required: true}
  keep: {description: Name of this version's archive., type: str, required: true}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Remove programs of earlier releases
  drafthouse.core.old_programs:
    home: /opt/drafthouse
    keep: drafthouse-0123456789ab.pyz
"""
RETURN = r"""
paths: {description: Removed archives., returned: success, type: list, elements: str}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.serving.old_programs import remove_old


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"home": {"type": "path", "required": True}, "keep": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    try:
        paths = remove_old(Path(module.params["home"]), module.params["keep"], module.check_mode)
    except OSError as error:
        module.fail_json(msg=f"a program of an earlier release cannot be removed: {error}")
    module.exit_json(changed=bool(paths), paths=paths)


if __name__ == "__main__":
    main()
