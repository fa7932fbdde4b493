#!/usr/bin/python
"""Keep exactly the given arms running under our own supervisord, without root or systemd."""

from __future__ import annotations

DOCUMENTATION = r"""
module: supervised
short_description: Keep arms running under our own supervisord
description:
  - Writes one configuration, starts supervisord if it does not run, starts the given arms and stops others.
  - Runs with the Python of the box's own environment, which has supervisor.
  - An arm whose script changed is restarted; a second run changes nothing.
attributes:
  check_mode: {support: full, description: Tells what would be started and stopped.}
  diff_mode: {support: full, description: Shows the configuration.}
options:
  home: {description: "Folder of the configuration, the socket, the pid file and the logs.", type: path, required: true}
  arms:
    description: The arms, and the port of each. Empty stops all, and the supervisor.
    type: dict
    required: true
  scripts: {description: Folder with the script of each arm as ARM/serve.sh., type: path, required: true}
  path: {description: "Folder of the engine's programs, first on the PATH of the scripts.", type: path}
  logs: {description: "Folder for the output of each arm, as ARM.log.", type: path, required: true}
  as_first_process:
    description:
      - Also give the arms the CUDA variables and the PATH of the container's first process, which SSH sessions to a
        rented container do not have. Keys and tokens are left out.
    type: bool
    default: false
  fresh: {description: Restart the arms even if nothing changed., type: bool, default: false}
author: Drafthouse
"""
EXAMPLES = r"""
- name: Run the baseline arm
  drafthouse.core.supervised:
    home: /opt/drafthouse/supervisor
    arms: {baseline: 8000}
    scripts: /opt/drafthouse/serve/rtx6000-qwen-eagle3
    path: /opt/drafthouse/engines/vllm-0.32.0/bin
    logs: /opt/drafthouse/logs
"""
RETURN = r"""
started: {description: Arms that were started or restarted., returned: always, type: list}
stopped: {description: Arms that were stopped., returned: always, type: list}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import failing
from ..module_utils.core.first_process import for_engines, search_path
from ..module_utils.core.procfs import first_environment
from ..module_utils.host.venv import is_of_image
from ..module_utils.serving.supervisor import Program, Supervisor, configuration


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "home": {"type": "path", "required": True},
            "arms": {"type": "dict", "required": True},
            "scripts": {"type": "path", "required": True},
            "path": {"type": "path"},
            "logs": {"type": "path", "required": True},
            "as_first_process": {"type": "bool", "default": False},
            "fresh": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    supervisor = Supervisor(Path(given["home"]))
    first = first_environment() if given["as_first_process"] else {}
    programs = [
        Program(
            name=arm,
            command=[f"{given['scripts']}/{arm}/serve.sh", "--port", str(port)],
            log=f"{given['logs']}/{arm}.log",
            folder=given["path"] or "",
            path=search_path(first),
            environment=for_engines(first, brings_cuda=not is_of_image(Path(given["path"] or "").parent)),
        )
        for arm, port in given["arms"].items()
    ]
    wanted = configuration(supervisor.home, programs)
    before = supervisor.present_configuration()
    running = supervisor.running()
    file = str(supervisor.file)
    diff = {"before": before, "after": wanted, "before_header": file, "after_header": file}
    names = [program.name for program in programs]
    if module.check_mode:
        start = [name for name in names if name not in running or before != wanted or given["fresh"]]
        stop = [name for name in running if name not in names]
        module.exit_json(changed=bool(start or stop), started=start, stopped=stop, diff=diff)
    with failing(module):
        if names:
            started, stopped = supervisor.converge(wanted, names, given["fresh"])
        else:
            started, stopped = [], supervisor.shut_down()
    changed = bool(started or stopped) or (bool(names) and before != wanted)
    module.exit_json(changed=changed, started=started, stopped=stopped, diff=diff if changed else {})


if __name__ == "__main__":
    main()
