"""The watchdog on the box: looks at the engine's counters, has `decision.py` decide, and does what was decided.

    python drafthouse-HASH.pyz watchdog HOME

The order is `watchdog/order.json` below HOME and is read at every look. In the mode `report` a decision is a line in
the journal and nothing else. Otherwise it is a wish, which waits for a quiet moment:

- no measurement of ours is under way, and what serves is what served when it was decided;
- with a gateway: its door is closed, and what is under way is given ``drain_s`` seconds to end. Where that is not
  enough the door opens again, and the wish waits for ``again_s``, and twice as long each time after that; no request
  that the engine knows of is cut off;
- without one: nothing is under way at two looks, a second apart.

A wish that finds no such moment in ``patience_s`` of the order is dropped. After two changes in a row that came to
nothing, nothing is changed any more until the order is another one, or somebody else starts the server anew.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import xmlrpc.client
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...analysis.break_even import Point
from ...bench.spec_metrics import difference
from ...core.errors import DrafthouseError
from ...core.locks import held, only_one
from ...core.procfs import boot_id
from ...profiles.watchdog_settings import REPORT
from ...serving.releases import current
from ...serving.runtimes import Runtime, runtime_of
from .decision import HOLD, OFF, ON, TRIAL, Decision, Memory, Rules, Window, changed, decide, settled
from .journal import FOLDER, STATE, State, elapsed, note, read_order, read_state, write_state
from .reading import answered, read_now
from .switch import SPECULATIVE, Door, is_measured, restore, serve

if TYPE_CHECKING:
    from drafthouse.addons.watchdog.journal import Clocks, Order, Said, Wish
    from drafthouse.bench.result_types import Snapshot
    from drafthouse.serving.history import Serving

#: A quiet moment is one that lasts from one look to the next, in seconds.
LOOK_S = 1.0
#: An unchanged `hold` is written down again after this time, so that the journal shows that somebody watched.
STILL_S = 3600.0
#: And one of several that take turns after this: they must not drive the decisions out of a journal with a bound.
TURNS_S = 300.0
MOST_FAILURES = 2
#: The code of a `hold` that makes a waiting wish pointless: the traffic drafts well again.
PAYS_AGAIN = "pays"
#: What a change, or a look, may fail with: the house's own problems, a file half-written or gone, a supervisor's end.
_FAILS = (DrafthouseError, OSError, LookupError, ValueError, TypeError, xmlrpc.client.Error)
#: What is lost of the evidence where the program is killed, in seconds.
SAVE_S = 20.0


def clocks() -> Clocks:
    """Read the machine's clocks."""
    return {"wall": time.time(), "up": time.clock_gettime(time.CLOCK_BOOTTIME), "boot": boot_id()}


class Watchdog:
    """One watch over one box. What touches the world is given, so that tests give their own."""

    def __init__(
        self,
        home: Path,
        *,
        now: Callable[[], Clocks] = clocks,
        read: Callable[[Order], Snapshot] | None = None,
        change: Callable[[Path, str, str], None] = serve,
        restore: Callable[[Path], None] = restore,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.home, self.folder = home, home / FOLDER
        self.now, self.change, self.restore, self.sleep = now, change, restore, sleep
        self.read = read or read_now
        self.order = read_order(self.folder)
        self.state = read_state(self.folder) or State(Memory(), now())
        self.snapshot: Snapshot | None = None
        self.said: tuple[str, str] | None = None
        self.said_s: dict[tuple[str, str], float] = {}
        self.saved_s = 0.0

    # --- one look -----------------------------------------------------------------------------------

    def once(self) -> Decision:
        """Look once, decide, and do what can be done of it now."""
        self.take_order()
        if self.state.under_way:
            self.find_again()
        window = self.window()
        order, memory = self.order, self.state.memory
        points = [Point(**point) for point in order["points"]]
        rules = Rules(**order["rules"])
        sees = order["mode"] == REPORT
        memory, decision = decide(rules, points, order["tokens"], memory, window, sees=sees)
        self.state = self.state.with_(memory=memory)
        decision = self.allowed(decision)
        if self.state.wish and decision.code == PAYS_AGAIN:
            self.state = self.state.with_(wish=None)
            self.tell(decision)
        elif self.state.wish and not window.missing:
            self.try_wish()
        elif decision.word != HOLD:
            self.take(decision)
        else:
            self.tell(decision)
        if decision.word != HOLD or time.monotonic() - self.saved_s > SAVE_S:
            self.save()
        return decision

    def take_order(self) -> None:
        """Read the order again, and see whether it is the one that was gone by so far, before a restart of ours too."""
        order, before = read_order(self.folder), self.state.told
        self.order = order
        if order == before:
            return
        self.state = self.state.with_(told=order, failures=0, wish=None)
        if before is None:
            return
        self.say({"decision": HOLD, "code": "order", "why": f"a new order, mode {order['mode']}"})
        if order["points"] != before["points"]:
            # It was measured anew: what serves now was chosen by that, and not by what was seen before.
            self.state = self.state.with_(memory=Memory(clock_s=self.state.memory.clock_s))
        if (order["points"], order["mode"]) != (before["points"], before["mode"]):
            # Who only reported that it does not pay has switched nothing off: look at what serves.
            self.state = self.state.with_(arm=None, started=None)

    def window(self) -> Window:
        """Return what was counted since the look before, and take in what else changed meanwhile."""
        now = self.now()
        seconds = elapsed(self.state.clock, now)
        self.state = self.state.with_(clock=now)
        serving = current(self.home)
        if serving is None:
            self.snapshot = None
            return Window(seconds, missing="no server is recorded for this box: run site.yml --tags report")
        if is_measured(self.home):
            # Its requests are no traffic of the box's, and its servers come and go.
            self.snapshot = None
            return Window(seconds, missing="a measurement or another change is in progress")
        status = self.runtime().state(str(serving["arm"]))
        if not status.running:
            self.snapshot = None
            return Window(seconds, missing=f"the {serving['arm']} arm is not running ({status.why})")
        if (serving["arm"], status.started) != (self.state.arm, self.state.started):
            return self.other_server(seconds, serving, status.started)
        before, after = self.snapshot, self.read(self.order)
        self.snapshot = after
        if after["error"]:
            self.snapshot = None
            return Window(seconds, missing=f"no counters: {after['error']}")
        if before is None:
            return Window(seconds, missing="the first look at these counters")
        moved = difference(before, after)
        if moved is None:
            return Window(seconds, missing="the engine's counters were reset, or do not count drafts")
        drafted = moved["draft_tokens"]
        if drafted is None:
            # An engine that does not count them (SGLang) drafts as many as the profile says.
            drafted = (moved["num_drafts"] or 0) * self.order["tokens"]
        return Window(
            seconds,
            drafted=int(drafted),
            accepted=int(moved["accepted_tokens"] or 0),
            drafts=moved["num_drafts"],
            tokens=answered(before, after),
            load=(after.get("traffic") or {}).get("running"),
        )

    def other_server(self, seconds: float, serving: Serving, started: float | None) -> Window:
        """Take in that another server runs than before, which we have not started: it is left alone for a while."""
        first = self.state.arm is None
        memory, phase = self.state.memory, _phase_of(serving)
        if (phase == OFF) != (memory.phase == OFF) and self.order["mode"] != REPORT:
            memory = Memory(phase=phase, clock_s=memory.clock_s)
        # Whoever served it anew may have mended what changes came to nothing by.
        self.state = self.state.with_(
            arm=serving["arm"], started=started, memory=changed(memory), wish=None, failures=0
        )
        self.snapshot = None
        if first:
            # Where the watch has only begun, nothing was changed by anybody.
            return Window(seconds, missing="the first look")
        return Window(seconds, restarted=True)

    def allowed(self, decision: Decision) -> Decision:
        """A decision, or why it is not for us to make."""
        if decision.word == TRIAL and not self.state.memory.seen:
            why = "the run chose to serve without speculation; the watchdog only reverses its own changes"
            return Decision(HOLD, "chosen", why, decision.numbers)
        return decision

    # --- from a decision to a change ------------------------------------------------------------------

    def take(self, decision: Decision) -> None:
        """Write a decision down; where nothing has to be changed for it, that is all."""
        nothing = self.order["mode"] == REPORT or (decision.word == ON and self.state.memory.phase == TRIAL)
        acts = not nothing and self.state.failures < MOST_FAILURES
        self.say({"decision": decision.word, "code": decision.code, "why": decision.why, "acts": acts,
                  "numbers": decision.numbers})  # fmt: skip
        if acts:
            wish: Wish = {"word": decision.word, "code": decision.code, "why": decision.why}
            self.state = self.state.with_(wish=wish, wish_s=self.state.memory.clock_s)
            self.try_wish()
        elif nothing:
            self.state = self.state.with_(memory=settled(self.state.memory, decision))
        else:
            self.state = self.state.with_(memory=changed(self.state.memory))

    def try_wish(self) -> None:
        """Carry the wish out where the moment is a quiet one; drop it where none came in time."""
        wish, clock_s = self.state.wish, self.state.memory.clock_s
        if wish is None or clock_s < float(wish.get("not_before_s", 0.0)):
            return
        door, late = Door(self.order["door"]), ""
        if self.order["door"] and not door.there:
            late = "the gateway in front cannot queue requests: run site.yml --tags gateway"
        elif "running" not in (self.read(self.order).get("traffic") or {}):
            # Nobody would know when to open the door again.
            late = "the engine does not report its running requests"
        elif not (self.drained(door) if door.there else self.is_quiet()):
            late = "requests are running"
            if door.there:
                late = f"running requests did not end in {self.order['drain_s']:.0f} s"
        elif is_measured(self.home):
            door.open()
            late = "a measurement has started"
        else:
            self.carry_out(door, wish)
            return
        if door.there:
            # Every try held requests for nothing: each waits twice as long as the one before.
            pause_s = float(wish.get("pause_s", self.order["again_s"]))
            later: Wish = {**wish, "not_before_s": clock_s + pause_s, "pause_s": 2 * pause_s}
            self.state = self.state.with_(wish=later)
        if clock_s - self.state.wish_s > self.order["patience_s"]:
            self.say({"decision": HOLD, "code": "never_quiet", "why": f"no idle moment was found: {late}"})
            self.state = self.state.with_(wish=None, memory=changed(self.state.memory))
        else:
            self.tell(Decision(HOLD, "busy", late))

    def drained(self, door: Door) -> bool:
        """Close the door, and tell whether all that was under way has ended; where it has not, open it again."""
        end, quiet = time.monotonic() + float(self.order["drain_s"]), False
        door.close()
        try:
            while not (quiet := self.is_quiet()) and time.monotonic() < end:
                self.sleep(LOOK_S)
        finally:
            if not quiet:
                door.open()
        return quiet

    def is_quiet(self) -> bool:
        """Tell whether nothing runs or waits on the engine, at two looks."""
        for look in range(2):
            if look:
                self.sleep(LOOK_S)
            snapshot = self.read(self.order)
            # An engine that does not say what runs is never known to be quiet.
            if snapshot["error"] or (snapshot.get("traffic") or {}).get("running") != 0:
                return False
        return True

    def carry_out(self, door: Door, wish: Wish) -> None:
        """Change the server, and open the door whatever came of it."""
        decision = Decision(wish["word"], wish["code"], wish["why"])
        begun = time.monotonic()
        self.state = self.state.with_(under_way={"to": decision.word, "why": decision.why}, wish=None)
        self.save()
        try:
            # Whoever restarts servers holds this lock: a measurement that begins now ends us, and we never end one.
            with only_one(self.home / "benchmark.lock", end_others=False):
                self.change(self.home, decision.word, f"watchdog: {decision.why}")
            failures, code, why = 0, "changed", decision.why
        except _FAILS as error:
            failures, code, why = self.state.failures + 1, "failed", str(error)
        finally:
            door.open()
        memory = self.went_on()
        self.recognise(changed(memory) if failures else settled(memory, decision))
        self.state = self.state.with_(under_way=None, failures=failures)
        self.say({"decision": decision.word, "code": code, "why": why, "seconds": round(time.monotonic() - begun, 1)})

    def went_on(self) -> Memory:
        """The memory with the time that a change took: the server is left alone from its end on."""
        now, memory = self.now(), self.state.memory
        seconds = elapsed(self.state.clock, now)
        self.state = self.state.with_(clock=now)
        return replace(memory, clock_s=memory.clock_s + seconds)

    def recognise(self, memory: Memory) -> None:
        """Take what serves now for what we left, so that it is not taken for somebody else's change."""
        serving = current(self.home)
        arm = serving["arm"] if serving else None
        started = self.runtime().state(str(arm)).started if arm else None
        self.snapshot = None
        self.state = self.state.with_(memory=memory, arm=arm, started=started)

    def find_again(self) -> None:
        """Go on after we were ended in the middle of a change: what is recorded is put back, and the door opens."""
        begun = self.state.under_way
        serving = current(self.home)
        phase = ON
        if serving:
            phase = _phase_of(serving)
        to = begun and begun["to"]
        done = (to == OFF) == (phase == OFF)
        problem = "" if is_measured(self.home) else self.put_right()
        memory = self.went_on()
        if done and not problem:
            memory = settled(memory, Decision(str(to), "resumed", ""))
        self.recognise(changed(memory))
        self.state = self.state.with_(under_way=None, failures=self.state.failures + bool(problem))
        Door(self.order["door"]).open()
        why = problem or f"stopped during a change to '{to}'; the recorded server was restored"
        self.say({"decision": HOLD, "code": "resumed", "why": why})

    def put_right(self) -> str:
        """Have what is recorded serve, where it does not; return what is wrong with that."""
        try:
            with only_one(self.home / "benchmark.lock", end_others=False):
                self.restore(self.home)
        except _FAILS as error:
            return str(error)
        return ""

    # --- what is kept ---------------------------------------------------------------------------------

    def tell(self, decision: Decision) -> None:
        """Write a `hold` down where its reason is another one, or an hour has gone by."""
        what = (decision.word, decision.code)
        pause_s = TURNS_S
        if what == self.said:
            pause_s = STILL_S
        if what in self.said_s and self.state.memory.clock_s - self.said_s[what] < pause_s:
            return
        self.say({"decision": decision.word, "code": decision.code, "why": decision.why, "acts": False,
                  "numbers": decision.numbers})  # fmt: skip

    def say(self, line: Said) -> None:
        """Add a line to the journal; a full disk must not end the watch."""
        self.said = (str(line["decision"]), str(line["code"]))
        self.said_s[self.said] = self.state.memory.clock_s
        mode, arm = self.order["mode"], self.state.arm
        try:
            note(self.folder, {"at": round(time.time(), 1), "mode": mode, "arm": arm, **line})
        except OSError as error:
            print(f"{time.ctime()}: the journal: {error}", flush=True)

    def save(self) -> None:
        """Keep the state; a full disk must not end the watch."""
        self.saved_s = time.monotonic()
        try:
            write_state(self.folder, self.state)
        except OSError as error:
            print(f"{time.ctime()}: {STATE}: {error}", flush=True)

    def runtime(self) -> Runtime:
        """The box's runtime."""
        return runtime_of(self.order["runtime"], self.home)


def _phase_of(serving: Serving) -> str:
    """Whether what serves drafts: ON or OFF."""
    return ON if serving["arm"] == SPECULATIVE else OFF


def watch(home: Path) -> None:
    """Watch over the box whose folder of ours is ``home``, until somebody ends it."""
    os.umask(0o77)
    # Ended like this, it opens the door on its way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Two of them would change the server in turns.
    with held(home / FOLDER / "lock"):
        watchdog = Watchdog(home)
        if not watchdog.state.under_way:
            # One that was killed while it waited for a quiet moment has left it closed.
            Door(watchdog.order["door"]).open()
        watchdog.say({"decision": HOLD, "code": "watching", "why": f"mode {watchdog.order['mode']}"})
        while True:
            try:
                watchdog.once()
                wait_s = float(watchdog.order["every_s"])
            except _FAILS as error:
                print(f"{time.ctime()}: {error!r}", flush=True)
                wait_s = 10.0
            time.sleep(wait_s)
