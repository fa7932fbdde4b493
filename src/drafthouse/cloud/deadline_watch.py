#!/usr/bin/env python3
# On a box this file is written by Drafthouse: the next run overwrites changes made there.
"""End a rented box at its deadline, with the key that the platform gave the container for itself.

    deadline.py FOLDER

It runs there as it stands, and shortened out of the start command (`cloud/deadline.py`), before anything else of ours
is there. Standard library only; it imports nothing of ours.

FOLDER/arm.json says until when and where to ask; FOLDER/journal.jsonl is what happened. Time is counted by the
machine's own monotonic clock: a wall clock that is set ends nothing early. What time it is, and since when the box is
rented, the provider says: when an order is taken up, and after each restart of the machine; until it answers, the wall
clock says how long the machine was away. A box that cannot end itself stops itself; where that fails too,
FOLDER/power_off.py, which comes with a playbook as what serves does, ends what serves.
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
    Told = tuple[float, float | None]

EVERY_S, AGAIN_S, RARELY_S, JUMP_S, LATE_S, ASK_S = 10, 60, 600, 60, 3600, 300
# The tries from which on the box asks to be stopped, too, and from which on what serves on it is ended.
STOP_AT, OFF_AT = 5, 8
WAYS = ("DELETE", None, "destroyed"), ("PUT", {"state": "stopped"}, "stopped; its disk is still billed: make destroy")


def left_of(arm: Data, now: Data) -> float:
    """The seconds left by an order: from its own moment; with a deadline alone by a wall clock that can be."""
    if arm.get("boot") == now["boot"]:
        left: float = arm["left_s"] - (now["up"] - arm["up"])
        return left
    left = arm["deadline"] - now["wall"]
    life: float = arm.get("life_s") or arm["left_s"]
    return left if life - min(LATE_S, life / 2) <= left <= life else life


def went_on(state: Data, now: Data) -> tuple[float, float]:
    """The seconds left after the time since `state`, and by how much the wall clock was set meanwhile."""
    wall = now["wall"] - state["wall"]
    if state["boot"] != now["boot"]:
        return state["left_s"] - max(0, wall), 0
    up = now["up"] - state["up"]
    return state["left_s"] - up, wall - up


def clocks() -> Data:
    """The machine's clocks: wall, seconds since its start, and which start that was."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return {"wall": time.time(), "up": time.clock_gettime(time.CLOCK_BOOTTIME), "boot": file.read().strip()}


def given() -> dict[str, str]:
    """What the platform gave the container: SSH sessions do not see it, the first process does."""
    try:
        with open("/proc/1/environ", "rb") as file:
            pairs = (entry.partition("=") for entry in file.read().decode(errors="replace").split("\0"))
            return {**{name: value for name, _, value in pairs}, **os.environ}
    except OSError:
        return dict(os.environ)


class Stay(urllib.request.HTTPRedirectHandler):
    """The key goes nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def talk(verb: str, body: Data | None, url: str, environ: Mapping[str, str]) -> tuple[int, Data, Any]:
    """Status, JSON and time of an answer; 0 where none came. 401 where the platform gave no key."""
    key, number = environ.get("CONTAINER_API_KEY"), environ.get("CONTAINER_ID", "")
    if not key or not number:
        return 401, {}, None
    request = urllib.request.Request(  # noqa: S310 (a deadline's order names vast.ai)
        f"{url}/api/v0/instances/{number}/",
        None if verb == "GET" else json.dumps(body or {}).encode(),
        method=verb,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    try:
        try:
            with urllib.request.build_opener(Stay).open(request, timeout=30) as answer:
                status, data = answer.status, dict(json.load(answer))
        except urllib.error.HTTPError as error:
            answer, status, data = error, error.code, {}
        return status, data, answer.headers["Date"]
    except Exception:  # no connection, half an answer, one that is none
        return 0, {}, None


def ask(verb: str, body: Data | None, url: str, environ: Mapping[str, str]) -> int:
    """The status of the answer; 400 where it says no in a good one."""
    status, data, _ = talk(verb, body, url, environ)
    return status if status != 200 or data.get("success") else 400


def told(url: str, environ: Mapping[str, str]) -> Told | None:
    """The provider's time, and since when the box is rented where it says that; None without an answer."""
    _, data, date = talk("GET", None, url, environ)
    try:
        now = email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    try:
        return now, data["instances"]["start_date"] + 0
    except (TypeError, LookupError):
        return now, None


class Watch:
    """One watch over one box, out of its folder."""

    # What files of the folder say, None before the first: the order, and what is known of the time under it.
    order: Any
    state: Any

    def __init__(self, folder: str) -> None:
        self.folder, self.order, self.state, self.wait, self.tries, self.ask_at = folder, None, None, 5, 0, 0
        self.taken = 0

    def say(self, what: str) -> None:
        """Add a line to the journal."""
        line = {"at": round(time.time()), "left_s": round(self.state["left_s"]) if self.state else None, "what": what}
        self.put("journal.jsonl", json.dumps(line) + "\n", "a")

    def put(self, name: str, text: str, mode: str) -> bool:
        """Write; a disk that is full must not keep the box from ending."""
        try:
            with open(f"{self.folder}/{name}", mode) as file:
                file.write(text)
            return True
        except OSError:
            return False

    def read(self, name: str) -> Any:
        """What a file of the folder says; None where it says nothing."""
        try:
            with open(f"{self.folder}/{name}.json") as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def corrected(self, date: float, start: float | None) -> None:
        """Count by the provider's clock, until what was found at its first word, also after the machine's restart."""
        state, arm = self.state, self.order
        if "ends" not in state:
            # A playbook's order is counted from the moment it came, a start script's from when the box was rented.
            if arm.get("boot") == state["sure"]:
                state["ends"] = date + state["left_s"]
            else:
                state["ends"] = start + arm["life_s"] if start and "life_s" in arm else arm["deadline"]
        left = state["ends"] - date
        if abs(left - state["left_s"]) > JUMP_S:
            self.say(f"{left:.0f} s are left by the provider's clock")
        state["left_s"] = left

    def tick(self, now: Data, told: Callable[[], Told | None]) -> bool:
        """Take the order and the time in; tell whether the time is over."""
        arm = self.read("arm")
        if self.order is None:
            self.state = self.read("clock")
            self.order = self.state and self.state["order"]
        if arm and arm != self.order:
            self.state, self.order, self.ask_at = {"left_s": left_of(arm, now)}, arm, 0
            self.say("armed")
        elif self.state:
            left, jump = went_on(self.state, now)
            self.state["left_s"] = left
            if abs(jump) > JUMP_S:
                self.say(f"the clock jumped by {jump:.0f} s; the deadline stays")
        else:
            return False
        state = self.state
        if state.get("sure") != now["boot"] and (now["up"] >= self.ask_at or state["left_s"] <= 0):
            self.ask_at = now["up"] + ASK_S
            if word := told():
                state["sure"] = now["boot"]
                self.corrected(*word)
        state.update(now, order=self.order)
        if self.put("clock.new", json.dumps(state), "w"):
            os.replace(f"{self.folder}/clock.new", f"{self.folder}/clock.json")
        over: bool = state["left_s"] <= 0
        return over

    def end(self, asked: Callable[[str, Data | None], int]) -> bool:
        """Tell whether the platform took it. What is refused is not to be had; what fails is asked for again."""
        self.tries += 1
        for verb, body, done in WAYS:
            status = asked(verb, body)
            if 200 <= status < 300:
                self.say(done)
                self.taken += 1
                # It said so three times, and this box is still here.
                if body or self.taken <= 3:
                    return True
            else:
                self.say(f"{verb}: " + (f"status {status}" if status else "no answer"))
                passing = not 400 <= status < 500 or status in (408, 425, 429)
                if passing and self.tries < STOP_AT:
                    break
        return False

    def once(
        self,
        now: Data,
        asked: Callable[[str, Data | None], int],
        told: Callable[[], Told | None] = lambda: None,
    ) -> float:
        """Look once; return the seconds until the next look."""
        if not self.tick(now, told):
            self.tries, self.taken, self.wait = 0, 0, 5
            return EVERY_S if not self.state else max(0.1, min(EVERY_S, self.state["left_s"]))
        took, most, off = self.end(asked), AGAIN_S, f"{self.folder}/power_off.py"
        if self.tries >= OFF_AT and os.path.exists(off):
            words = sys.executable, off, self.folder
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            self.say((done.stdout + done.stderr[-300:]).strip() or "no server here; this box still bills: make destroy")
            took, most = False, RARELY_S
        self.wait = AGAIN_S if took else min(most, self.wait * 2)
        return self.wait


def main() -> None:
    """Watch until the box ends."""
    os.umask(0o77)
    watch = Watch(sys.argv[1])
    with open(f"{watch.folder}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watch.say("watching")
        while True:
            try:
                wait = watch.once(
                    clocks(),
                    lambda verb, body: ask(verb, body, watch.order["url"], given()),
                    lambda: told(watch.order["url"], given()),
                )
            except Exception as error:  # an order that is none: nothing may end the watch
                print(f"{time.ctime()}: {error!r}", flush=True)
                wait = EVERY_S
            time.sleep(wait)


if __name__ == "__main__":
    main()
