"""The file cache and the token that huggingface_hub, the hub's own client, keeps for a user.

The paths are those of huggingface_hub 2.4.0 (constants.py). Standard library only: this also runs on a bare box.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .hub_client import RemoteFile
from .nearby_copies import NearbyFolder

# Bytes below which files are copied, not linked: users edit small files such as config.json in place, which would
# change a hard link too. The client itself replaces files and never writes in place.
_COPIED_BELOW = 64 << 20


def usual_token() -> str | None:
    """Token that huggingface_hub would send: HF_TOKEN, or the one stored by its login; None if neither exists."""
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    token = os.environ.get("HF_TOKEN", "")
    if not token.strip():
        with suppress(OSError, ValueError):
            token = token_file().read_text("utf-8")
    return token.strip() or None


def token_file() -> Path:
    """File in which the login of huggingface_hub stores this user's token; it may not exist."""
    return _path_from("HF_TOKEN_PATH", _home() / "token")


def client_cache() -> ClientCache:
    """Cache of this user; its folder may not exist."""
    return ClientCache(_path_from("HF_HUB_CACHE", _home() / "hub"))


def _home() -> Path:
    """Folder of huggingface_hub's files for this user."""
    return _path_from("HF_HOME", _path_from("XDG_CACHE_HOME", "~/.cache") / "huggingface")


def _path_from(variable: str, default: str | Path) -> Path:
    """Path in an environment variable, or ``default`` if that is unset or empty; ``~`` and $VARIABLES are expanded."""
    return Path(os.path.expandvars(Path(os.environ.get(variable) or default).expanduser()))


@dataclass(frozen=True)
class ClientCache:
    """Cache of huggingface_hub, which is only read, never changed.

    A repository has a folder ``models--ORG--NAME``: ``blobs`` has its files under their hashes, and ``snapshots`` has a
    folder for each commit, with links from file names to blobs.
    """

    folder: Path

    def find(self, repo: str, commit: str, file: RemoteFile) -> str | None:
        """Path of a file of the commit relative to the cache, or None. The content is not verified."""
        base = f"models--{repo.replace('/', '--')}"
        # The blob has the same content even if it was downloaded for another commit.
        candidates = (f"{base}/snapshots/{commit}/{file.path}", f"{base}/blobs/{file.key}")
        # os.path.isfile returns False, and raises nothing, if the folder cannot be read.
        return next((path for path in candidates if os.path.isfile(self.folder / path)), None)  # noqa: PTH113

    def links(self, relative: str, destination: Path) -> bool:
        """True if a file of the cache can be hard-linked into the folder ``destination``, which takes no disk space.

        ``destination`` may not exist yet. False too if the file cannot be examined.
        """
        with suppress(OSError):
            return may_link(self.folder / relative) and (self.folder / relative).stat().st_dev == _device(destination)
        return False

    def linked_bytes(self, repo: str, commit: str, destination: Path) -> int:
        """Total size in bytes of a commit's files that can be linked into ``destination``. Reads no file.

        0 if the cache does not have the commit or cannot be read.
        """
        snapshot = self.folder / f"models--{repo.replace('/', '--')}" / "snapshots" / commit
        size = 0
        try:
            for path in snapshot.rglob("*"):
                if path.is_file() and self.links(str(path), destination):
                    size += path.stat().st_size
        except OSError:
            return 0
        return size

    def as_nearby_folder(self, remarks: list[str]) -> NearbyFolder:
        """Cache as a nearby folder to copy files from; lines for the user are added to ``remarks``."""
        nearby = NearbyFolder(self.folder, self.folder, may_link)
        nearby.remarks = remarks
        return nearby


def may_link(path: Path) -> bool:
    """True if a hard link may replace a copy: the file is large and belongs to this user."""
    status = path.stat()
    return status.st_size >= _COPIED_BELOW and status.st_uid == os.geteuid()


def _device(path: Path) -> int:
    """Number of the file system that holds ``path``, or would hold it: that of the nearest existing folder above."""
    return next(folder for folder in (path, *path.parents) if folder.exists()).stat().st_dev
