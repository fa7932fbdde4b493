#!/usr/bin/python
"""Read what a box is, without changing it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: box_facts
short_description: Read what a box is, without changing it
description:
  - Returns GPUs, memory, disk, Python and who holds the ports, as plain data.
attributes:
  check_mode: {support: full, description: It changes nothing at any time.}
options:
  paths: {description: Folders whose file systems are asked for free space., type: list, elements: str, required: true}
  present: {description: Paths of which is told whether they are there., type: list, elements: str, default: []}
  gpus:
    description: >-
      Indices or UUIDs of the GPUs that are meant; none means those of CUDA_VISIBLE_DEVICES, or else all.
    type: list
    elements: str
    default: []
  files: {description: Small files of which mode and hash are told., type: list, elements: str, default: []}
  environments: {description: Environments of which the stamp is told., type: list, elements: str, default: []}
  hub:
    description: Weights of the hub (path, repo, commit) of which is told how much its client's cache gives by a link.
    type: list
    elements: dict
    default: []
  ports: {description: TCP ports of which is told who listens., type: list, elements: int, required: true}
  supervisor_pidfile: {description: File with the pid of our supervisor., type: path, required: true}
  private_subnet: {description: The network in which the hosts of one model reach each other., type: str}
  home: {description: Our folder on the box; of it is told what should serve., type: path}
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
    """Answer Ansible."""
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
    sizes = {one["path"]: cache.linked_bytes(one["repo"], one["commit"], Path(one["path"])) for one in given["hub"]}
    box["cached"] = {path: size for path, size in sizes.items() if size}
    box["environments"] = {
        path: stamp for path in given["environments"] if (stamp := read_stamp(Path(path))) and has_python(Path(path))
    }
    box["programs"] = programs(Path(home)) if home else []
    box["digests"] = digests(given["files"])
    box["served"] = _served(home)
    if given["private_subnet"]:
        box["private"] = private_network(given["private_subnet"])
    module.exit_json(changed=False, box=box)


def _served(home: str | None) -> ServedNow | None:
    """What should serve, None where nothing should.

    ``drift``: why something else does, '' where not. ``identity``: what is put on a box for it, as a hash. ``keys``: of
    the results of what served, the newest first.
    """
    now = current_server(home) if home else None
    if not now or not home:
        return None
    try:
        known = str(read_release(home, str(now["release"])).resolved.get("identity") or "")
    except DrafthouseError:
        known = ""  # `drift` says what is wrong with it
    return {**now, "drift": drift(home), "identity": known, "keys": result_keys(home)}


if __name__ == "__main__":
    main()
