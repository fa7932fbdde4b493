"""A box as a replica of a fleet: what it says of itself, and how it is drained and put back.

Whether the front may send requests here is asked at the box's own gateway, at `/ready`: 200 where the engine says that
it is healthy and none of two files is there. ``drained`` is a person's or an upgrade's word; ``sick`` the prober's
(`prober.py`), with the reason in it. Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ...bench.foreign_traffic import Traffic, parse_traffic
from ...core.documents import read_json
from ...core.errors import one_problem
from ...core.files import replace_file, text_in
from ...core.http import opener
from ...serving.releases import current
from ..gateway_door import door_folder

FOLDER, ORDER = "replica", "order.json"
DRAINED, SICK = "drained", "sick"
#: What a box is: it takes requests; a person has drained it; it fails its own probe; its engine does not answer.
READY, IS_DRAINED, IS_SICK, AWAY = "ready", "drained", "sick", "away"
#: Seconds between two looks at what still runs. Two in a row must see nothing: a request may be on its way.
LOOK_S = 1.0
_READ_S = 10.0


class Order(TypedDict):
    """What a replica's programs are told: where the engine is, and how often it is asked for a completion (seconds)."""

    base_url: str
    health: str
    metrics_path: str
    model: str
    key_file: str
    probe_s: float


class ReplicaState(TypedDict):
    """A replica at this moment; ``running``: requests in its engine, the queue included, None where it cannot tell."""

    state: str
    why: str
    running: int | None
    profile: str
    arm: str
    engine: str
    version: str


@dataclass(frozen=True)
class Drained:
    """A drain that has ended: whether the box was taking requests before, what still runs, and the seconds waited."""

    changed: bool
    running: int | None
    seconds: float


def order_of(home: Path) -> Order:
    """Return the box's order. Raises DrafthouseError where the box is no replica of a fleet."""
    file = home / FOLDER / ORDER
    if not file.is_file():
        do = "set drafthouse_fleet in its inventory, and run site.yml --tags gateway"
        raise one_problem("not-a-replica", "no such file", "a box that is a replica of a fleet", do, str(file))
    order: Order = read_json(file, "the replica's order", "run site.yml --tags gateway, which writes it")
    return order


def mark(home: Path, name: str) -> Path:
    """Return the file with which a box says that it takes no requests: ``drained`` or ``sick``."""
    return Path(door_folder(str(home))) / name


def set_mark(home: Path, name: str, why: str) -> bool:
    """Write a mark with its reason; return whether it was not there. Others may read it: the gateway may be another."""
    file = mark(home, name)
    new = not file.exists()
    if new or text_in(file).strip() != why:
        replace_file(file, f"{why}\n", 0o644)
    return new


def traffic_of(order: Order) -> Traffic | None:
    """Return what the engine's counters say; None where they cannot be read. Raises OSError where it is not there."""
    key = text_in(order["key_file"]).strip()
    for headers in ({}, {"Authorization": f"Bearer {key}"}):
        request = urllib.request.Request(f"{order['base_url']}{order['metrics_path']}", headers=headers)  # noqa: S310
        try:
            with opener().open(request, timeout=_READ_S) as answer:
                return parse_traffic(answer.read().decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            if error.code not in (401, 403):
                return None
        except http.client.HTTPException:
            return None
    return None


def running_in(order: Order) -> int | None:
    """Return the requests that the engine has, its queue included; 0 where it does not run, None where nobody knows."""
    try:
        running = (traffic_of(order) or {}).get("running")
    except (ConnectionRefusedError, urllib.error.URLError) as error:
        refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
        return 0 if refused else None
    except OSError:
        return None
    return None if running is None else round(running)


def drain(
    home: Path,
    wait_s: float,
    why: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Drained:
    """Have the box take no more requests, and return once those that run have ended.

    An engine that does not tell how many run is given all of ``wait_s`` seconds. Raises DrafthouseError where some
    still run by then: the box stays drained.
    """
    order = order_of(home)
    changed = set_mark(home, DRAINED, why)
    begun, quiet = clock(), 0
    while True:
        sleep(LOOK_S)
        running = running_in(order)
        quiet = quiet + 1 if running == 0 else 0
        waited = clock() - begun
        if quiet > 1 or (running is None and waited >= wait_s):
            return Drained(changed, running, waited)
        if waited >= wait_s and running:
            do = "wait and drain it again, or stop the server, which aborts them; drafthouse fleet undrain puts it back"
            found = f"{running} requests are still running after {wait_s:.0f} s; no new ones arrive"
            raise one_problem("drain-timeout", found, "a box with no requests", do, str(mark(home, DRAINED)))


def undrain(home: Path) -> bool:
    """Have the box take requests again; return whether it was drained. Raises DrafthouseError where it is none."""
    order_of(home)
    there = mark(home, DRAINED).exists()
    mark(home, DRAINED).unlink(missing_ok=True)
    return there


def state_of(home: Path) -> ReplicaState:
    """Return what the box is at this moment. Raises DrafthouseError where it is no replica of a fleet."""
    order, served = order_of(home), current(home)
    state, why = _state(home, order)
    return {
        "state": state,
        "why": why,
        "running": running_in(order) if state != AWAY else 0,
        "profile": str(served["profile"]) if served else "",
        "arm": str(served["arm"]) if served else "",
        "engine": str(served["engine"]) if served else "",
        "version": str(served["version"]) if served else "",
    }


def _state(home: Path, order: Order) -> tuple[str, str]:
    for name, state in ((DRAINED, IS_DRAINED), (SICK, IS_SICK)):
        if mark(home, name).exists():
            return state, text_in(mark(home, name)).strip()
    try:
        with opener().open(f"{order['base_url']}{order['health']}", timeout=_READ_S):
            return READY, ""
    except (OSError, http.client.HTTPException) as error:
        return AWAY, f"the engine does not answer: {error}"
