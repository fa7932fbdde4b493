"""Check whether the SSH server of a rented box answers, and store its host key at the first answer.

An instance with the status "running" often has no SSH server yet. ssh and Ansible read the same known_hosts file, so
they refuse a server that answers later at this address with another key.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from .instances import host_key_alias

# Time limit of the connection, and again of the handshake, in seconds. The handshake needs one too: a proxy accepts a
# connection while the box behind it still starts.
ANSWER_S = 5.0
# paramiko logs each failed handshake as an error, but here failures are expected.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def ssh_answers(known_hosts: Path, instance_id: int, address: str, port: int) -> bool:
    """True if the SSH server of an instance answers; its host key is then stored, unless the file has one already."""
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
    _add_host_key(known_hosts, host_key_alias(instance_id), key.get_name(), key.get_base64())
    return True


def _add_host_key(known_hosts: Path, alias: str, kind: str, key: str) -> None:
    """Append the key, unless the file has one for this alias. Appending is safe, because ssh also only appends."""
    if known_hosts.exists():
        lines = known_hosts.read_text("utf-8", "replace").splitlines()
        if any(line.split(" ", 1)[0] == alias for line in lines):
            return
    descriptor = os.open(known_hosts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write(f"{alias} {kind} {key}\n")
