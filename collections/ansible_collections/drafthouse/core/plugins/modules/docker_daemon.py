#!/usr/bin/python
"""Merge settings into Docker's daemon.json, and restore the old file if the engine does not start with them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon
short_description: Merge settings into Docker's daemon.json, and restore it if the engine does not start with them
description:
  - Never overwrites a key of the user's own. What contradicts I(settings) or I(data_root) is refused; log
    rotation and the cgroup driver give way.
  - Writes the file with a backup, lets C(dockerd --validate) read it first where dockerd can, restarts the
    engine and waits for it. Where it does not come back, the old file is put back, the engine is started
    again, and the task fails with the engine's own reason.
  - A record beside the file (C(daemon.json.drafthouse)) remembers which values are ours, so that they can be
    changed and taken out again, and whether a change was brought to its end, so that a killed run converges.
attributes:
  check_mode: {support: full, description: "Merges, validates and refuses, but writes and restarts nothing."}
  diff_mode: {support: full, description: "Shows the file, without passwords in addresses."}
  idempotent: {support: full, description: A file that says all that is wished is left as it is.}
options:
  state:
    description: C(absent) takes our values out of the file of an engine that was removed, and the record away.
    type: str
    choices: [present, absent]
    default: present
  path: {description: Docker's file., type: path, default: /etc/docker/daemon.json}
  settings: {description: Settings that the file shall have., type: dict, default: {}}
  data_root: {description: Folder for images and containers. Empty leaves it to the user., type: str, default: ""}
  log_max_size: {description: Size at which a container's log is rotated., type: str, default: 50m}
  log_max_file: {description: Files to keep of it. 0 leaves logs alone., type: int, default: 3}
  nvidia: {description: Let C(nvidia-ctk runtime configure) add NVIDIA's entries., type: bool, default: false}
  reload_safe:
    description: With I(nvidia), use the cgroupfs driver, so that C(systemctl daemon-reload) takes no GPU away.
    type: bool
    default: true
  restart: {description: Restart an engine although containers run that would stop., type: bool, default: false}
  timeout_s: {description: Seconds to wait for the engine., type: int, default: 120}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Rotate logs and keep images on the big disk
  drafthouse.core.docker_daemon:
    data_root: /data/docker
    settings: {live-restore: true}
"""
RETURN = r"""
restarted: {description: Whether the engine was restarted or started., returned: success, type: bool}
left: {description: Wishes that gave way to the user's own settings., returned: success, type: list, elements: str}
notes: {description: What else a person should know., returned: success, type: list, elements: str}
backup_file: {description: Where the file from before lies., returned: when there was one, type: str}
seconds: {description: Wall-clock time., returned: success, type: float}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.host.docker.daemon import Daemon
from ..module_utils.host.docker.daemon_json import redacted
from ..module_utils.host.docker.daemon_plan import Wishes


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "settings": {"type": "dict", "default": {}},
            "data_root": {"type": "str", "default": ""},
            "log_max_size": {"type": "str", "default": "50m"},
            "log_max_file": {"type": "int", "default": 3},
            "nvidia": {"type": "bool", "default": False},
            "reload_safe": {"type": "bool", "default": True},
            "restart": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    given = module.params
    wishes = Wishes(
        settings=given["settings"],
        data_root=given["data_root"],
        max_size=given["log_max_size"],
        max_file=given["log_max_file"],
        nvidia=given["nvidia"],
        reload_safe=given["reload_safe"],
    )
    daemon = Daemon(given["path"], float(given["timeout_s"]))
    if given["state"] == "absent":
        with failing(module):
            module.exit_json(changed=daemon.take_out(module.check_mode))
    with failing(module):
        done = daemon.apply(wishes, given["restart"], module.check_mode)
    texts = {"before": redacted(done.before), "after": redacted(done.after)}
    diff = {**texts, "before_header": given["path"], "after_header": given["path"]}
    result = {"left": done.left, "notes": done.notes, "restarted": done.restarted, "seconds": done.seconds}
    if done.backup:
        result["backup_file"] = done.backup
    module.exit_json(changed=done.changed, diff=diff if done.before != done.after else {}, **result)


if __name__ == "__main__":
    main()
