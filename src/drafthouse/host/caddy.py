"""The program of the gateway on a box without containers (`deb_unpack.py`: why it is unpacked, not installed)."""

from __future__ import annotations

from pathlib import Path

from .deb_unpack import Found, Run, Wanted, ensure, run

CADDY = Wanted(
    package="caddy",
    programs=("caddy",),
    ask="version",
    oldest=(2, 6),  # the oldest that distributions have, and the one the tests run
    what="the program of the gateway",
    since="Debian 12, Ubuntu 24.04 and newer",
    do=(
        "set gateway_binary to a caddy 2.6 or newer on the box"
        " (one file: https://github.com/caddyserver/caddy/releases), or use the docker runtime"
    ),
)


def ensure_caddy(given: str, folder: Path, *, check: bool = False, run: Run = run, path: str | None = None) -> Found:
    """Return the program: ``given``, else one on ``path``, else the distribution's in ``folder``.

    Raises DrafthouseError.
    """
    return ensure(CADDY, given, folder, check=check, run=run, path=path)
