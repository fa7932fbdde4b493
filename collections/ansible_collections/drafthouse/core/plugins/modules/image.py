#!/usr/bin/python
"""Ensure that a container image is on the box: the same one that its tag named at the first pull."""

from __future__ import annotations

DOCUMENTATION = r"""
module: image
short_description: Ensure that an image is on the box, the same one as at the first pull
description:
  - Compares the image on the box, or its tag in the registry, with the digest that was pinned.
  - The action of the same name keeps the pins, and calls this again to pull a missing image.
  - Runs with the Python of the box's own environment, which has Docker's SDK.
attributes:
  check_mode: {support: full, description: "Compares, but pulls nothing."}
options:
  name: {description: "The image: name:tag, or with @digest.", type: str, required: true}
  digest: {description: The pinned digest of the tag; empty at first use., type: str, default: ""}
  id: {description: "The pinned id, for an image that was loaded from a file.", type: str, default: ""}
  pull: {description: Name to pull first; the image then gets the tag of I(name)., type: str, default: ""}
  offline: {description: Query no registry; fail if the box lacks the image., type: bool, default: false}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Ensure the engine's image is there
  drafthouse.core.image:
    name: "{{ drafthouse_profile.engine.image }}"
"""
RETURN = r"""
present: {description: Whether the box has it., returned: success, type: bool}
digest: {description: Its digest; empty for an image that comes from no registry., returned: success, type: str}
id: {description: Its id., returned: success, type: str}
pull: {description: Name to pull if the box lacks it., returned: success, type: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.host.docker.image_digest import check, require_on_box, tag_pulled
from ..module_utils.host.docker.images import pull


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "digest": {"type": "str", "default": ""},
            "id": {"type": "str", "default": ""},
            "pull": {"type": "str", "default": ""},
            "offline": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    with failing(module):
        if given["offline"]:
            require_on_box(given["name"])
        if given["pull"] and not module.check_mode:
            pull(given["pull"])
            if given["pull"] != given["name"]:
                tag_pulled(given["pull"], given["name"])
        found = check(given["name"], given["digest"], given["id"])
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
