#!/usr/bin/python
"""See that an image of containers is the one that its tag was at the first pull."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image
short_description: See that an image is the one that its tag was at the first pull
description:
  - Compares the image on the box, or its tag in the registry, with the digest that was pinned; pulls nothing itself.
  - The action of the same name knows what was pinned, pulls what is missing, and writes down what was pulled.
attributes:
  check_mode: {support: full, description: Compares as well.}
options:
  name: {description: "The image: name:tag, or with @digest.", type: str, required: true}
  digest: {description: The digest that the tag was pinned with; an empty text at first use., type: str, default: ""}
  id: {description: "The image's own id then, for one that was loaded from a file.", type: str, default: ""}
  pulled: {description: By which name it was pulled; it gets its tag., type: str, default: ""}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Fetch the engine's image
  drafthouse.core.image:
    name: "{{ drafthouse_profile.engine.image }}"
"""
RETURN = r"""
present: {description: Whether the box has it., returned: success, type: bool}
digest: {description: Its digest; empty where no registry knows it., returned: success, type: str}
id: {description: Its own id., returned: success, type: str}
pull: {description: What to pull where the box lacks it., returned: success, type: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.host.docker.image_digest import check, name_it


def main() -> None:
    """Answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "digest": {"type": "str", "default": ""},
            "id": {"type": "str", "default": ""},
            "pulled": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        if given["pulled"] not in ("", given["name"]) and not module.check_mode:
            name_it(given["pulled"], given["name"])
        found = check(given["name"], given["digest"], given["id"])
    except DrafthouseError as error:
        module.fail_json(**error.result)
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
