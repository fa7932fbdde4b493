"""Take a box out of its fleet's traffic, wait until its engine has no running requests, and put it back.

`serving/out_of_traffic.py` has the files that do this. Standard library only, Python 3.10: it runs on the box.
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
from ...core.places import ORDER
from ...serving.first_request import ask_once
from ...serving.out_of_traffic import FOLDER, RUN, out_file

#: Seconds between two looks for running requests. The box is idle if two looks in a row see none.
LOOK_S = 1.0
#: Seconds until the front has noticed that the box is out or in: it checks every 2 s, with a timeout of 3 s.
FRONT_S = 5.0
_READ_S = 10.0  # timeout of a read of the counters


class Order(TypedDict):
    """The order, a file of settings that the Ansible role writes: how to reach the box's engine."""

    base_url: str  # over loopback
    health: str  # path of the health page
    metrics_path: str  # path of the counters
    model: str  # its name in the API
    key_file: str  # with the API key; a missing file is as an empty key


@dataclass(frozen=True)
class Moved:
    """The result of taking a box out of traffic, or of putting it back."""

    changed: bool  # False if it was out, or in, before
    running: int | None  # requests in the engine at the end; None if it does not report them, or they were not read
    seconds: float  # that it took


def order_of(home: Path) -> Order:
    """The order (settings) in the box's ``home``. Raises DrafthouseError if the box is in no fleet."""
    file = home / FOLDER / ORDER
    if not file.is_file():
        do = "set drafthouse_fleet in its inventory, and run site.yml --tags gateway"
        raise one_problem("not-a-replica", "no such file", "a box that is a replica of a fleet", do, str(file))
    order: Order = read_json(file, "the replica's order", "run site.yml --tags gateway, which writes it")
    return order


def traffic_of(order: Order) -> Traffic | None:
    """The engine's counters, or None if it refuses to show them. Raises OSError if it cannot be reached."""
    key = {"Authorization": f"Bearer {text_in(order['key_file']).strip()}"}
    request = urllib.request.Request(f"{order['base_url']}{order['metrics_path']}", headers=key)  # noqa: S310
    try:
        with opener().open(request, timeout=_READ_S) as answer:
            return parse_traffic(answer.read().decode("utf-8", "replace"))
    except (urllib.error.HTTPError, http.client.HTTPException):
        return None


def running_in(order: Order) -> int | None:
    """The requests that the engine runs or queues; 0 if it does not run, None if it does not report them."""
    try:
        traffic = traffic_of(order) or {}
    except (ConnectionRefusedError, urllib.error.URLError) as error:
        refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
        return 0 if refused else None
    except OSError:
        return None
    running = traffic.get("running")
    return None if running is None else round(running)


def take_out(
    home: Path,
    owner: str,
    why: str,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Moved:
    """Take the box out of traffic for ``owner`` (`DRAIN`, a person, or `RUN`), and wait for the running requests.

    ``why``: for the answer of /ready. The wait takes FRONT_S to ``wait_s`` seconds: before FRONT_S the front may still
    send requests to an idle box. If the engine does not report its requests, the wait takes the whole time. Raises
    DrafthouseError if requests still run. Then the file of a run is removed, because that run ends; the file of a
    person's drain stays.
    """
    order = order_of(home)
    file = out_file(home, owner)
    changed = not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, f"{why}\n", 0o644)
    begun = clock()
    idle_looks = 0  # in a row
    while True:
        sleep(LOOK_S)
        running = running_in(order)
        waited = clock() - begun
        idle_looks = idle_looks + 1 if running == 0 else 0
        if idle_looks > 1 and waited >= FRONT_S:
            return Moved(changed, running, waited)
        if waited < max(wait_s, FRONT_S):
            continue
        # The time is over. Idle (0) at the last look alone is enough now, and so are requests that are not reported.
        if not running:
            return Moved(changed, running, waited)
        do = "wait and do it again, or stop the server, which aborts them"
        if owner == RUN:
            file.unlink(missing_ok=True)
        else:
            do += "; drafthouse fleet undrain puts the box back"
        found = f"{running} requests are still running after {waited:.0f} s without new ones"
        raise one_problem("drain-timeout", found, "a box with no requests", do, str(file))


def put_in(home: Path, owner: str, sleep: Callable[[float], None] = time.sleep) -> Moved:
    """Remove the file with which ``owner`` has taken the box out of traffic.

    For a run, the engine must first answer a request, and then the front gets time to notice the box. Raises
    DrafthouseError if the engine does not answer; then the box stays out.
    """
    order = order_of(home)
    file = out_file(home, owner)
    if not file.exists():
        return Moved(changed=False, running=None, seconds=0.0)
    begun = time.monotonic()
    if owner == RUN:
        ask_once(order["base_url"], order["model"], text_in(order["key_file"]).strip(), tokens=1)
    file.unlink(missing_ok=True)
    if owner == RUN:
        sleep(FRONT_S)
    return Moved(changed=True, running=None, seconds=time.monotonic() - begun)
