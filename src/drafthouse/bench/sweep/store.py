"""Where a load ladder is kept: `ladder.json` whole after every step, so that a killed run goes on, and raw requests.

`ladder/<round>-<arm>-<kind>-<level>.jsonl.gz` beside it holds the step's requests, one a line, without their texts:
a ladder asks the same prompts hundreds of times.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...core.documents import read_json
from ...core.errors import one_problem
from ...core.format import shown_level
from ...core.kept_file import write_whole
from ..kept_shapes import checked_ladder
from .plan import SCHEMA, Rung

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request
    from drafthouse.bench.sweep.ladder_types import Ladder, LadderStep, StepPlace

OK: Final = "ok"
POLLUTED: Final = "polluted"
BROKEN: Final = "broken"
INCOMPLETE: Final = "incomplete"
#: Measured again where that is asked for; an incomplete step always is, the others stay.
BAD = (POLLUTED, BROKEN)

_NEEDED = f"a ladder ({SCHEMA}), or no file", "name another file, or remove this one"
_NOT_KEPT = ("text", "reasoning_text")


class LadderFile:
    """A ladder and the file it is kept in. One process writes it; readers always find it whole."""

    def __init__(self, path: Path, head: Ladder, again: Collection[str] = ()) -> None:
        """Take up the ladder at ``path`` where it has the key of ``head``, else begin one.

        Steps with a status of ``again`` are to be measured again; until that has been done they stay.
        Raises DrafthouseError for a file that is none of ours or belongs to other settings: it is never written over.
        """
        self.path = path
        self.data = head.copy()
        self._again: list[Rung] = []
        kept = read_ladder(path) if path.exists() else None
        if kept is None:
            return
        if kept.get("key") != head["key"]:
            raise one_problem(
                "ladder-of-other-settings",
                "a ladder measured with other settings",
                "one of these settings, or no file",
                "name another file, or remove this one",
                str(path),
            )
        self.data = kept | {"steps": [step for step in kept["steps"] if step["status"] != INCOMPLETE]}
        self._again = [_rung(step) for step in self.data["steps"] if step["status"] in again]

    def has(self, rung: Rung) -> bool:
        """Whether a step was measured, well or not, and is not to be measured again."""
        return rung not in self._again and any(_same(step, rung) for step in self.data["steps"])

    def add(self, step: LadderStep, requests: Sequence[Request] | None = None) -> None:
        """Keep a step, in place of what stands there of it, and its requests."""
        rung = _rung(step)
        if requests is not None:
            self._keep_requests(rung, requests)
        self.data["steps"] = [kept for kept in self.data["steps"] if not _same(kept, rung)] + [step]
        self.write()

    def note(self, text: str) -> None:
        """Keep a sentence about the whole ladder, once."""
        if text not in self.data["notes"]:
            self.data["notes"].append(text)
            self.write()

    def drop_notes(self, stale: Callable[[str], bool]) -> None:
        """Drop the sentences about the whole ladder that are no longer true."""
        notes = [note for note in self.data["notes"] if not stale(note)]
        if notes != self.data["notes"]:
            self.data["notes"] = notes
            self.write()

    def write(self) -> None:
        """Write the ladder so that a reader finds all of it or nothing. Raises DrafthouseError."""
        write_whole(self.path, json.dumps(self.data, indent=1) + "\n")

    def _keep_requests(self, rung: Rung, requests: Sequence[Request]) -> None:
        path = requests_file(self.path, rung)
        lines = []
        for request in requests:
            kept = {name: value for name, value in request.items() if name not in _NOT_KEPT}
            lines.append(json.dumps(kept) + "\n")
        write_whole(path, gzip.compress("".join(lines).encode(), compresslevel=3))


def requests_file(path: Path, rung: Rung) -> Path:
    """Where the raw requests of a step are kept, for the ladder at ``path``."""
    # A user's own kind may have any name.
    kind = re.sub(r"[^\w.-]", "_", rung.kind)
    return path.parent / path.stem / f"{rung.round}-{rung.arm}-{kind}-{shown_level(rung.level)}.jsonl.gz"


def read_ladder(path: Path) -> Ladder:
    """The ladder at ``path``. Raises DrafthouseError for a file that holds none."""
    data = read_json(path, *_NEEDED)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise one_problem("file-malformed", "another kind of file", *_NEEDED, str(path))
    return checked_ladder(data, str(path))


def _rung(step: StepPlace) -> Rung:
    return Rung(step["level"], step["arm"], step["round"], step["kind"])


def _same(step: StepPlace, rung: Rung) -> bool:
    return _rung(step) == rung
