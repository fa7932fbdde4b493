"""The ledger of what was rented: a line for each event, on disk before the request that it announces.

A crash between "rent this" and the answer leaves a line with the label that the instance carries, so that it is found
again and ended. Lines are only ever added; a line that a kill cut off is left out when the file is read, and the next
one begins on a line of its own. Nothing secret stands in it; it is 0600 all the same.

Label of every instance: ``drafthouse-<id>-<deadline>``, the deadline in seconds since 1970.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .problems import HouseError, Problem

FILE = "ledger.jsonl"
LABEL = re.compile(r"drafthouse-([0-9a-z]{10})-(\d{9,11})")
# The events, and whether a rental may still bill after them.
INTENT, CREATED, RUNNING, UNSURE = "intent", "created", "running", "unsure"
REFUSED, DESTROYED, GONE, NEVER = "refused", "destroyed", "gone", "never-made"
ENDED = frozenset({REFUSED, DESTROYED, GONE, NEVER})
EVENTS = frozenset({INTENT, CREATED, RUNNING, UNSURE}) | ENDED


class NotWritten(HouseError):
    """A line could not be put on the disk."""


@dataclass(frozen=True)
class Rental:
    """What the ledger knows of one rental; ``instance`` is None while the answer to the request is not known."""

    id: str
    deadline: int
    account: str
    begun: float
    state: str = INTENT
    instance: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the events said besides: profile, offer, price, ..., later ones over earlier ones."""

    @property
    def label(self) -> str:
        """Return the label that its instance carries."""
        return label_of(self.id, self.deadline)

    @property
    def is_open(self) -> bool:
        """Tell whether it may still bill."""
        return self.state not in ENDED


def new_id() -> str:
    """Return the id of a rental that is about to be asked for."""
    return secrets.token_hex(5)


def label_of(rental_id: str, deadline: int) -> str:
    """Return the label of an instance."""
    return f"drafthouse-{rental_id}-{deadline}"


def id_of(label: object) -> str | None:
    """Return the id in a label of ours, None in any other."""
    found = LABEL.fullmatch(str(label or ""))
    return found.group(1) if found else None


def record(path: Path, event: str, rental_id: str, **facts: Any) -> None:
    """Write an event down, and come back when it is on the disk. Raises NotWritten where it cannot be."""
    if event not in EVENTS:
        raise ValueError(event)
    line = json.dumps({"time": round(time.time(), 3), "event": event, "id": rental_id, **facts}) + "\n"
    try:
        is_new = not path.exists()
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.fchmod(handle, 0o600)
            size = os.fstat(handle).st_size
            cut_off = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            _write(handle, (("\n" if cut_off else "") + line).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        if is_new:
            _fsync_folder(path.parent)
    except OSError as error:
        raise NotWritten(
            Problem(
                f"the ledger of rentals cannot be written ({error.strerror or error})",
                "a line of it on disk before anything is rented: without it a crash would leave a box billing",
                "free the disk, or set DRAFTHOUSE_STATE to a folder of this user",
                str(path),
            )
        ) from error


def rentals(path: Path) -> dict[str, Rental]:
    """Return what was ever rented, by id, in the order in which it was. Lines that are none are left out."""
    found: dict[str, Rental] = {}
    for line in events(path):
        rental_id, event = str(line.get("id")), str(line.get("event"))
        facts = {key: value for key, value in line.items() if key not in ("id", "event", "time", "instance")}
        if event == INTENT and isinstance(line.get("deadline"), int):
            found[rental_id] = Rental(
                rental_id, line["deadline"], str(line.get("account")), float(line["time"]), facts=facts
            )
        elif rental_id in found and event in EVENTS:
            one = found[rental_id]
            number = line.get("instance")
            found[rental_id] = Rental(
                one.id,
                one.deadline,
                one.account,
                one.begun,
                event,
                number if isinstance(number, int) else one.instance,
                {**one.facts, **facts},
            )
    return found


def events(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the ledger; none where there is no ledger yet. Raises HouseError where it cannot be read."""
    try:
        text = path.read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HouseError(
            Problem(
                f"the ledger of rentals cannot be read ({error.strerror})",
                "what was rented",
                "run this as the user who rented; what bills stands at https://cloud.vast.ai/instances/ too",
                str(path),
            )
        ) from error
    found = []
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue  # cut off by a kill
        if isinstance(data, dict) and isinstance(data.get("time"), (int, float)):
            found.append(data)
    return found


def _write(handle: int, data: bytes) -> None:
    """Write all of it; a disk that is full in the middle is an error, and the rest of the line stays cut off."""
    while data:
        data = data[os.write(handle, data) :]


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
