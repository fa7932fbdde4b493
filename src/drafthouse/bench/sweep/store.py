"""Store a load sweep: `ladder.json`, rewritten after every step so that a killed run can continue, and raw requests.

`ladder/<round>-<arm>-<kind>-<level>.jsonl.gz` next to it has a step's requests, one per line. Texts are left out,
because a ladder sends the same prompts hundreds of times. An arm is a compared server, baseline or speculative.
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

# The statuses of a step.
OK: Final = "ok"
POLLUTED: Final = "polluted"  # by other clients, or by a machine that stood still
BROKEN: Final = "broken"  # the engine died or kept failing
INCOMPLETE: Final = "incomplete"  # stopped before its end
#: Statuses that are measured again on request. Incomplete steps are always measured again, all others are kept.
BAD = (POLLUTED, BROKEN)

#: What is needed and what to do, for the errors of a file that is no ladder.
_NEEDED = f"a ladder ({SCHEMA}), or no file", "name another file, or remove this one"
#: The keys of a request that its file does not have.
_NOT_KEPT = ("text", "reasoning_text")


class LadderFile:
    """A ladder (load sweep) and its file. Only one process writes it; readers always find a complete file."""

    def __init__(self, path: Path, heading: Ladder, statuses: Collection[str] = ()) -> None:
        """Continue the ladder at ``path`` if the file exists, otherwise begin one with ``heading``.

        Steps with one of ``statuses`` are measured again; they stay in the file until then. Raises DrafthouseError
        for a file that is no ladder, or whose ``key`` (of the settings) differs; such a file is never overwritten.
        """
        self.path = path
        self.data = heading.copy()
        self._again: list[Rung] = []
        stored = read_ladder(path) if path.exists() else None
        if stored is None:
            return
        if stored.get("key") != heading["key"]:
            raise one_problem(
                "ladder-of-other-settings",
                "a ladder measured with other settings",
                "one of these settings, or no file",
                "name another file, or remove this one",
                str(path),
            )
        self.data = stored | {"steps": [step for step in stored["steps"] if step["status"] != INCOMPLETE]}
        self._again = [_rung_of(step) for step in self.data["steps"] if step["status"] in statuses]

    def has(self, rung: Rung) -> bool:
        """True if the step was measured, with any status, and is not to be measured again."""
        return rung not in self._again and any(_is_step_of(step, rung) for step in self.data["steps"])

    def add(self, step: LadderStep, requests: Sequence[Request] | None = None) -> None:
        """Store a step, replacing an earlier measurement of it, and its requests.

        ``requests`` None leaves the stored requests as they are, for a step that was only amended.
        """
        rung = _rung_of(step)
        if requests is not None:
            self._keep_requests(rung, requests)
        self.data["steps"] = [stored for stored in self.data["steps"] if not _is_step_of(stored, rung)] + [step]
        self.write()

    def note(self, text: str) -> None:
        """Add a sentence about the whole ladder, unless it is there already."""
        if text not in self.data["notes"]:
            self.data["notes"].append(text)
            self.write()

    def drop_notes(self, stale: Callable[[str], bool]) -> None:
        """Remove the sentences about the whole ladder for which ``stale`` is True."""
        notes = [note for note in self.data["notes"] if not stale(note)]
        if notes != self.data["notes"]:
            self.data["notes"] = notes
            self.write()

    def write(self) -> None:
        """Replace the file atomically. Raises DrafthouseError."""
        write_whole(self.path, json.dumps(self.data, indent=1) + "\n")

    def _keep_requests(self, rung: Rung, requests: Sequence[Request]) -> None:
        """Write the file of a step's requests, without their texts. Raises DrafthouseError."""
        path = requests_file(self.path, rung)
        lines = []
        for request in requests:
            without_texts = {name: value for name, value in request.items() if name not in _NOT_KEPT}
            lines.append(json.dumps(without_texts) + "\n")
        write_whole(path, gzip.compress("".join(lines).encode(), compresslevel=3))


def requests_file(path: Path, rung: Rung) -> Path:
    """The file of a step's raw requests, for the ladder at ``path``."""
    # The name of a kind from a user's prompt file may have any characters.
    kind = re.sub(r"[^\w.-]", "_", rung.kind)
    return path.parent / path.stem / f"{rung.round}-{rung.arm}-{kind}-{shown_level(rung.level)}.jsonl.gz"


def read_ladder(path: Path) -> Ladder:
    """The ladder at ``path``. Raises DrafthouseError if the file is no ladder."""
    data = read_json(path, *_NEEDED)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise one_problem("file-malformed", "another kind of file", *_NEEDED, str(path))
    return checked_ladder(data, str(path))


def _rung_of(step: StepPlace) -> Rung:
    return Rung(step["level"], step["arm"], step["round"], step["kind"])


def _is_step_of(step: StepPlace, rung: Rung) -> bool:
    return _rung_of(step) == rung
