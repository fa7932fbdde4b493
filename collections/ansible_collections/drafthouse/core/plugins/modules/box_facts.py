#!/usr/bin/python
"""Read the facts of a box, without changing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: box_facts
short_description: Read the facts of a box, without changing it
description:
  - Returns GPUs, memory, disk, Python, the holders of ports and more, as plain data.
attributes:
  check_mode: {support: full, description: It never changes anything.}
options:
  paths: {description: Folders whose free disk space is read., type: list, elements: str, required: true}
  present: {description: Paths whose existence is checked., type: list, elements: str, default: []}
  gpus:
    description: Indices or UUIDs of the chosen GPUs; empty means those of CUDA_VISIBLE_DEVICES, or else all.
    type: list
    elements: str
    default: []
  files: {description: Small files whose mode and hash are read., type: list, elements: str, default: []}
  environments: {description: Python environments whose stamp is read., type: list, elements: str, default: []}
  hub:
    description: Weights of the hub (path, repo, commit), for the bytes that links into its client's cache can provide.
    type: list
    elements: dict
    default: []
  ports: {description: TCP ports whose listeners are read., type: list, elements: int, required: true}
  supervisor_pidfile: {description: File with the pid of our supervisor., type: path, required: true}
  private_subnet: {description: The network in which the hosts of one model reach each other., type: str}
  home: {description: "Our folder on the box, for what should serve and our programs.", type: path}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the box's state
  drafthouse.core.box_facts:
    paths: [/opt/drafthouse]
    ports: [8000]
    supervisor_pidfile: /opt/drafthouse/supervisor/supervisord.pid
"""
RETURN = r"""
box: {description: The facts., returned: always, type: dict}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError
from ..module_utils.core.files import digests
from ..module_utils.core.redact import redactor
from ..module_utils.host.box_facts import read_box
from ..module_utils.host.box_types import ServedNow
from ..module_utils.host.env_stamp import has_python, read_stamp
from ..module_utils.host.private_network import private_network
from ..module_utils.operate.support_facts import redactor_of
from ..module_utils.serving.old_programs import programs
from ..module_utils.serving.releases import current_server, read_release, result_keys
from ..module_utils.serving.restore import drift
from ..module_utils.weights.hub_habits import client_cache


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "paths": {"type": "list", "elements": "str", "required": True},
            "present": {"type": "list", "elements": "str", "default": []},
            "gpus": {"type": "list", "elements": "str", "default": []},
            "hub": {"type": "list", "elements": "dict", "default": []},
            "files": {"type": "list", "elements": "str", "default": []},
            "environments": {"type": "list", "elements": "str", "default": []},
            "ports": {"type": "list", "elements": "int", "required": True},
            "supervisor_pidfile": {"type": "path", "required": True},
            "private_subnet": {"type": "str"},
            "home": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    home = given["home"]
    redact = redactor_of(Path(home)) if home else redactor()
    box = read_box(given["paths"], given["ports"], given["supervisor_pidfile"], redact, given["gpus"])
    box["present"] = [path for path in given["present"] if Path(path).exists()]
    cache = client_cache()
    box["cached"] = {}
    for item in given["hub"]:
        size = cache.linked_bytes(item["repo"], item["commit"], Path(item["path"]))
        if size:
            box["cached"][item["path"]] = size
    box["environments"] = {}
    for path in given["environments"]:
        stamp = read_stamp(Path(path))
        if stamp and has_python(Path(path)):
            box["environments"][path] = stamp
    box["programs"] = programs(Path(home)) if home else []
    box["digests"] = digests(given["files"])
    box["served"] = _served(home)
    if given["private_subnet"]:
        box["private"] = private_network(given["private_subnet"])
    module.exit_json(changed=False, box=box)


def _served(home: str | None) -> ServedNow | None:
    """The server that should serve; None if none should.

    ``drift``: why it does not serve as it should, "" if it does. ``identity``: hash of the files of its profile.
    ``keys``: of the results of the recorded releases, newest first.
    """
    server = current_server(home) if home else None
    if not server or not home:
        return None
    try:
        identity = str(read_release(home, str(server["release"])).resolved.get("identity") or "")
    except DrafthouseError:
        identity = ""  # `drift` reports what is wrong with the release
    return {**server, "drift": drift(home), "identity": identity, "keys": result_keys(home)}


if __name__ == "__main__":
    main()
