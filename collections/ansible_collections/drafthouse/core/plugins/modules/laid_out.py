#!/usr/bin/python
"""Write a list of folders and files, in one task."""

from __future__ import annotations

DOCUMENTATION = r"""
module: laid_out
short_description: Write a list of folders and files
description:
  - One round trip for the list, in place of one or two for each folder and file with builtin modules.
attributes:
  check_mode: {support: full, description: Tells what it would change.}
  diff_mode: {support: full, description: Shows every file that differs.}
options:
  entries:
    description: Folders and files, in order. A folder comes before its files.
    type: list
    elements: dict
    required: true
    suboptions:
      path: {description: Path on the box., type: path, required: true}
      mode: {description: Octal digits., type: str, required: true}
      content: {description: Content of the file. Without it the entry is a folder., type: str}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Install a folder and a file in it
  drafthouse.core.laid_out:
    entries:
      - {path: /opt/drafthouse/serve, mode: "0755"}
      - {path: /opt/drafthouse/serve/serve.sh, mode: "0755", content: "#!/bin/bash\n"}
"""
RETURN = r"""
paths: {description: Changed paths., returned: success, type: list, elements: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.files import lay_out


def main() -> None:
    """Run the module."""
    entry = {
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "required": True},
        "content": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec={"entries": {"type": "list", "elements": "dict", "required": True, "options": entry}},
        supports_check_mode=True,
    )
    with failing(module):
        done = lay_out(module.params["entries"], module.check_mode)
    module.exit_json(changed=bool(done.changed), paths=done.changed, diff=done.diff)


if __name__ == "__main__":
    main()
