"""The prompts of a run as a JSON file on the box (the serving host), named by the hash of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import one_problem

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Suite

#: The folder of these files, below Drafthouse's folder on the box.
FOLDER = "suites"


def suites_text(suites: Mapping[str, Any]) -> str:
    """The content of the file; ``suites`` are suites by name.

    Keys are not sorted: kinds are sent in the suite's order, and the key order of a schema or a tool reaches the model.
    """
    return json.dumps(suites)


def suites_file(home: str, suites: Mapping[str, Any]) -> str:
    """The file's path on a box; ``home`` is Drafthouse's folder there."""
    return f"{home}/{FOLDER}/{_hash(suites_text(suites))}.json"


def read_suites(path: str, names: Iterable[str]) -> list[Suite]:
    """The suites ``names`` of a file, in that order. Raises DrafthouseError if it is unreadable or not as hashed."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = f"no prompts that can be read: {error}"
    else:
        if _hash(text) == Path(path).stem:
            suites: dict[str, Suite] = json.loads(text)
            return [suites[name] for name in names]
        found = "prompts that were changed"
    raise one_problem("prompts-changed", found, "the prompts of this run", "run it again: they are written again", path)


def _hash(text: str) -> str:
    """The first 16 hex digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
