#!/usr/bin/env python3
# On a box this file is written by Drafthouse: the next run overwrites changes made there.
"""Destroy a rented box at its deadline, with the API key that the platform gives each container for itself.

    deadline.py FOLDER

Runs on the box, started by the playbook, or in a shortened form by the start script (`cloud/deadline.py`) before any
other file of Drafthouse is there. Standard library only.

FOLDER/arm.json is the order, FOLDER/journal.jsonl the log, FOLDER/clock.json the state. Time is counted by the
machine's monotonic clock, so a change of the wall clock does not end the box early. After each new order and restart
the provider gives its time; until then the wall clock tells how long the machine was off. If the box cannot be
destroyed, it is stopped; if that fails too, FOLDER/power_off.py ends the model servers.

The code is denser than elsewhere: packed, it must fit into a start script of 4048 characters.

Keys of the order:

    deadline            end of the rental, unix seconds
    life_s              start script's order only: seconds from the start of the rental to its end
    left_s, boot, up    playbook's order only: seconds left when it was given, and the machine's clock then
    url                 vast.ai's API
    home                home folder of the model servers, for power_off.py

Keys of the state, which are those of `clocks` at the last look, and:

    left_s              seconds left
    order               the order that it follows
    sure                the boot for which the provider has given its time; missing: it has not
    ends                end of the rental by the provider's clock, unix seconds; missing until it has given its time
"""

from __future__ import annotations

import email.utils
import fcntl
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Data = dict[str, Any]
    ProviderTime = tuple[float, float | None]

EVERY_S = 10  # seconds between two looks
RETRY_S = 60  # seconds between two tries to end the box, at most
SLOW_RETRY_S = 600  # the same once its servers are ended
JUMP_S = 60  # seconds of a change of a clock that is logged
TOLERANCE_S = 3600  # seconds of an order's age for which the wall clock counts as plausible, at most
ASK_S = 300  # seconds between two requests for the provider's time
STOP_AT = 5  # number of the failed try from which the box is also asked to stop
OFF_AT = 8  # number of the failed try from which its servers are ended
# Requests that end the box: method, body, and the journal's line for an accepted one. The first is preferred.
STEPS = ("DELETE", None, "destroyed"), ("PUT", {"state": "stopped"}, "stopped; its disk is still billed: make destroy")


def left_of(order: Data, now: Data) -> float:
    """Seconds left by a new order.

    1. The playbook's, in the same boot: the seconds left when it was given, minus those since then.
    2. Else by its deadline and the wall clock, if that is plausible: an order lasts for the whole life, or for what was
       left when the playbook gave it, and of this at most TOLERANCE_S, and at most half, may have passed.
    3. Else all for which the order lasts: a wrong wall clock must not end the box early.
    """
    if order.get("boot") == now["boot"]:
        left: float = order["left_s"] - (now["up"] - order["up"])
        return left
    left = order["deadline"] - now["wall"]
    life: float = order.get("life_s") or order["left_s"]
    return left if life - min(TOLERANCE_S, life / 2) <= left <= life else life


def advance(state: Data, now: Data) -> tuple[float, float]:
    """Seconds left now, and by how many seconds the wall clock was changed since `state` was taken.

    After a restart the wall clock tells how long the machine was off; a change of it cannot be seen then (0).
    """
    wall = now["wall"] - state["wall"]
    if state["boot"] != now["boot"]:
        return state["left_s"] - max(0, wall), 0
    up = now["up"] - state["up"]
    return state["left_s"] - up, wall - up


def clocks() -> Data:
    """The machine's clocks: wall clock, seconds since its start, and the id of that start."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return {"wall": time.time(), "up": time.clock_gettime(time.CLOCK_BOOTTIME), "boot": file.read().strip()}


def container_env() -> dict[str, str]:
    """The container's environment with the API key. Only the first process has it; SSH sessions do not."""
    try:
        with open("/proc/1/environ", "rb") as file:
            pairs = (entry.partition("=") for entry in file.read().decode(errors="replace").split("\0"))
            return {**{name: value for name, _, value in pairs}, **os.environ}
    except OSError:
        return dict(os.environ)


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirects, so that the key reaches no other host."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request."""


def send(verb: str, body: Data | None, url: str, environ: Mapping[str, str]) -> tuple[int, Data, Any]:
    """Status, JSON object and Date header of an answer. Status 0: no answer; 401: the container has no key."""
    key = environ.get("CONTAINER_API_KEY")
    instance_id = environ.get("CONTAINER_ID", "")
    if not key or not instance_id:
        return 401, {}, None
    request = urllib.request.Request(  # noqa: S310 (a deadline's order names vast.ai)
        f"{url}/api/v0/instances/{instance_id}/",
        None if verb == "GET" else json.dumps(body or {}).encode(),
        method=verb,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        try:
            with urllib.request.build_opener(NoRedirects).open(request, timeout=30) as answer:
                status = answer.status
                data = dict(json.load(answer))
        except urllib.error.HTTPError as error:
            answer = error
            status = error.code
            data = {}
        return status, data, answer.headers["Date"]
    except Exception:  # no connection, or an incomplete or malformed answer
        return 0, {}, None


def ask(verb: str, body: Data | None, url: str, environ: Mapping[str, str]) -> int:
    """Status of the answer (0: none); 400 if it has status 200 but reports a failure."""
    status, data, _ = send(verb, body, url, environ)
    return status if status != 200 or data.get("success") else 400


def provider_time(url: str, environ: Mapping[str, str]) -> ProviderTime | None:
    """Provider's time and start of the rental (None if missing), in unix seconds; None if no answer has the time."""
    _, data, date = send("GET", None, url, environ)
    try:
        now = email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    try:
        return now, data["instances"]["start_date"] + 0
    except (TypeError, LookupError):
        return now, None


class Watch:
    """Watch over the deadline of one box; it keeps its files in ``folder``."""

    # The order and the state, as in the head of this file; None before the first order.
    order: Any
    state: Any

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.order = self.state = None
        self.wait = 5  # seconds; doubled before it is used
        self.tries = 0  # tries to end the box, in a row
        self.accepted = 0  # those of them whose request was accepted
        self.ask_at = 0  # the uptime from which the provider's time is asked for

    def log(self, what: str) -> None:
        """Append a line to the journal."""
        line = {"at": round(time.time()), "left_s": round(self.state["left_s"]) if self.state else None, "what": what}
        self.write("journal.jsonl", json.dumps(line) + "\n", "a")

    def write(self, name: str, text: str, mode: str) -> bool:
        """Write a file; return False if that fails, because a full disk must not stop the watch."""
        try:
            with open(f"{self.folder}/{name}", mode) as file:
                file.write(text)
            return True
        except OSError:
            return False

    def read(self, name: str) -> Any:
        """Content of a JSON file in the folder; None if it is missing or malformed."""
        try:
            with open(f"{self.folder}/{name}.json") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def use_provider_time(self, date: float, start: float | None) -> None:
        """Count by the provider's time (``date``); the end is fixed at its first answer and kept after restarts.

        The end, in unix seconds by the provider's clock, is

        1. for the playbook's order, in the boot in which it was given: ``date`` plus the seconds left;
        2. for the start script's order: the ``start`` of the rental plus its life;
        3. in another boot, or without a ``start``: the order's deadline.
        """
        state = self.state
        order = self.order
        if "ends" not in state:
            if order.get("boot") == state["sure"]:
                state["ends"] = date + state["left_s"]
            else:
                state["ends"] = start + order["life_s"] if start and "life_s" in order else order["deadline"]
        left = state["ends"] - date
        if abs(left - state["left_s"]) > JUMP_S:
            self.log(f"{left:.0f} s are left by the provider's clock")
        state["left_s"] = left

    def update(self, now: Data, provider_time: Callable[[], ProviderTime | None]) -> bool:
        """Read the order and update the seconds left; return True if none are left.

        An order that cannot be read does not end the watch: the last one counts. False without any.
        """
        order = self.read("arm")
        if self.order is None:
            self.state = self.read("clock")
            self.order = self.state and self.state["order"]
        if order and order != self.order:
            self.state = {"left_s": left_of(order, now)}
            self.order = order
            self.ask_at = 0
            self.log("armed")
        elif self.state:
            left, jump = advance(self.state, now)
            self.state["left_s"] = left
            if abs(jump) > JUMP_S:
                self.log(f"the clock jumped by {jump:.0f} s; the deadline stays")
        else:
            return False
        state = self.state
        if state.get("sure") != now["boot"] and (now["up"] >= self.ask_at or state["left_s"] <= 0):
            self.ask_at = now["up"] + ASK_S
            if answer := provider_time():
                state["sure"] = now["boot"]
                self.use_provider_time(*answer)
        state.update(now, order=self.order)
        if self.write("clock.new", json.dumps(state), "w"):
            os.replace(f"{self.folder}/clock.new", f"{self.folder}/clock.json")
        is_over: bool = state["left_s"] <= 0
        return is_over

    def end(self, send_request: Callable[[str, Data | None], int]) -> bool:
        """Ask to destroy the box, then perhaps to stop it; return True if the last request was accepted.

        It is also asked to stop if the request to destroy it was refused, or fails from try STOP_AT on, or was accepted
        three times before while the box still runs.
        """
        self.tries += 1
        for verb, body, outcome in STEPS:
            status = send_request(verb, body)
            if 200 <= status < 300:
                self.log(outcome)
                self.accepted += 1
                if body or self.accepted <= 3:
                    return True
            else:
                self.log(f"{verb}: " + (f"status {status}" if status else "no answer"))
                # A failure that may pass: try to destroy the box again later. It is stopped only from try STOP_AT on.
                is_temporary = not 400 <= status < 500 or status in (408, 425, 429)
                if is_temporary and self.tries < STOP_AT:
                    break
        return False

    def once(
        self,
        now: Data,
        send_request: Callable[[str, Data | None], int],
        provider_time: Callable[[], ProviderTime | None] = lambda: None,
    ) -> float:
        """Update the state, end the box if it is due, and return the seconds until the next look.

        After a try to end it, the next look is the next try, so the pause grows.
        """
        if not self.update(now, provider_time):
            self.tries = self.accepted = 0
            self.wait = 5
            return EVERY_S if not self.state else max(0.1, min(EVERY_S, self.state["left_s"]))
        is_accepted = self.end(send_request)
        max_wait = RETRY_S
        program = f"{self.folder}/power_off.py"
        if self.tries >= OFF_AT and os.path.exists(program):
            words = sys.executable, program, self.folder
            proc = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            self.log((proc.stdout + proc.stderr[-300:]).strip() or "no server here; this box still bills: make destroy")
            is_accepted = False
            max_wait = SLOW_RETRY_S
        self.wait = RETRY_S if is_accepted else min(max_wait, self.wait * 2)
        return self.wait


def main() -> None:
    """Watch until the box ends; wait first for the lock if another watch runs."""
    os.umask(0o77)
    watch = Watch(sys.argv[1])
    with open(f"{watch.folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watch.log("watching")
        while True:
            try:
                wait = watch.once(
                    clocks(),
                    lambda verb, body: ask(verb, body, watch.order["url"], container_env()),
                    lambda: provider_time(watch.order["url"], container_env()),
                )
            except Exception as error:  # for example a malformed order: the watch must go on
                print(f"{time.ctime()}: {error!r}", flush=True)
                wait = EVERY_S
            time.sleep(wait)


if __name__ == "__main__":
    main()
