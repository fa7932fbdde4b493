"""The command that prints a box's API key where the user is."""

from __future__ import annotations

import shlex
from typing import Any

from ..module_utils.addons.gateway import key_command
from ..module_utils.operate.tunnel import Way


def key_command_of(connection: Any, key_file: str, host: str) -> str:
    """The command, which gets there in the way that Ansible's ``connection`` does."""
    by_sudo = connection.become is not None
    if connection.transport == "local":
        return key_command(key_file, sudo=by_sudo)

    def option(name: str) -> Any:
        known = connection.has_option(name)  # paramiko knows fewer than ssh
        return (connection.get_option(name) if known else None) or ""

    user = str(option("remote_user"))
    way = Way(
        name=host,
        address=str(option("host")) or host,
        alias=host,
        ssh_port=int(option("port") or 0) or None,
        user=user,
        identity=str(option("private_key_file")),
        # A rented box has its host key in a file of ours: at its address there was another one yesterday.
        more=tuple(shlex.split(f"{option('ssh_common_args')} {option('ssh_extra_args')}")),
    )
    return key_command(key_file, way.ssh(), sudo=by_sudo and user != "root")
