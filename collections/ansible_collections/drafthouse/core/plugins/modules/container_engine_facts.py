#!/usr/bin/python
"""Find out which container engine a box has, and decide what to install."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_engine_facts
short_description: Find out which container engine a box has, and decide what to install
description:
  - Reads only. Returns what to install, or fails with every reason against it before anything is touched.
  - An engine that works is left alone. Podman in Docker's name, Docker from a snap and a rootless engine on
    the system's socket are recognised and refused, each with the reason.
  - Reads C(daemon.json) too, so that a file that is not JSON, or says the opposite of what is wished, is found
    before the packages are installed.
attributes:
  check_mode: {support: full, description: Reads only.}
options:
  source:
    description: Docker's own packages or the distribution's.
    type: str
    choices: [docker, distribution]
    default: docker
  nvidia:
    description: Whether the NVIDIA container toolkit is wanted. C(auto) asks the PCI bus and nvidia-smi.
    type: str
    choices: [auto, always, never]
    default: auto
  users: {description: Users that must exist., type: list, elements: str, default: []}
  path: {description: Docker's file., type: path, default: /etc/docker/daemon.json}
  settings: {description: Settings that the file shall have., type: dict, default: {}}
  data_root: {description: Folder for the engine's data. Empty leaves it., type: str, default: ""}
  remove:
    description: Return the packages to remove instead; fails if containers run that are not ours.
    type: bool
    default: false
author: Drafthouse
"""
EXAMPLES = r"""
- name: Gather the container engine's state
  drafthouse.core.container_engine_facts:
    source: distribution
  register: __container_engine
"""
RETURN = r"""
engine: {description: What happens to the engine., returned: success, type: str, sample: left alone}
install: {description: Packages to install., returned: success, type: list, elements: str}
repository: {description: Whether Docker's repository is to be added., returned: success, type: bool}
nvidia: {description: Whether the NVIDIA container toolkit is wanted., returned: success, type: bool}
nvidia_install: {description: Whether it is to be installed., returned: success, type: bool}
gpu_visible: {description: Whether nvidia-smi shows a GPU., returned: success, type: bool}
remove: {description: Packages to remove., returned: when that was asked, type: list, elements: str}
complete: {description: Whether apt knows all of the packages., returned: success, type: bool}
unfinished: {description: Whether dpkg was interrupted., returned: success, type: bool}
distribution: {description: Folder of Docker's repository for this box., returned: success, type: str}
codename: {description: Code name of the release., returned: success, type: str}
architecture: {description: Debian's name of the processor., returned: success, type: str}
why: {description: "What was found, as lines for a person.", returned: success, type: list, elements: str}
problems: {description: What is wrong and what to do., returned: failure, type: list, elements: dict}
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.core.errors import DrafthouseError, Problem, failing
from ..module_utils.host.docker import engine as container_engine
from ..module_utils.host.docker.daemon import Daemon
from ..module_utils.host.docker.daemon_plan import Wishes, make_plan


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "choices": ["docker", "distribution"], "default": "docker"},
            "nvidia": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
            "users": {"type": "list", "elements": "str", "default": []},
            "path": {"type": "path", "default": "/etc/docker/daemon.json"},
            "settings": {"type": "dict", "default": {}},
            "data_root": {"type": "str", "default": ""},
            "remove": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    machine = container_engine.read_machine(given["users"])
    if given["remove"]:
        with failing(module):
            leaving = container_engine.leaving(machine, container_engine.running_containers())
        module.exit_json(changed=False, remove=leaving)
    problems: list[Problem] = []
    decision = container_engine.Decision("")
    try:
        decision = container_engine.decide(machine, given["source"], given["nvidia"])
    except DrafthouseError as error:
        problems += error.problems
    try:
        daemon = Daemon(given["path"])
        wishes = Wishes(settings=given["settings"], data_root=given["data_root"])
        make_plan(daemon.text(), daemon.read_record()[0], wishes, where=given["path"])
    except DrafthouseError as error:
        problems += error.problems
    if problems:
        module.fail_json(**DrafthouseError(problems).result)
    module.exit_json(
        changed=False,
        unfinished=machine.unfinished,
        distribution=container_engine.docker_distribution(machine),
        codename=machine.codename,
        architecture=machine.architecture,
        **asdict(decision),
    )


if __name__ == "__main__":
    main()
