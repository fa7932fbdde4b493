"""Pins: the commit of a hub branch, or the digest of an image tag, as recorded at its first use.

The catalogue names commits and digests where it can. Where it names what can move (a branch, a tag, `unresolved`), the
first run records in `pins.json` what that pointed to, and all later runs use the same on every box. The file is on the
controller, the machine that runs Ansible. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .documents import json_of
from .errors import DrafthouseError, Problem, one_problem
from .forms import DIGEST
from .kept_file import write_whole
from .locks import locked_file
from .places import STATE

FILE = "pins.json"
VARIABLE = "DRAFTHOUSE_PINS"  # of the environment: the path of another file
SCHEMA = "drafthouse.pins/1"
ACCEPT = "find out why it moved; to take what it is now, add -e repin=true once"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class Pins:
    """The pins. An image that came to a box without a registry is recognised by its id."""

    hub: dict[str, str] = field(default_factory=dict)  # "repository@branch" to commit
    images: dict[str, str] = field(default_factory=dict)  # "name:tag" to digest
    ids: dict[str, str] = field(default_factory=dict)  # "name:tag" to the image's id on the first box
    on: dict[str, str] = field(default_factory=dict)  # these keys to the day of the pin, YYYY-MM-DD


def is_commit(revision: str) -> bool:
    """True if ``revision`` is a full commit hash, which never moves."""
    return bool(_COMMIT.fullmatch(revision))


def is_digest(text: object) -> bool:
    """True if ``text`` is an image digest, which never moves."""
    return isinstance(text, str) and DIGEST.fits(text)


def pins_file() -> Path:
    """The path of the pins: DRAFTHOUSE_PINS, or `pins.json` in the state folder."""
    return Path(os.environ.get(VARIABLE) or STATE / FILE)


def hub_key(repo: str, branch: str) -> str:
    """The key in `Pins.hub` of a repository's branch, tag or ``unresolved``."""
    return f"{repo}@{branch}"


def read_pins(path: Path) -> Pins:
    """The pins in the file; none where the file does not exist.

    Raises DrafthouseError for a file that cannot be read or holds anything else.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Pins()
    except (OSError, UnicodeDecodeError) as error:
        raise DrafthouseError(_damaged(path, str(error))) from error
    try:
        data = json_of(text)
        pins = Pins(**{name: dict(data.get(name) or {}) for name in Pins.__dataclass_fields__})
    except (ValueError, TypeError, AttributeError) as error:
        raise DrafthouseError(_damaged(path, f"text that is no record of pins ({error})")) from error
    invalid = [key for key, value in pins.hub.items() if not is_commit(str(value))]
    invalid += [key for key, value in pins.images.items() if not is_digest(value)]
    if invalid:
        raise DrafthouseError(_damaged(path, f"no commit or digest for {', '.join(invalid)}"))
    if data.get("schema") != SCHEMA:
        raise DrafthouseError(_damaged(path, f"schema {data.get('schema')!r}"))
    return pins


def remember(path: Path, new: Pins, again: bool = False) -> bool:
    """Add ``new`` to the file; return True if that changed it.

    A pin that differs means that the branch or tag has moved since it was pinned: ``again`` overwrites it, otherwise
    DrafthouseError is raised. Ids of images are overwritten in any case.
    """
    with _locked(path):
        pins = read_pins(path)
        if not again:
            _check_unmoved(path, new, pins)
        before = (dict(pins.hub), dict(pins.images), dict(pins.ids))
        today = time.strftime("%Y-%m-%d", time.gmtime())
        for new_values, pinned in ((new.hub, pins.hub), (new.images, pins.images)):
            for key, value in new_values.items():
                if pinned.get(key) != value:
                    pins.on[key] = today
            pinned.update(new_values)
        pins.ids.update(new.ids)
        if (pins.hub, pins.images, pins.ids) == before:
            return False
        write_whole(path, json.dumps({"schema": SCHEMA, **vars(pins)}, indent=1, sort_keys=True) + "\n")
    return True


def _check_unmoved(path: Path, new: Pins, pins: Pins) -> None:
    """Raise DrafthouseError for each of ``new`` that differs from its pin in ``pins``, read from the file ``path``."""
    moved = []
    for new_values, pinned in ((new.hub, pins.hub), (new.images, pins.images)):
        for key, value in new_values.items():
            if pinned.get(key, value) != value:
                needed = f"{pinned[key]}, as it was pinned {pins.on.get(key, 'before')}"
                moved.append(Problem("pin-moved", f"{key} is {value} here", needed, ACCEPT, path.name))
    if moved:
        raise DrafthouseError(moved)


def image_of(resolved: Mapping[str, Any]) -> str | None:
    """The image whose digest is pinned, for a derived image its base; None without an image, or outside Docker."""
    if resolved["site"].get("runtime") != "docker":
        return None
    name = resolved["engine"].get("image")
    if derived := resolved.get("derived_image"):
        name = derived["base"]
    return str(name) if name else None


def commit_words(item: Mapping[str, Any]) -> str:
    """The commit of a hub item as plans and reports show it, with its source: catalogue, pin, or not known yet."""
    revision = str(item["details"]["revision"])
    pinned = item.get("pinned")
    if is_commit(revision):
        return revision
    if pinned:
        return f"{pinned} ({revision} in the catalogue, pinned at first use)"
    return f"{revision}: no commit yet, the first run pins what it finds"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file against other runs of this clone. Raises DrafthouseError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked_file(path.with_name(f".{path.name}.lock")):
            yield
    except OSError as error:
        found = error.strerror or str(error)
        needed = "a file that can be written: it records what was pinned"
        do = "free some space, or fix its permissions"
        raise one_problem("file-unwritable", found, needed, do, str(path)) from error


def _damaged(path: Path, found: str) -> Problem:
    """The problem of a file that is no record of pins; it is never overwritten, as that would lose the pins."""
    do = "restore it, or move it away: what it pinned is then pinned anew, as it is now"
    return Problem("file-malformed", found, "the record of what this clone pinned at first use", do, str(path))
