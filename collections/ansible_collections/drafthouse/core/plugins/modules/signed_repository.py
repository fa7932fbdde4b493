#!/usr/bin/python
"""Add an apt repository after a check that its index is signed by the expected key."""

from __future__ import annotations

DOCUMENTATION = r"""
module: signed_repository
short_description: Add an apt repository after a check of its signature
description:
  - Downloads the repository's index to a temporary folder. If apt finds it signed by the key with this fingerprint,
    writes pins, key, and source in deb822 form, with key and fingerprint in C(Signed-By).
  - C(ansible.builtin.deb822_repository) checks nothing and needs a package on the box, and apt itself only warns if the
    index of a known repository is suddenly signed by another key.
attributes:
  check_mode: {support: full, description: The check is the same; nothing is written.}
  diff_mode: {support: full, description: Shows the files.}
  idempotent: {support: full, description: The check is made again; right files are left as they are.}
options:
  name: {description: Name of the files., type: str, required: true}
  state: {description: "C(absent) removes the files.", type: str, choices: [present, absent], default: present}
  url: {description: Address of the repository. Required unless absent., type: str}
  key_url: {description: "Address of its key; C(file:) names a file of the box. Required unless absent.", type: str}
  fingerprint:
    description: Of the primary key; others are refused, even in the same file. Required unless absent.
    type: str
  suite: {description: "Its suite; C(/) for a flat repository.", type: str, default: /}
  components: {description: Its components., type: list, elements: str, default: []}
  pins: {description: Packages that may come from it. Empty allows all., type: list, elements: str, default: []}
  leave: {description: Packages that may not come from it., type: list, elements: str, default: []}
  packages: {description: Packages whose versions are returned., type: list, elements: str, default: []}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Add Docker's repository
  drafthouse.core.signed_repository:
    name: drafthouse-docker
    url: https://download.docker.com/linux/debian
    suite: trixie
    components: [stable]
    key_url: https://download.docker.com/linux/debian/gpg
    fingerprint: 9DC858229FC7DD38854AE2D88D81803C0EBFCD88
"""
RETURN = r"""
files: {description: The files that were changed., returned: success, type: list, elements: str}
versions: {description: "For each of I(packages) its versions there, newest first.", returned: success, type: dict}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from dataclasses import fields

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ..module_utils.core.errors import failing
from ..module_utils.host.apt_repository import Repository, add, take_away

_KEY_BYTES = 1_000_000


def fetch(address: str) -> bytes:
    """The first MB of a file at ``address``. Raises OSError."""
    try:
        with open_url(address, timeout=30) as answer:
            return bytes(answer.read(_KEY_BYTES))
    except OSError:
        raise
    except Exception as error:  # open_url has errors of its own for TLS and redirections
        raise OSError(str(error)) from error


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "url": {"type": "str"},
            "key_url": {"type": "str", "no_log": False},
            "fingerprint": {"type": "str"},
            "suite": {"type": "str", "default": "/"},
            "components": {"type": "list", "elements": "str", "default": []},
            "pins": {"type": "list", "elements": "str", "default": []},
            "leave": {"type": "list", "elements": "str", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "present", ("url", "key_url", "fingerprint"))],
        supports_check_mode=True,
    )
    given = module.params
    if given["state"] == "absent":
        gone = take_away(given["name"], module.check_mode)
        module.exit_json(changed=bool(gone), files=gone, versions={})
    given["fingerprint"] = given["fingerprint"].replace(" ", "").upper()
    repository = Repository(**{part.name: given[part.name] for part in fields(Repository)})
    with failing(module):
        done = add(repository, fetch, given["packages"], module.check_mode)
    files = done.files.changed
    module.exit_json(
        changed=bool(files), files=files, named_in=done.named_in, versions=done.versions, diff=done.files.diff
    )


if __name__ == "__main__":
    main()
