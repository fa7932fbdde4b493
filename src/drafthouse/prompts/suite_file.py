"""The prompts of a run as one file on the box: written once, named by the hash of what is in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import one_problem

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import Suite

FOLDER = "suites"


def suites_text(suites: Mapping[str, Any]) -> str:
    """What the file of these suites, by name, holds.

    In the suites' own order: kinds are asked in it, and of a JSON schema or a tool it reaches the model.
    """
    return json.dumps(suites)


def suites_file(home: str, suites: Mapping[str, Any]) -> str:
    """Where it lies on a box whose folder of ours is ``home``."""
    return f"{home}/{FOLDER}/{_hash(suites_text(suites))}.json"


def read_suites(path: str, names: Iterable[str]) -> list[Suite]:
    """Some suites of a file, in this order. Raises DrafthouseError where it is not what its name says."""
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
    return hashlib.sha256(text.encode()).hexdigest()[:16]
