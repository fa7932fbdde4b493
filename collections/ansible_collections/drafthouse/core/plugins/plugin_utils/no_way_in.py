"""Problems for the errors of ssh and sudo: why a box cannot be reached, or its root rights not be had."""

from __future__ import annotations

import re
from dataclasses import replace

from ..module_utils.core.errors import Problem
from ..module_utils.core.plain_text import printable

_BECOME = "-K asks for the password of sudo, ARGS='-b -K' does so with make; or connect as root (ansible_user)"
#: Patterns of messages of ssh and sudo, each with its problem. The first match counts.
_REASONS = (
    (
        r"(?i)host key verification failed|host identification has changed",
        Problem(
            "host-key-unknown",
            "the host key is not the known one",
            "a host key that you know",
            "compare it with the box's own; if it is right, ssh-keygen -R ADDRESS, then connect once with ssh",
        ),
    ),
    (
        r"(?i)permission denied|too many authentication failures|no supported authentication",
        Problem(
            "login-refused",
            "the box refused the login",
            "a user and a key that the box takes",
            "correct ansible_user and ansible_ssh_private_key_file in the inventory; ssh USER@ADDRESS must work first",
        ),
    ),
    (
        r"(?i)could not resolve|name or service not known|nodename nor servname",
        Problem(
            "box-unreachable",
            "the address has no meaning",
            "an address or a name that resolves",
            "correct ansible_host in the inventory",
        ),
    ),
    (
        r"(?i)missing \S+ password|password is required|terminal is required",
        Problem("sudo-password", "sudo asks for a password", "the password of sudo", _BECOME),
    ),
    (
        r"(?i)incorrect \S+ password|sorry, try again",
        Problem("sudo-password", "sudo did not take the password", "the password of sudo", _BECOME),
    ),
    (
        r"(?i)not in the sudoers|may not run sudo|not allowed to execute",
        Problem(
            "sudo-refused",
            "this user may not use sudo",
            "root, which -b asks for",
            "connect as root (ansible_user), add the user to sudo, or set drafthouse_manage_host: false without -b",
        ),
    ),
    (
        r"(?i)sudo: (command )?not found|sudo: No such file|privilege escalation",
        Problem(
            "sudo-refused",
            "no sudo that answers",
            "root, which -b asks for",
            "install sudo on the box, or connect as root (ansible_user) and leave -b out",
        ),
    ),
)


def no_way_in(message: str, unreachable: bool) -> Problem | None:
    """Problem for Ansible's error ``message``; None if it is neither about the connection nor about root rights."""
    lines = message.strip().splitlines() or ["no answer"]
    last = printable(lines[-1].strip())[:200]
    for pattern, problem in _REASONS:
        if re.search(pattern, message):
            return replace(problem, found=f"{problem.found} ({last})")
    if not unreachable:
        return None
    do = "check that the box runs, and its ansible_host, ansible_port and firewall; ssh USER@ADDRESS must work first"
    return Problem("box-unreachable", last, "a box that answers SSH", do)
