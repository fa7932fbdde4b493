"""The ledger of what was rented: a line for each event, on disk before the request that it announces.

A crash between "rent this" and the answer leaves a line with the label that the instance carries, so that it is found
again and ended. Lines are only ever added. Nothing secret stands in it; it is 0600 all the same.

Each line begins with the checksum of the rest of it: ``{"sum": "<16 hex digits of SHA-256>", "time": ...}``. Lines of
earlier versions have none, begin with ``{"time": `` and are read as they stand. A damaged line is named by its number,
and hides no other: records are found by how they begin, so a newline that was damaged joins no two of them. The last
line may be cut off by a power cut: its request was never sent, so it counts as never written.

Label of every instance: ``drafthouse-<id>-<deadline>``, the deadline in seconds since 1970. An id begins with the mark
of the ledger that it is from (`mark_of`), so that a lost ledger does not make our own boxes look like another clone's.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.files import sync, text_in
from ...core.locks import take

if TYPE_CHECKING:
    from typing import NotRequired

FILE = "ledger.jsonl"
CONSOLE = "https://cloud.vast.ai/instances/"
# Six characters of the ledger's mark and ten of chance; ids of earlier versions are the ten alone.
_ID = r"(?:[0-9a-f]{6})?[0-9a-z]{10}"
_END_OF_TIME = 1e12  # seconds; no clock says that
LABEL = re.compile(rf"drafthouse-({_ID})-(\d{{9,11}})")
# The events, and whether a rental may still bill after them.
INTENT, CREATED, RUNNING, UNSURE = "intent", "created", "running", "unsure"
REFUSED, DESTROYED, GONE, NEVER = "refused", "destroyed", "gone", "never-made"
ENDED = frozenset({REFUSED, DESTROYED, GONE, NEVER})
EVENTS = frozenset({INTENT, CREATED, RUNNING, UNSURE}) | ENDED
# No string of a line can hold these: JSON escapes its quotes.
_BEGIN = re.compile(rb'\{"(?:sum|time)": ')
_SEALED = re.compile(r'\{"sum": "([0-9a-f]{16})", ')
_BEGINNINGS = ('{"sum": "', '{"time": ')
# What `record` puts behind a line that was cut off, as it begins the next one.
_CUT_OFF = " (cut off)"


class NotWritten(DrafthouseError):
    """A line could not be put on the disk."""


class RentalFacts(TypedDict, total=False):
    """What events say of a rental besides; a file's words, of any type until somebody has looked."""

    deadline: object
    hours: object
    asked_at: object
    account: object
    profile: object
    offer: object
    price_per_hour: object
    cap: object
    disk_gb: object
    gpu: object
    why: object


class _Line(RentalFacts):
    """An event: seconds since 1970, what, of which rental, of which instance (None where that is not known)."""

    time: float
    event: str
    id: str
    instance: NotRequired[int | None]


@dataclass(frozen=True)
class Rental:
    """What the ledger knows of one rental; ``instance`` is None while the answer to the request is not known.

    Where the line that announced it is damaged, ``deadline`` is 0 and ``account`` is '' unless a later line says them.
    """

    id: str
    deadline: int
    account: str
    begun: float
    state: str = INTENT
    instance: int | None = None
    sealed: bool = True
    """Whether a checksum vouches for the instance's number."""
    is_marked: bool = True
    """Whether its id begins with the mark of the ledger that it stands in: then its label is proof enough."""
    facts: RentalFacts = field(default_factory=RentalFacts)
    """Later ones over earlier ones."""

    @property
    def label(self) -> str:
        """The label that its instance carries."""
        return label_of(self.id, self.deadline)

    @property
    def is_open(self) -> bool:
        """Tell whether it may still bill."""
        return self.state not in ENDED


@dataclass(frozen=True)
class Book:
    """A ledger as it was read: the rentals by id, in the order in which they were, and its damaged lines."""

    rentals: Mapping[str, Rental]
    damage: list[Problem]


def mark_of(ledger: Path) -> str:
    """The six characters with which the ids of this ledger begin.

    They are made of machine, user and folder, and not kept: whoever loses the ledger still knows its own labels. Two
    clones, users or machines have marks of their own.
    """
    machine = text_in("/etc/machine-id").strip() or platform.node()
    text = f"drafthouse\n{machine}\n{os.getuid()}\n{ledger.parent.resolve()}"
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def new_id(mark: str = "") -> str:
    """The id of a rental that is about to be asked for; ``mark`` is the ledger's."""
    return mark + secrets.token_hex(5)


def label_of(rental_id: str, deadline: int) -> str:
    """The label of an instance."""
    return f"drafthouse-{rental_id}-{deadline}"


def id_of(label: object) -> str | None:
    """The id in a label of ours, None in any other."""
    found = LABEL.fullmatch(str(label or ""))
    if not found:
        return None
    return found.group(1)


def record(path: Path, event: str, rental_id: str, **facts: Any) -> None:
    """Write an event down, and come back when it is on the disk. Raises NotWritten where it cannot be."""
    if event not in EVENTS:
        raise ValueError(event)
    line = _seal(json.dumps({"time": round(time.time(), 3), "event": event, "id": rental_id, **facts})) + "\n"
    try:
        is_new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            take(handle)
            os.fchmod(handle, 0o600)
            size = os.fstat(handle).st_size
            if size > 0 and os.pread(handle, 1, size - 1) != b"\n":
                line = f"{_CUT_OFF}\n{line}"
            _write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        if is_new:
            sync(path.parent)
    except OSError as error:
        raise NotWritten(
            Problem(
                "ledger-unwritable",
                f"the ledger of rentals cannot be written ({error.strerror or error})",
                "an entry on disk before anything is rented: without it a crash would leave a box billing",
                "free disk space, or set DRAFTHOUSE_STATE to a folder of this user",
                str(path),
            )
        ) from error


def rentals(path: Path) -> Mapping[str, Rental]:
    """What was ever rented, by id, in the order in which it was.

    Raises DrafthouseError; `read` tells of damage.
    """
    return read(path).rentals


def read(path: Path) -> Book:
    """What the ledger says; an empty one where there is none yet.

    Raises DrafthouseError where it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise one_problem(
            "ledger-damaged",
            f"the ledger of rentals cannot be read ({error.strerror})",
            "what was rented",
            f"run this as the user who rented; {CONSOLE} also lists what is billing",
            str(path),
        ) from error
    found: dict[str, Rental] = {}
    damage: list[Problem] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        # What stands before the first record of a line is one that its beginning was damaged of.
        cuts = sorted({0, len(line), *(record.start() for record in _BEGIN.finditer(line))})
        for begin, end in itertools.pairwise(cuts):
            why = _take(line[begin:end].decode("latin-1"), found, is_last=number == len(lines) and end == len(line))
            if why:
                damage.append(_damaged(path, number, why))
    mark = mark_of(path)
    marked = {one.id: replace(one, is_marked=has_mark(one.id, mark)) for one in found.values()}
    return Book(marked, damage)


def has_mark(rental_id: str, mark: str) -> bool:
    """Tell whether an id begins with the mark of a ledger; ids of earlier versions have none."""
    return len(rental_id) == len(mark) + 10 and rental_id.startswith(mark)


def _take(text: str, found: dict[str, Rental], *, is_last: bool) -> str:
    """Put the record in ``text`` to the rentals; return what is wrong with it, '' where nothing is."""
    sealed, body = _SEALED.match(text), text
    if sealed:
        body = "{" + text[sealed.end() :]
    try:
        line, end = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        if text in ("", "\r") or _is_cut_off(text, is_last=is_last):
            return ""
        return "its checksum does not match" if sealed else "not a record"
    if sealed and _sum(body[:end]) != sealed[1]:
        return "its checksum does not match"
    if not _is_event(line) or not (sealed or text.startswith(_BEGINNINGS[1])):
        return "not a record"
    _note(line, found, sealed=bool(sealed))
    if body[end:] not in ("", "\r", _CUT_OFF):
        # Behind a record is a newline that was damaged; the record itself is whole.
        return "extra text after its record"
    return ""


def _is_cut_off(text: str, *, is_last: bool) -> bool:
    """Tell whether this is the beginning of a record, at the end of the file or where `record` has marked it."""
    begun = text.removesuffix(_CUT_OFF)
    begins = any(begun.startswith(one[: len(begun)]) for one in _BEGINNINGS)
    return (is_last or begun != text) and begins and text.isascii() and text.isprintable()


def _is_event(line: object) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("event"), str) or line["event"] not in EVENTS:
        return False
    at, number = line.get("time"), line.get("instance")
    # A comparison first: a whole number may be too large for a float.
    is_time = isinstance(at, (int, float)) and not isinstance(at, bool) and abs(at) < _END_OF_TIME
    is_whole = number is None or (isinstance(number, int) and not isinstance(number, bool))
    has_deadline = line["event"] != INTENT or isinstance(line.get("deadline"), int)
    return (
        is_time
        and is_whole
        and has_deadline
        and isinstance(line.get("id"), str)
        and bool(re.fullmatch(_ID, line["id"]))
    )


def _note(line: _Line, found: dict[str, Rental], *, sealed: bool) -> None:
    others = {key: value for key, value in line.items() if key not in ("id", "event", "time", "instance")}
    facts = cast("RentalFacts", others)
    rental = found.get(line["id"])
    if rental is None or line["event"] == INTENT:
        deadline, account = facts.get("deadline"), str(facts.get("account") or "")
        if not isinstance(deadline, int):
            deadline = 0
        rental = Rental(line["id"], deadline, account, float(line["time"]))
    number = line.get("instance")
    if number is not None:
        rental = replace(rental, instance=number, sealed=sealed)
    found[line["id"]] = replace(rental, state=line["event"], facts={**rental.facts, **facts})


def _damaged(path: Path, number: int, why: str) -> Problem:
    return Problem(
        "ledger-damaged",
        f"line {number} of the ledger is damaged ({why})",
        "every line intact: the content of this one is lost",
        f"check at {CONSOLE} that nothing runs there that should not, then remove the line",
        str(path),
    )


def _seal(text: str) -> str:
    """A JSON object with its checksum before it."""
    return f'{{"sum": "{_sum(text)}", {text[1:]}'


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("latin-1")).hexdigest()[:16]


def _write(handle: int, data: bytes) -> None:
    """Write all of it; a disk that is full in the middle is an error, and the rest of the line stays cut off."""
    while data:
        data = data[os.write(handle, data) :]
