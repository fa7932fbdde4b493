"""First contact with a rented box: whether its SSH server answers, and its host key, which is kept at once.

A box that "runs" often has no SSH server yet. Its key is kept as soon as one answers at the address that the platform
names; ssh and Ansible read the same file, and refuse whatever answers there later with another key.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from .instances import host_key_alias

# For an answer over the whole: a proxy accepts at once, and says nothing while the box behind it starts.
ANSWER_S = 5.0
# paramiko logs each failed handshake as an error; here that is an expected answer.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def ssh_answers(known_hosts: Path, number: int, address: str, port: int) -> bool:
    """Tell whether an instance's SSH server answers; its host key is kept, unless one is kept already."""
    import paramiko  # noqa: PLC0415 (the extra `deploy` has it)

    try:
        with socket.create_connection((address, port), ANSWER_S) as connection:
            transport = paramiko.Transport(connection)
            try:
                transport.start_client(timeout=ANSWER_S)
                key = transport.get_remote_server_key()
            finally:
                transport.close()
    except (OSError, EOFError, paramiko.SSHException):
        return False
    _keep(known_hosts, host_key_alias(number), key.get_name(), key.get_base64())
    return True


def _keep(known_hosts: Path, alias: str, kind: str, key: str) -> None:
    """Append a line, unless the file has one for this alias; ssh appends to the same file."""
    if known_hosts.exists():
        lines = known_hosts.read_text("utf-8", "replace").splitlines()
        if any(line.split(" ", 1)[0] == alias for line in lines):
            return
    descriptor = os.open(known_hosts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(f"{alias} {kind} {key}\n")
