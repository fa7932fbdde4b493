"""What was pinned at first use: the commit of a branch on the hub, the digest of an image's tag.

The catalogue names commits and digests where they are known. Where it names something that can move (a branch, a tag,
or `unresolved`), what it was at first use is written to `pins.json`, for all boxes, and holds from then on. Runs on the
controller. Standard library only.
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
from .locks import held
from .places import STATE

FILE = "pins.json"
VARIABLE = "DRAFTHOUSE_PINS"
SCHEMA = "drafthouse.pins/1"
ACCEPT = "find out why it moved; to take what it is now, add -e repin=true once"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class Pins:
    """``hub``: {repository@what was asked for: commit}; ``images``: {name:tag: digest}; ``on``: when, by those names.

    ``ids``: an image's own id on the first box, for one that came to another box without a registry.
    """

    hub: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    on: dict[str, str] = field(default_factory=dict)


def is_commit(revision: str) -> bool:
    """Whether ``revision`` names one commit and for ever the same one."""
    return bool(_COMMIT.fullmatch(revision))


def is_digest(text: object) -> bool:
    """Whether ``text`` names the contents of one image."""
    return isinstance(text, str) and DIGEST.fits(text)


def pins_file() -> Path:
    """The file in which pins are kept."""
    return Path(os.environ.get(VARIABLE) or STATE / FILE)


def hub_key(repo: str, asked: str) -> str:
    """The name under which a repository's branch (or ``unresolved``) is pinned."""
    return f"{repo}@{asked}"


def read_pins(path: Path) -> Pins:
    """What was pinned; nothing where there is no file.

    Raises DrafthouseError for one that cannot be believed.
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
    wrong = [key for key, value in pins.hub.items() if not is_commit(str(value))]
    wrong += [key for key, value in pins.images.items() if not is_digest(value)]
    if wrong:
        raise DrafthouseError(_damaged(path, f"no commit or digest for {', '.join(wrong)}"))
    if data.get("schema") != SCHEMA:
        raise DrafthouseError(_damaged(path, f"schema {data.get('schema')!r}"))
    return pins


def remember(path: Path, new: Pins, again: bool = False) -> bool:
    """Write down what of ``new`` is not pinned yet; return whether that was anything. ``again``: pin it anew.

    Raises DrafthouseError where something is pinned as something else: boxes that saw it before and after it moved.
    """
    with _alone(path):
        pins = read_pins(path)
        if not again:
            _check_unmoved(path, new, pins)
        before = (dict(pins.hub), dict(pins.images), dict(pins.ids))
        today = time.strftime("%Y-%m-%d", time.gmtime())
        for fresh, pinned in ((new.hub, pins.hub), (new.images, pins.images)):
            for key, value in fresh.items():
                if pinned.get(key) != value:
                    pins.on[key] = today
            pinned.update(fresh)
        pins.ids.update(new.ids)
        if (pins.hub, pins.images, pins.ids) == before:
            return False
        write_whole(path, json.dumps({"schema": SCHEMA, **vars(pins)}, indent=1, sort_keys=True) + "\n")
    return True


def _check_unmoved(path: Path, new: Pins, pins: Pins) -> None:
    """Raise DrafthouseError where something of ``new`` is pinned as something else in the file at ``path``."""
    moved = []
    for fresh, pinned in ((new.hub, pins.hub), (new.images, pins.images)):
        for key, value in fresh.items():
            if pinned.get(key, value) != value:
                needed = f"{pinned[key]}, as it was pinned {pins.on.get(key, 'before')}"
                moved.append(Problem("pin-moved", f"{key} is {value} here", needed, ACCEPT, path.name))
    if moved:
        raise DrafthouseError(moved)


def image_of(resolved: Mapping[str, Any]) -> str | None:
    """The image that a registry is asked for; None where no container runs the engine."""
    if resolved["site"].get("runtime") != "docker":
        return None
    name = resolved["engine"].get("image")
    if derived := resolved.get("derived_image"):
        name = derived["base"]
    return str(name) if name else None


def commit_words(item: Mapping[str, Any]) -> str:
    """How a plan or report names the commit of a hub item, and where that is written."""
    revision, pinned = str(item["details"]["revision"]), item.get("pinned")
    if is_commit(revision):
        return revision
    if pinned:
        return f"{pinned} ({revision} in the catalogue, pinned at first use)"
    return f"{revision}: no commit yet, the first run pins what it finds"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other runs of this clone from writing meanwhile. Raises DrafthouseError where nothing can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.with_name(f".{path.name}.lock")):
            yield
    except OSError as error:
        found, needed = error.strerror or str(error), "a file that can be written: it records what was pinned"
        raise one_problem(
            "file-unwritable", found, needed, "free some space, or fix its permissions", str(path)
        ) from error


def _damaged(path: Path, found: str) -> Problem:
    do = "restore it, or move it away: what it pinned is then pinned anew, as it is now"
    return Problem("file-malformed", found, "the record of what this clone pinned at first use", do, str(path))
