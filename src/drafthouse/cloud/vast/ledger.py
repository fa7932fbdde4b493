"""The ledger of rentals: a file with one JSON line for each event, written before the request that it announces.

If the program crashes before the answer to a create request arrives, the ledger still has the label of the instance,
so that the instance can be found and ended. Lines are only appended. The file holds no secrets; its mode is 0600.

A line starts with a checksum of the rest: ``{"sum": "<16 hex digits of SHA-256>", "time": ...}``. Lines of earlier
versions start with ``{"time": `` and have no checksum. A damaged line is reported by its number and hides no other
line: records are found by their first characters, so two records stay separate even if the newline between them is
damaged. A last line that is cut off counts as not written, because its request was never sent.

Each instance has the label ``drafthouse-<id>-<deadline>``, with the deadline in seconds since 1970. An id starts with
the mark of its ledger (`mark_of`), which shows who rented an instance even if the ledger is lost.
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
from ...core.locks import take_lock

if TYPE_CHECKING:
    from typing import NotRequired

FILE = "ledger.jsonl"  # in the folder of `local_state.state_folder`
CONSOLE = "https://cloud.vast.ai/instances/"  # where a user sees and ends what bills
# The ledger's mark of 6 characters and 10 random ones; ids of earlier versions have no mark.
_ID = r"(?:[0-9a-f]{6})?[0-9a-z]{10}"
_MAX_TIME = 1e12  # seconds since 1970; a larger time is damage
LABEL = re.compile(rf"drafthouse-({_ID})-(\d{{9,11}})")
# The events, in the usual order. A rental may bill until one of ENDED.
INTENT = "intent"  # a create request will be sent
CREATED = "created"  # its answer named the instance, or the label was found
RUNNING = "running"  # the box can be reached
UNSURE = "unsure"  # the effect of a request is unknown
REFUSED = "refused"  # the create request was refused
DESTROYED = "destroyed"
GONE = "gone"  # the instance was no longer there
NEVER = "never-made"  # there is no instance: no request was sent, or one that was never answered made none
ENDED = frozenset({REFUSED, DESTROYED, GONE, NEVER})
EVENTS = frozenset({INTENT, CREATED, RUNNING, UNSURE}) | ENDED
# The begin of a record. A string inside a record cannot contain these characters, because JSON escapes quotes.
_RECORD_START = re.compile(rb'\{"(?:sum|time)": ')
# The checksum at the begin of a record that has one.
_SEALED = re.compile(r'\{"sum": "([0-9a-f]{16})", ')
# The first characters of a record with a checksum, and without.
_SEALED_BEGIN = '{"sum": "'
_UNSEALED_BEGIN = '{"time": '
# `record` appends this to a line that was cut off, before it starts the next one.
_CUT_OFF = " (cut off)"


class NotWritten(DrafthouseError):
    """A line could not be written to disk."""


class RentalFacts(TypedDict, total=False):
    """Further fields of an event. They are read from a file, so their types are checked before use."""

    deadline: object  # unix seconds
    hours: object  # of the rental
    asked_at: object  # time of the create request by the provider's clock, unix seconds
    account: object  # `VastClient.account`
    profile: object
    offer: object  # its number
    price_per_hour: object  # $, with disk and traffic
    cap: object  # of the price, $ per hour
    disk_gb: object
    gpu: object  # its name
    why: object  # reason of an end or a refusal


class _Line(RentalFacts):
    """An event of the rental ``id``; ``time`` in seconds since 1970, ``instance`` is its number if known."""

    time: float
    event: str
    id: str
    instance: NotRequired[int | None]


@dataclass(frozen=True)
class Rental:
    """One rental as the ledger describes it."""

    id: str
    deadline: int  # unix seconds; 0 if the first line is damaged
    account: str  # `VastClient.account`; '' if the first line is damaged
    begun: float  # time of the first line that is intact, unix seconds
    state: str = INTENT  # the last event
    instance: int | None = None  # its number; None until the answer is known
    sealed: bool = True
    """True if the line that has the instance's number has a checksum."""
    is_marked: bool = True
    """True if the id starts with this ledger's mark; an instance with its label then surely belongs to it."""
    facts: RentalFacts = field(default_factory=RentalFacts)
    """Fields of all its lines; a later line overrides an earlier one."""

    @property
    def label(self) -> str:
        """Label of its instance."""
        return label_of(self.id, self.deadline)

    @property
    def is_open(self) -> bool:
        """True if it bills or may bill."""
        return self.state not in ENDED


@dataclass(frozen=True)
class Book:
    """Content of a ledger: rentals by id, in the order of their first lines, and a problem for each damaged line."""

    rentals: Mapping[str, Rental]
    damage: list[Problem]


def mark_of(ledger: Path) -> str:
    """First six characters of the ids of this ledger.

    They are a hash of machine, user and folder, and are not stored, so that a lost ledger does not change them. Every
    clone, user and machine has another mark.
    """
    machine = text_in("/etc/machine-id").strip() or platform.node()
    text = f"drafthouse\n{machine}\n{os.getuid()}\n{ledger.parent.resolve()}"
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def new_id(mark: str = "") -> str:
    """Create the id of a new rental; ``mark`` is the ledger's."""
    return mark + secrets.token_hex(5)


def label_of(rental_id: str, deadline: int) -> str:
    """Label of the instance of a rental."""
    return f"drafthouse-{rental_id}-{deadline}"


def id_of(label: object) -> str | None:
    """Rental id in a Drafthouse label; None for any other label."""
    match = LABEL.fullmatch(str(label or ""))
    if not match:
        return None
    return match.group(1)


def record(path: Path, event: str, rental_id: str, **facts: Any) -> None:
    """Append an event and flush it to disk. Raises NotWritten."""
    if event not in EVENTS:
        raise ValueError(event)
    line = _seal(json.dumps({"time": round(time.time(), 3), "event": event, "id": rental_id, **facts})) + "\n"
    try:
        is_new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            take_lock(handle)
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
    """All rentals of the ledger by id, ended ones too, without the damaged lines. Raises DrafthouseError."""
    return read(path).rentals


def read(path: Path) -> Book:
    """Read the ledger; it is empty if the file does not exist. Raises DrafthouseError if it cannot be read."""
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
    by_id: dict[str, Rental] = {}
    damage: list[Problem] = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        # Text before the first record start of a line is a record whose own start is damaged.
        cuts = sorted({0, len(line), *(record.start() for record in _RECORD_START.finditer(line))})
        for begin, end in itertools.pairwise(cuts):
            fault = _parse(line[begin:end].decode("latin-1"), by_id, is_last=number == len(lines) and end == len(line))
            if fault:
                damage.append(_damaged(path, number, fault))
    mark = mark_of(path)
    marked = {rental.id: replace(rental, is_marked=has_mark(rental.id, mark)) for rental in by_id.values()}
    return Book(marked, damage)


def has_mark(rental_id: str, mark: str) -> bool:
    """True if an id starts with the mark of a ledger; ids of earlier versions have no mark."""
    return len(rental_id) == len(mark) + 10 and rental_id.startswith(mark)


def _parse(text: str, by_id: dict[str, Rental], *, is_last: bool) -> str:
    """Parse a record and apply it to the rentals in ``by_id``; return its fault, or '' if it is intact.

    '' too for no text, and for a record that was cut off: neither counts as written. ``is_last``: the file ends here.
    """
    sealed = _SEALED.match(text)
    body = text
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
    if not _is_valid_event(line) or not (sealed or text.startswith(_UNSEALED_BEGIN)):
        return "not a record"
    _apply(line, by_id, sealed=bool(sealed))
    if body[end:] not in ("", "\r", _CUT_OFF):
        # The newline after the record is damaged; the record itself is intact.
        return "extra text after its record"
    return ""


def _is_cut_off(text: str, *, is_last: bool) -> bool:
    """True for the first part of a record at the end of the file, or one that `record` marked as cut off."""
    part = text.removesuffix(_CUT_OFF)
    is_start = any(part.startswith(start[: len(part)]) for start in (_SEALED_BEGIN, _UNSEALED_BEGIN))
    return (is_last or part != text) and is_start and text.isascii() and text.isprintable()


def _is_valid_event(line: object) -> bool:
    """True if the parsed JSON has a known event and fields of the right types."""
    if not isinstance(line, dict) or not isinstance(line.get("event"), str) or line["event"] not in EVENTS:
        return False
    event_time = line.get("time")
    instance = line.get("instance")
    # Compare before any conversion to float, which fails for a very large integer.
    has_time = isinstance(event_time, (int, float)) and not isinstance(event_time, bool) and abs(event_time) < _MAX_TIME
    has_instance = instance is None or (isinstance(instance, int) and not isinstance(instance, bool))
    has_deadline = line["event"] != INTENT or isinstance(line.get("deadline"), int)
    return (
        has_time
        and has_instance
        and has_deadline
        and isinstance(line.get("id"), str)
        and bool(re.fullmatch(_ID, line["id"]))
    )


def _apply(line: _Line, by_id: dict[str, Rental], *, sealed: bool) -> None:
    """Update the rental of an event in ``by_id``; ``sealed``: the line has a checksum."""
    other_fields = {key: value for key, value in line.items() if key not in ("id", "event", "time", "instance")}
    facts = cast("RentalFacts", other_fields)
    rental = by_id.get(line["id"])
    if rental is None or line["event"] == INTENT:
        deadline = facts.get("deadline")
        account = str(facts.get("account") or "")
        if not isinstance(deadline, int):
            deadline = 0
        rental = Rental(line["id"], deadline, account, begun=float(line["time"]))
    instance = line.get("instance")
    if instance is not None:
        rental = replace(rental, instance=instance, sealed=sealed)
    by_id[line["id"]] = replace(rental, state=line["event"], facts={**rental.facts, **facts})


def _damaged(path: Path, number: int, why: str) -> Problem:
    """Problem for a damaged line."""
    return Problem(
        "ledger-damaged",
        f"line {number} of the ledger is damaged ({why})",
        "every line intact: the content of this one is lost",
        f"check at {CONSOLE} that nothing runs there that should not, then remove the line",
        str(path),
    )


def _seal(text: str) -> str:
    """Put the checksum of a JSON object in front of its fields."""
    return f'{{"sum": "{_sum(text)}", {text[1:]}'


def _sum(text: str) -> str:
    """Checksum of a record: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(text.encode("latin-1")).hexdigest()[:16]


def _write(handle: int, data: bytes) -> None:
    """Write all bytes. Raises OSError if the disk becomes full; the line then stays cut off."""
    while data:
        data = data[os.write(handle, data) :]
