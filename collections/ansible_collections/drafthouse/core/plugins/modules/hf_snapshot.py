#!/usr/bin/python
"""Download one repository of the Hugging Face hub, and verify every file."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hf_snapshot
short_description: Download one repository of the Hugging Face hub, and verify every file
description:
  - Downloads the missing files of a revision, and verifies every file against the hashes of that revision.
  - Files in the cache of the hub's own client (HF_HUB_CACHE, HF_HOME) are verified and used.
  - A download that was killed is resumed. A file that was verified before costs one stat.
  - Needs huggingface_hub, so it runs with the Python of the box's own environment.
attributes:
  check_mode: {support: full, description: "Tells what would be downloaded; queries the hub, and reads no file."}
options:
  repo: {description: Name of the repository., type: str, required: true}
  revision:
    description: >-
      A commit (40 hex digits); or a branch or V(unresolved), which is resolved once, recorded and kept. A note tells if
      the branch has moved since.
    type: str
    required: true
  dest:
    description: The folder of the files; with O(hub_cache) that of the hub's own cache.
    type: path
    required: true
  file: {description: "Only this file of the repository, in O(dest) beside others.", type: str}
  hub_cache: {description: Keep the files in the layout of the hub's own cache., type: bool, default: false}
  allow: {description: Patterns of the files that are wanted; none means all., type: list, elements: str, default: []}
  ignore: {description: Patterns of files that are not wanted., type: list, elements: str, default: []}
  hub_token:
    description: >-
      Token for gated repositories. An option and not the environment, which process lists show. Without it (and
      O(token_file)) HF_TOKEN of the box, or what the login of the hub's client left there.
    type: str
  token_file: {description: File on the box that holds the token; nobody else may read it., type: path}
  endpoint: {description: Address of the hub or of a mirror; HF_ENDPOINT where none is given., type: str}
  offline: {description: Ask no hub; fail unless all is there and was verified., type: bool, default: false}
  verify: {description: Read every byte again., type: bool, default: false}
  repin: {description: Resolve a branch or V(unresolved) anew., type: bool, default: false}
  allow_pickle:
    description: Patterns of pickled files that are allowed. All others are refused, because loading them runs code.
    type: list
    elements: str
    default: []
  stall_s: {description: Seconds without a byte after which a connection is given up., type: float, default: 60}
  tries: {description: Attempts in a row without a new byte after which it fails., type: int, default: 6}
  max_workers: {description: Files that are downloaded at the same time., type: int, default: 8}
  xet: {description: Use the hub's Xet store for files that lie there., type: bool, default: true}
  margin_mb: {description: MiB of the disk that stay free., type: int, default: 256}
  hash_apart: {description: Hash after the transfer instead of during it (to measure both)., type: bool, default: false}
  progress_file: {description: Where progress is written as JSON lines., type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Download the target model
  drafthouse.core.hf_snapshot:
    repo: openai/gpt-oss-120b
    revision: b5c939de8f754692c1647ca79fbf85e8c1e70f8a
    ignore: ["original/*", "metal/*"]
    dest: /models/original/gpt-oss-120b
"""
RETURN = r"""
commit: {description: The commit of the files., returned: success, type: str}
location: {description: "The folder, or the one file.", returned: success, type: str}
changed: {description: Whether something was downloaded., returned: always, type: bool}
bytes: {description: Bytes of all files., returned: success, type: int}
files: {description: Number of files., returned: success, type: int}
bytes_fetched: {description: "Downloaded bytes, or in check mode those to download.", returned: success, type: int}
bytes_skipped: {description: Bytes of files that were there and verified., returned: success, type: int}
seconds: {description: Total time., returned: success, type: float}
transfer_seconds: {description: Time in which at least one file was transferred., returned: success, type: float}
hash_seconds: {description: "Time of hashing, summed over threads.", returned: success, type: float}
rate: {description: Bytes per second while transferring., returned: success, type: int}
notes: {description: Lines for a person., returned: success, type: list}
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing, one_problem
from ..module_utils.core.progress import Progress
from ..module_utils.core.retry import Patience
from ..module_utils.weights.download import Limits, disk_trouble
from ..module_utils.weights.hub_habits import client_cache, usual_token
from ..module_utils.weights.snapshot import Settings, Wish, place_snapshots


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "file": {"type": "str"},
            "hub_cache": {"type": "bool", "default": False},
            "allow": {"type": "list", "elements": "str", "default": []},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "hub_token": {"type": "str", "no_log": True},
            "token_file": {"type": "path", "no_log": False},
            "endpoint": {"type": "str"},
            "offline": {"type": "bool", "default": False},
            "verify": {"type": "bool", "default": False},
            "repin": {"type": "bool", "default": False},
            "allow_pickle": {"type": "list", "elements": "str", "default": []},
            "stall_s": {"type": "float", "default": 60},
            "tries": {"type": "int", "default": 6},
            "max_workers": {"type": "int", "default": 8},
            "xet": {"type": "bool", "default": True},
            "margin_mb": {"type": "int", "default": 256},
            "hash_apart": {"type": "bool", "default": False},
            "progress_file": {"type": "path"},
        },
        mutually_exclusive=[("hub_token", "token_file"), ("hub_cache", "file")],
        supports_check_mode=True,
    )
    given = module.params
    with failing(module):
        (done,) = place_snapshots([_wish(given)], Progress(given["progress_file"]), _settings(given), module.check_mode)
    # Ansible adds owner, mode and size of whatever a result calls path.
    module.exit_json(location=done["path"], **{name: value for name, value in done.items() if name != "path"})


def _settings(given: dict[str, Any]) -> Settings:
    patience = Patience(tries=max(1, given["tries"]))
    return Settings(
        limits=Limits(stall_s=given["stall_s"], xet=given["xet"], patience=patience),
        streams=max(1, given["max_workers"]),
        margin=given["margin_mb"] << 20,
        hash_apart=given["hash_apart"],
    )


def _wish(given: dict[str, Any]) -> Wish:
    file = given["file"]
    return Wish(
        repo=given["repo"],
        revision=given["revision"],
        path=Path(given["dest"]) / file if file else Path(given["dest"]),
        item=given["repo"],
        allow=(file,) if file else tuple(given["allow"]),
        ignore=tuple(given["ignore"]),
        token=given["hub_token"] or _token(given["token_file"]) or usual_token(),
        endpoint=given["endpoint"],
        one_file=bool(file),
        hub_cache=given["hub_cache"],
        offline=given["offline"],
        verify=given["verify"],
        repin=given["repin"],
        allow_pickle=tuple(given["allow_pickle"]),
        client_cache=client_cache(),
    )


def _token(file: str | None) -> str | None:
    """Token in a file of the box; None without a file or a token. Raises DrafthouseError if others can read it."""
    if not file:
        return None
    path = Path(file)
    with disk_trouble(path):
        if path.stat().st_mode & 0o077:
            found = "a token that others can read"
            needed = "a file that only its owner can read"
            raise one_problem("api-key-exposed", found, needed, f"chmod 600 {file}", file)
        return path.read_text("utf-8").strip() or None


if __name__ == "__main__":
    main()
