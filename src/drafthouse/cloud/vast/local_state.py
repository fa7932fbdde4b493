"""Folder of the controller that keeps the ledger of rentals and the API key of each profile's rented server.

It is ``rentals/`` in a git clone, in ~/.local/state/drafthouse for an installed wheel, or the folder that
DRAFTHOUSE_STATE names. Only its owner can read it. A kept key lets a replacement box serve with the same API key.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ...core.errors import one_problem
from ...core.places import STATE

_KEY_LENGTH = 40  # characters of a new key
_SHORTEST_KEY = 16  # characters; a shorter key in the file is refused
_KEY_CHARACTERS = string.ascii_letters + string.digits


def state_folder(environ: Mapping[str, str] | None = None, root: Path = STATE) -> Path:
    """Return the folder; create it if it does not exist, and close it to other users. Raises DrafthouseError.

    ``environ``: None for this process's. ``root``: the folder that has ``rentals/``.
    """
    if environ is None:
        environ = os.environ
    named = environ.get("DRAFTHOUSE_STATE")
    folder = Path(named).expanduser() if named else root / "rentals"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_ISVTX:  # a shared folder such as /tmp must stay open to other users
            raise PermissionError("a folder that all users share")
        if mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise one_problem(
            "file-unwritable",
            f"{error.strerror or error}",
            "a writable folder for the ledger and its keys",
            "set DRAFTHOUSE_STATE to one",
            str(folder),
        ) from error
    return folder


def kept_key(profile: str, folder: Path | None = None) -> str:
    """API key of a profile's rented servers, created at the first call. Raises DrafthouseError.

    ``folder``: None for `state_folder`. Processes that call this at the same time get the same key.
    """
    file = key_file(profile, folder)
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        if not file.exists():
            _create(file, "".join(secrets.choice(_KEY_CHARACTERS) for _ in range(_KEY_LENGTH)))
        if stat.S_IMODE(file.stat().st_mode) & 0o077:
            file.chmod(0o600)
        key = file.read_text("utf-8", errors="replace").strip()
    except OSError as error:
        raise one_problem(
            "api-key-unreadable",
            f"{error.strerror or error}",
            "an API key file that this user can read and write",
            "free disk space, set DRAFTHOUSE_STATE to a folder of this user, or give the key as DRAFTHOUSE_API_KEY",
            str(file),
        ) from error
    is_readable = key.isascii() and key.isprintable()
    if len(key) < _SHORTEST_KEY or not is_readable or " " in key:
        found = f"{len(key)} characters"
        if not is_readable:
            found += ", some not allowed in a key"
        raise one_problem(
            "api-key-invalid",
            found,
            f"an API key: one line of {_SHORTEST_KEY} or more characters",
            "remove the file (the next run makes a new one), or give the key as DRAFTHOUSE_API_KEY",
            str(file),
        )
    return key


def key_file(profile: str, folder: Path | None = None) -> Path:
    """File that keeps the API key of a profile; characters that do not fit into a file name become '_'."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", profile).lstrip(".") or "_"
    return (folder or state_folder()) / "keys" / name


def _create(file: Path, key: str) -> None:
    """Create the file atomically; if another process created it first, keep that one."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".key-")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as target:
            target.write(key + "\n")
            target.flush()
            os.fsync(target.fileno())
        file.hardlink_to(name)
    except FileExistsError:
        pass
    finally:
        Path(name).unlink(missing_ok=True)
