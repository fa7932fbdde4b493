"""Ansible's way into a host that is a set of namespaces of this machine. It is no `local`: nothing takes it for one."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netns
short_description: Run tasks in the namespaces of a process of this machine
description:
  - Files are put as by C(local), because the hosts share this machine's file system.
author: Drafthouse
options:
  enter:
    description: The words that enter the namespaces, before a command.
    required: true
    vars: [{name: netns_enter}]
  pipelining:
    description: As for C(local).
    type: boolean
    default: true
    vars: [{name: ansible_pipelining}]
"""

import shlex
from typing import Any

from ansible.plugins.connection.local import Connection as Local


class Connection(Local):  # type: ignore[misc] # Ansible has no types
    """The connection plugin."""

    transport = "netns"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Any:
        """Run a command there."""
        return super().exec_command(f"{self.get_option('enter')} /bin/sh -c {shlex.quote(cmd)}", in_data, sudoable)
