"""What the Hub's own client keeps on a machine for its user: a cache of files, and a token.

Read as it reads them (huggingface_hub 2.4.0, constants.py), by the standard library alone: a bare box is asked, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .hub_client import RemoteFile
from .nearby_copies import Place

# A hard link shares what somebody writes in place. The client never does that (it replaces a blob), people do with
# small files (config.json): those are copied, and so is what another user owns.
_COPIED_BELOW = 64 << 20


def usual_token() -> str | None:
    """The token that the client would send: HF_TOKEN, or what its login left in a file; None for neither."""
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    token = os.environ.get("HF_TOKEN", "")
    if not token.strip():
        with suppress(OSError, ValueError):
            token = token_file().read_text("utf-8")
    return token.strip() or None


def token_file() -> Path:
    """Where the client's login leaves the token of this user."""
    return _named("HF_TOKEN_PATH", _home() / "token")


def client_cache() -> ClientCache:
    """The cache of this user; its folder need not be there."""
    return ClientCache(_named("HF_HUB_CACHE", _home() / "hub"))


def _home() -> Path:
    return _named("HF_HOME", _named("XDG_CACHE_HOME", "~/.cache") / "huggingface")


def _named(variable: str, default: str | Path) -> Path:
    return Path(os.path.expandvars(Path(os.environ.get(variable) or default).expanduser()))


@dataclass(frozen=True)
class ClientCache:
    """``models--ORG--NAME`` with ``blobs`` by their hashes and ``snapshots`` of links to them. Only read."""

    folder: Path

    def find(self, repo: str, commit: str, file: RemoteFile) -> str | None:
        """Where a file of the commit lies, below the folder; nothing is said of its bytes."""
        base = f"models--{repo.replace('/', '--')}"
        # By its hash, the same file of another commit is found, too.
        places = (f"{base}/snapshots/{commit}/{file.path}", f"{base}/blobs/{file.key}")
        # What may not be looked into is not there: no reason to stop.
        return next((place for place in places if os.path.isfile(self.folder / place)), None)  # noqa: PTH113

    def links(self, place: str, beside: Path) -> bool:
        """Tell whether a file (below our folder) is had in the folder ``beside`` without room for it."""
        with suppress(OSError):
            return may_link(self.folder / place) and (self.folder / place).stat().st_dev == _device(beside)
        return False

    def linked_bytes(self, repo: str, commit: str, beside: Path) -> int:
        """The bytes of a commit's files that are had without room for them, none of them read."""
        top = self.folder / f"models--{repo.replace('/', '--')}" / "snapshots" / commit
        size = 0
        try:
            for path in top.rglob("*"):
                if path.is_file() and self.links(str(path), beside):
                    size += path.stat().st_size
        except OSError:
            return 0
        return size

    def place(self, notes: list[str]) -> Place:
        """The cache as a place that files are brought from, verified; ``notes`` gets its lines for a person."""
        place = Place(self.folder, self.folder, may_link)
        place.notes = notes
        return place


def may_link(path: Path) -> bool:
    """Tell whether a second name for the file is as good as a copy of it."""
    found = path.stat()
    return found.st_size >= _COPIED_BELOW and found.st_uid == os.geteuid()


def _device(path: Path) -> int:
    return next(folder for folder in (path, *path.parents) if folder.exists()).stat().st_dev
