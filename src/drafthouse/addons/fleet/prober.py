"""The prober on a replica: asks its own engine for a real completion now and then, and says where none comes.

    python drafthouse-HASH.pyz probe HOME

An engine whose workers are stuck still says that it is healthy. So every ``probe_s`` seconds it is asked for one token,
unless its counters say that it has made some since the last time; where none comes the mark ``sick`` is written, and
the front sends nobody here until one came again. A full engine is not sick: while its counters say that it makes
tokens, a probe that waits in its queue says nothing. Nothing is asked while a measurement of ours is under way, and the
box takes no requests then. Standard library only, Python 3.10.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...core.errors import DrafthouseError
from ...core.files import text_in
from ...serving.first_request import ask_once
from ..watchdog.switch import is_measured
from .replica import SICK, Order, mark, order_of, set_mark, traffic_of

#: Seconds for an answer; between two looks; until the next probe of a box that is sick.
ANSWER_S, LOOK_S, AGAIN_S = 30.0, 1.0, 2.0
#: A measurement has steps, with other arms between them: so long an engine must be well before it is over, in seconds.
OVER_S = 30.0
MEASURED = "a measurement of ours is under way"


class Prober:
    """The probes of one box. What touches the world is given, so that tests give their own."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.home, self.clock = home, clock
        self.next_s = clock()
        self.well_s: float | None = None
        self.made: float | None = None  # tokens that the engine had made when it was last looked at

    def look(self) -> None:
        """Do what is due: nothing, a probe, or the mark of a measurement."""
        if is_measured(self.home):
            set_mark(self.home, SICK, MEASURED)
            self.next_s, self.well_s, self.made = self.clock(), None, None
            return
        if self.clock() < self.next_s:
            return
        order = order_of(self.home)
        wrong = "" if _is_more(_made(order), self.made) else probe(order)
        self.made = _made(order)
        if is_measured(self.home):  # it began meanwhile
            return
        now, file = self.clock(), mark(self.home, SICK)
        self.well_s = None if wrong else now if self.well_s is None else self.well_s
        if wrong and set_mark(self.home, SICK, wrong):
            print(f"sick: {wrong}", flush=True)
        waits = text_in(file).strip() == MEASURED and self.well_s is not None and now - self.well_s < OVER_S
        if not wrong and not waits and file.exists():
            file.unlink()
            print("ready again", flush=True)
        self.next_s = now + (AGAIN_S if wrong or waits else order["probe_s"])


def probe(order: Order, timeout_s: float = ANSWER_S) -> str:
    """Return what is wrong with the engine's answer to a request for one token, '' where nothing is."""
    before = _made(order)
    key = text_in(order["key_file"]).strip()
    try:
        ask_once(order["base_url"], order["model"], key, timeout_s, tokens=1)
    except DrafthouseError as error:
        return "" if _is_more(_made(order), before) else error.problems[0].found
    return ""


def _is_more(now: float | None, before: float | None) -> bool:
    return now is not None and before is not None and now > before


def _made(order: Order) -> float | None:
    """Return the tokens that the engine has made since its start, None where it does not tell."""
    try:
        return (traffic_of(order) or {}).get("output_tokens")
    except OSError:
        return None


def probe_for_ever(home: Path) -> None:
    """Look until somebody ends it; an order or a mark that cannot be read or written now may be there later."""
    prober = Prober(home)
    while True:
        try:
            prober.look()
        except (DrafthouseError, OSError) as error:
            print(error, flush=True)
            time.sleep(AGAIN_S)
        time.sleep(LOOK_S)
