"""Show a page: open it in the browser of whoever sits here, and else say where it lies."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from .say import say

#: What SSH sets for a session: a browser started there would show up on another person's screen, or on none.
_FAR = ("SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT")


def show(page: Path, what: str = "report") -> None:
    """Print the page's address, and open it where there is a screen."""
    address = page.resolve().as_uri()
    say(f"{what}: {address}")
    if has_screen(os.environ, sys.platform) and not webbrowser.open(address):
        say("no browser could be started here: open the address above")


def has_screen(environ: Mapping[str, str], platform: str) -> bool:
    """Whether a browser would be seen: a display, and nobody who came over SSH without one of theirs."""
    is_remote = any(map(environ.get, _FAR))
    if platform in ("darwin", "win32"):
        return not is_remote
    display = environ.get("WAYLAND_DISPLAY") or environ.get("DISPLAY")
    # A forwarded X display is the visitor's own screen; Wayland's is that of the machine.
    if is_remote:
        return bool(environ.get("DISPLAY")) and not environ["DISPLAY"].startswith(":")
    return bool(display)
