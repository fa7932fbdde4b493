"""The shell command with which the user prints a box's API key on the controller."""

from __future__ import annotations

import shlex
from typing import Any

from ..module_utils.addons.gateway import key_command
from ..module_utils.operate.tunnel import Way


def key_command_of(connection: Any, key_file: str, host: str) -> str:
    """Command that prints ``key_file``, over SSH with the options of Ansible's ``connection`` if it is not local."""
    by_sudo = connection.become is not None
    if connection.transport == "local":
        return key_command(key_file, sudo=by_sudo)

    def option(name: str) -> Any:
        if not connection.has_option(name):  # paramiko has fewer options than ssh
            return ""
        return connection.get_option(name) or ""

    user = str(option("remote_user"))
    way = Way(
        name=host,
        address=str(option("host")) or host,
        alias=host,
        ssh_port=int(option("port") or 0) or None,
        user=user,
        identity=str(option("private_key_file")),
        # They name our known_hosts file for rented boxes, whose addresses belonged to other boxes before.
        more=tuple(shlex.split(f"{option('ssh_common_args')} {option('ssh_extra_args')}")),
    )
    return key_command(key_file, way.ssh(), sudo=by_sudo and user != "root")
