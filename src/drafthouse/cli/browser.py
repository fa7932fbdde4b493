"""Show an HTML page: print its address, and open it in a browser where the user has a screen."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from .say import say

#: Variables of an SSH session: a browser started in one would open on the remote machine's screen, or on none.
_SSH_VARIABLES = ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")


def show(page: Path, what: str = "report") -> None:
    """Print the page's file:// address, and open it where there is a screen."""
    address = page.resolve().as_uri()
    say(f"{what}: {address}")
    if has_screen(os.environ, sys.platform) and not webbrowser.open(address):
        say("no browser could be started here: open the address above")


def has_screen(environ: Mapping[str, str], platform: str) -> bool:
    """True if the user would see a browser: on a local display, or on an X display forwarded over SSH.

    ``platform``: `sys.platform`. On macOS and Windows there is a display, unless this is an SSH session.
    """
    is_remote = any(map(environ.get, _SSH_VARIABLES))
    if platform in ("darwin", "win32"):
        return not is_remote
    display = environ.get("WAYLAND_DISPLAY") or environ.get("DISPLAY")
    # SSH forwards an X display as localhost:10.0; one that begins with ":" is the remote machine's own screen.
    if is_remote:
        return bool(environ.get("DISPLAY")) and not environ["DISPLAY"].startswith(":")
    return bool(display)
