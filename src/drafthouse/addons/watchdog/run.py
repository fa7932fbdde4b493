"""The watchdog program on the box: read the engine's counters, let `decision.py` decide, and carry the decision out.

    python drafthouse-HASH.pyz watchdog HOME

The order (the settings) is `watchdog/order.json` in HOME and is read before each look at the counters. In the mode
`report` a decision is only written to the journal. In the mode `restart` it becomes a wish, that is, a decision that
waits for an idle moment. At an idle moment

- no measurement runs, and the server is the one for which the decision was made;
- with a gateway: its door (`switch.Door`) is closed, and running requests end within ``drain_s`` seconds. If they do
  not, the door opens, and the wish waits for ``again_s`` seconds, doubled each time. No running request is cut off;
- without a gateway: no request runs at two looks, a second apart.

A wish is dropped after ``patience_s`` seconds without an idle moment. After two failed changes in a row nothing is
changed until the order changes, or somebody else restarts the server.
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
from ...core.locks import locked_file, only_one
from ...core.procfs import boot_id
from ...profiles.watchdog_settings import REPORT
from ...serving.releases import current_server
from ...serving.runtimes import Runtime, runtime_of
from .decision import HOLD, OFF, ON, TRIAL, Decision, Memory, Rules, Window, after_change, after_decision, decide
from .journal import FOLDER, STATE, State, append_line, elapsed_s, read_order, read_state, write_state
from .reading import output_tokens_between, read_now
from .switch import SPECULATIVE, Door, is_box_locked, restore_recorded, switch_to_phase

if TYPE_CHECKING:
    from drafthouse.addons.watchdog.journal import Clocks, Line, LineBody, Order, Wish
    from drafthouse.bench.result_types import Snapshot
    from drafthouse.serving.history import Serving

#: Seconds between two looks for running requests; an idle moment lasts from one to the next.
LOOK_S = 1.0
#: Seconds until the next look after one that raised an error.
RETRY_S = 10.0
#: Seconds after which an unchanged `hold` is logged again, to show that the watchdog still runs.
REPEAT_S = 3600.0
#: Seconds after which a `hold` is logged again if reasons alternate: more lines would fill the limited journal.
ALTERNATE_S = 300.0
#: Failed changes in a row after which nothing is changed any more.
MOST_FAILURES = 2
#: The code of a `hold` that cancels a waiting wish: speculation pays again.
PAYS_AGAIN = "pays"
#: Errors of a look or a change: Drafthouse's problems, an incomplete or missing file, a supervisord that ends.
_ERRORS = (DrafthouseError, OSError, LookupError, ValueError, TypeError, xmlrpc.client.Error)
#: Seconds between two saves of the state; a killed program loses at most the windows of this time.
SAVE_S = 20.0


def clocks() -> Clocks:
    """The present readings of the machine's clocks."""
    return {"wall": time.time(), "up": time.clock_gettime(time.CLOCK_BOOTTIME), "boot": boot_id()}


class Watchdog:
    """The watchdog of one box; tests replace what it does outside of its files, which is all in the parameters.

    ``now`` reads the machine's clocks, ``read`` the engine's counters. ``change`` serves the arm for a decision's word,
    with a reason; ``restore`` puts back the recorded server.
    """

    def __init__(
        self,
        home: Path,
        *,
        now: Callable[[], Clocks] = clocks,
        read: Callable[[Order], Snapshot] | None = None,
        change: Callable[[Path, str, str], None] = switch_to_phase,
        restore: Callable[[Path], None] = restore_recorded,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.home = home
        self.folder = home / FOLDER
        self.now = now
        self.read = read or read_now
        self.change = change
        self.restore = restore
        self.sleep = sleep
        self.order = read_order(self.folder)
        self.state = read_state(self.folder) or State(Memory(), now())
        self.snapshot: Snapshot | None = None  # the last read of the present server's counters
        self.last_logged: tuple[str, str] | None = None  # word and code of the journal's last line
        self.logged_s: dict[tuple[str, str], float] = {}  # when each was last logged, on the clock of the memory
        self.saved_s = 0.0  # when the state was last saved, on `time.monotonic`

    # --- one look -----------------------------------------------------------------------------------

    def once(self) -> Decision:
        """Read the counters once and decide; act now, or keep the decision as a wish.

        A change that this program has begun and not ended comes first, and a waiting wish before a new decision.
        """
        self.reload_order()
        if self.state.under_way:
            self.resume()
        window = self.read_window()
        order = self.order
        memory = self.state.memory
        points = [Point(**point) for point in order["points"]]
        rules = Rules(**order["rules"])
        always_drafts = order["mode"] == REPORT
        memory, decision = decide(rules, points, order["tokens"], memory, window, always_drafts=always_drafts)
        self.state = self.state.with_(memory=memory)
        decision = self.checked(decision)
        if self.state.wish and decision.code == PAYS_AGAIN:
            self.state = self.state.with_(wish=None)
            self.log_hold(decision)
        # Without counts (no server, a measurement, no counters) the wish waits.
        elif self.state.wish and not window.missing:
            self.try_wish()
        elif decision.word != HOLD:
            self.act_on(decision)
        else:
            self.log_hold(decision)
        if decision.word != HOLD or time.monotonic() - self.saved_s > SAVE_S:
            self.save()
        return decision

    def reload_order(self) -> None:
        """Read the order; if it differs from the last one, which outlives a restart, reset what it affects.

        Always: failures and the wish. With other costs: all that was counted. With other costs or another mode: which
        server was seen last. The first order of all resets nothing more and is not logged.
        """
        before = self.state.told
        order = read_order(self.folder)
        self.order = order
        if order == before:
            return
        self.state = self.state.with_(told=order, failures=0, wish=None)
        if before is None:
            return
        self.log({"decision": HOLD, "code": "order", "why": f"a new order, mode {order['mode']}"})
        if order["points"] != before["points"]:
            # A new measurement has chosen the present arm: earlier traffic does not count.
            self.state = self.state.with_(memory=Memory(clock_s=self.state.memory.clock_s))
        if (order["points"], order["mode"]) != (before["points"], before["mode"]):
            # The mode `report` may have set the phase OFF without a change: take the phase from the server.
            self.state = self.state.with_(arm=None, started=None)

    def read_window(self) -> Window:
        """The counts since the last look, or why there are none; a new server is recorded in the state."""
        now = self.now()
        seconds = elapsed_s(self.state.clock, now)
        self.state = self.state.with_(clock=now)
        serving = current_server(self.home)
        if serving is None:
            self.snapshot = None
            return Window(seconds, missing="no server is recorded for this box: run site.yml --tags report")
        if is_box_locked(self.home):
            # The requests of a measurement are not the box's traffic.
            self.snapshot = None
            return Window(seconds, missing="a measurement or another change is in progress")
        status = self.runtime().state(str(serving["arm"]))
        if not status.running:
            self.snapshot = None
            return Window(seconds, missing=f"the {serving['arm']} arm is not running ({status.why})")
        if (serving["arm"], status.started) != (self.state.arm, self.state.started):
            return self.server_changed(seconds, serving, status.started)
        before = self.snapshot
        after = self.read(self.order)
        self.snapshot = after
        if after["error"]:
            self.snapshot = None
            return Window(seconds, missing=f"no counters: {after['error']}")
        if before is None:
            return Window(seconds, missing="the first look at these counters")
        return self.window_between(before, after, seconds)

    def window_between(self, before: Snapshot, after: Snapshot, seconds: float) -> Window:
        """The counts between two reads of the same server's counters, or why there are none."""
        counted = difference(before, after)
        if counted is None:
            return Window(seconds, missing="the engine's counters were reset, or do not count drafts")
        drafted = counted["draft_tokens"]
        if drafted is None:
            # SGLang does not count draft tokens: assume K for each draft.
            drafted = (counted["num_drafts"] or 0) * self.order["tokens"]
        return Window(
            seconds,
            drafted=int(drafted),
            accepted=int(counted["accepted_tokens"] or 0),
            drafts=counted["num_drafts"],
            tokens=output_tokens_between(before, after),
            load=(after.get("traffic") or {}).get("running"),
        )

    def server_changed(self, seconds: float, serving: Serving, started: float | None) -> Window:
        """Record a server that the watchdog has not started, drop the wish, and return a window without counts.

        The server is left alone for ``dwell_s``. If it changes the phase between OFF and the others, the memory begins
        anew, except in the mode `report`, in which the phase OFF is only a decision on paper.
        """
        is_first_look = self.state.arm is None
        memory = self.state.memory
        phase = _phase_of(serving)
        if (phase == OFF) != (memory.phase == OFF) and self.order["mode"] != REPORT:
            memory = Memory(phase=phase, clock_s=memory.clock_s)
        # Whoever restarted the server may have removed the cause of the failures.
        self.state = self.state.with_(
            arm=serving["arm"], started=started, memory=after_change(memory), wish=None, failures=0
        )
        self.snapshot = None
        if is_first_look:  # nobody has changed the server
            return Window(seconds, missing="the first look")
        return Window(seconds, restarted=True)

    def checked(self, decision: Decision) -> Decision:
        """The decision; `hold` instead of a trial if the run, and not the watchdog, has chosen the baseline.

        That is so if no traffic with drafts was seen: the watchdog switches speculation off only after such traffic.
        """
        if decision.word == TRIAL and not self.state.memory.seen:
            why = "the run chose to serve without speculation; the watchdog only reverses its own changes"
            return Decision(HOLD, "chosen", why, decision.numbers)
        return decision

    # --- from a decision to a change ------------------------------------------------------------------

    def act_on(self, decision: Decision) -> None:
        """Log a decision other than HOLD, and act by the first of these that holds.

        1. It needs no change of the server: the memory takes it as carried out.
        2. Too many changes failed: nothing is changed for ``dwell_s``.
        3. Else it becomes a wish, which is tried at once.
        """
        # The mode `report` changes nothing, and after a successful trial the speculative arm already serves.
        no_change = self.order["mode"] == REPORT or (decision.word == ON and self.state.memory.phase == TRIAL)
        acts = not no_change and self.state.failures < MOST_FAILURES
        self.log({"decision": decision.word, "code": decision.code, "why": decision.why, "acts": acts,
                  "numbers": decision.numbers})  # fmt: skip
        if acts:
            wish: Wish = {"word": decision.word, "code": decision.code, "why": decision.why}
            self.state = self.state.with_(wish=wish, wish_s=self.state.memory.clock_s)
            self.try_wish()
        elif no_change:
            self.state = self.state.with_(memory=after_decision(self.state.memory, decision))
        else:
            self.state = self.state.with_(memory=after_change(self.state.memory))

    def try_wish(self) -> None:
        """Carry the wish out if the moment is idle; else try it again later, or drop it after ``patience_s``."""
        wish = self.state.wish
        clock_s = self.state.memory.clock_s
        if wish is None or clock_s < float(wish.get("not_before_s", 0.0)):
            return
        door = Door(self.order["door"])
        obstacle = self.obstacle_at(door)
        if not obstacle:
            self.carry_out(door, wish)
            return
        if door.exists:
            # Each attempt delays requests, so the pause after it is doubled.
            pause_s = float(wish.get("pause_s", self.order["again_s"]))
            later: Wish = {**wish, "not_before_s": clock_s + pause_s, "pause_s": 2 * pause_s}
            self.state = self.state.with_(wish=later)
        if clock_s - self.state.wish_s > self.order["patience_s"]:
            self.log({"decision": HOLD, "code": "never_quiet", "why": f"no idle moment was found: {obstacle}"})
            self.state = self.state.with_(wish=None, memory=after_change(self.state.memory))
        else:
            self.log_hold(Decision(HOLD, "busy", obstacle))

    def obstacle_at(self, door: Door) -> str:
        """Why the server cannot be changed now; '' if it can: no request runs, and the door, if any, is closed.

        With an obstacle the door is open.
        """
        if self.order["door"] and not door.exists:
            return "the gateway in front cannot queue requests: run site.yml --tags gateway"
        if "running" not in (self.read(self.order).get("traffic") or {}):
            # Without this counter an idle moment cannot be recognised.
            return "the engine does not report its running requests"
        if door.exists:
            if not self.drain(door):
                return f"running requests did not end in {self.order['drain_s']:.0f} s"
        elif not self.is_idle():
            return "requests are running"
        if is_box_locked(self.home):
            door.open()
            return "a measurement has started"
        return ""

    def drain(self, door: Door) -> bool:
        """Close the door and wait for the running requests; if they do not end, open it and return False."""
        end = time.monotonic() + float(self.order["drain_s"])
        idle = False
        door.close()
        try:
            while not (idle := self.is_idle()) and time.monotonic() < end:
                self.sleep(LOOK_S)
        finally:
            if not idle:
                door.open()
        return idle

    def is_idle(self) -> bool:
        """True if no request runs or waits in the engine, at two looks `LOOK_S` apart."""
        for look in (1, 2):
            if look == 2:
                self.sleep(LOOK_S)
            snapshot = self.read(self.order)
            # An engine that does not report running requests never counts as idle.
            if snapshot["error"] or (snapshot.get("traffic") or {}).get("running") != 0:
                return False
        return True

    def carry_out(self, door: Door, wish: Wish) -> None:
        """Change the server and log the result; the door opens even if the change fails.

        The change is saved before it begins, so that `resume` finds it if this program is ended meanwhile.
        """
        decision = Decision(wish["word"], wish["code"], wish["why"])
        begun = time.monotonic()
        self.state = self.state.with_(under_way={"to": decision.word, "why": decision.why}, wish=None)
        self.save()
        try:
            # All programs that restart servers hold this lock. ``end_others``: a new measurement may end the watchdog,
            # but the watchdog ends no measurement.
            with only_one(self.home / "benchmark.lock", end_others=False):
                self.change(self.home, decision.word, f"watchdog: {decision.why}")
            failures = 0
            code = "changed"
            why = decision.why
        except _ERRORS as error:
            failures = self.state.failures + 1
            code = "failed"
            why = str(error)
        finally:
            door.open()
        memory = self.advanced_memory()
        self.adopt_server(after_change(memory) if failures else after_decision(memory, decision))
        self.state = self.state.with_(under_way=None, failures=failures)
        self.log({"decision": decision.word, "code": code, "why": why, "seconds": round(time.monotonic() - begun, 1)})

    def advanced_memory(self) -> Memory:
        """The memory with the time that a change took added to its clock; the state's clock is set to now."""
        memory = self.state.memory
        now = self.now()
        seconds = elapsed_s(self.state.clock, now)
        self.state = self.state.with_(clock=now)
        return replace(memory, clock_s=memory.clock_s + seconds)

    def adopt_server(self, memory: Memory) -> None:
        """Save ``memory`` and the present server in the state, so that the next look sees nobody else's change."""
        serving = current_server(self.home)
        arm = serving["arm"] if serving else None
        started = self.runtime().state(str(arm)).started if arm else None
        self.snapshot = None
        self.state = self.state.with_(memory=memory, arm=arm, started=started)

    def resume(self) -> None:
        """Continue after this program was ended during a change: restore the recorded server, and open the door.

        The memory takes the phase of the change if the recorded server is the one that the change led to, and that
        server could be restored. Else the phase stays.
        """
        begun = self.state.under_way
        serving = current_server(self.home)
        phase = ON
        if serving:
            phase = _phase_of(serving)
        to = begun["to"] if begun else None
        # The change leads to the baseline for OFF, and to the speculative arm for ON and TRIAL.
        has_taken_effect = (to == OFF) == (phase == OFF)
        # Another program that holds the lock starts and ends servers itself, so nothing is restored meanwhile.
        problem = "" if is_box_locked(self.home) else self.restore_recorded()
        memory = self.advanced_memory()
        if has_taken_effect and not problem:
            memory = after_decision(memory, Decision(str(to), "resumed", ""))
        self.adopt_server(after_change(memory))
        self.state = self.state.with_(under_way=None, failures=self.state.failures + bool(problem))
        Door(self.order["door"]).open()
        why = problem or f"stopped during a change to '{to}'; the recorded server was restored"
        self.log({"decision": HOLD, "code": "resumed", "why": why})

    def restore_recorded(self) -> str:
        """Restore the recorded server; return why that failed, '' if it did not."""
        try:
            with only_one(self.home / "benchmark.lock", end_others=False):
                self.restore(self.home)
        except _ERRORS as error:
            return str(error)
        return ""

    # --- journal and state ----------------------------------------------------------------------------

    def log_hold(self, decision: Decision) -> None:
        """Log a `hold`, unless one with the same code was logged recently.

        Recently is `REPEAT_S` if the journal's last line is the same, and `ALTERNATE_S` if other lines came between.
        """
        word_and_code = (decision.word, decision.code)
        pause_s = ALTERNATE_S
        if word_and_code == self.last_logged:
            pause_s = REPEAT_S
        if word_and_code in self.logged_s and self.state.memory.clock_s - self.logged_s[word_and_code] < pause_s:
            return
        self.log({"decision": decision.word, "code": decision.code, "why": decision.why, "acts": False,
                  "numbers": decision.numbers})  # fmt: skip

    def log(self, line: LineBody) -> None:
        """Add a line to the journal; an error such as a full disk is only printed."""
        self.last_logged = (str(line["decision"]), str(line["code"]))
        self.logged_s[self.last_logged] = self.state.memory.clock_s
        whole_line: Line = {
            "at": round(time.time(), 1), "mode": self.order["mode"], "arm": self.state.arm, **line,
        }  # fmt: skip
        try:
            append_line(self.folder, whole_line)
        except OSError as error:
            print(f"{time.ctime()}: the journal: {error}", flush=True)

    def save(self) -> None:
        """Save the state; an error such as a full disk is only printed."""
        self.saved_s = time.monotonic()
        try:
            write_state(self.folder, self.state)
        except OSError as error:
            print(f"{time.ctime()}: {STATE}: {error}", flush=True)

    def runtime(self) -> Runtime:
        """The runtime of the box's servers: Docker or supervisord."""
        return runtime_of(self.order["runtime"], self.home)


def _phase_of(serving: Serving) -> str:
    """ON if the speculative arm serves, else OFF."""
    return ON if serving["arm"] == SPECULATIVE else OFF


def watch(home: Path) -> None:
    """Run the watchdog of the box with the folder ``home`` until a signal ends it."""
    os.umask(0o77)
    # An exception, unlike the default, runs the `finally` blocks that open the door.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Only one watchdog may change the server.
    with locked_file(home / FOLDER / "lock"):
        watchdog = Watchdog(home)
        if not watchdog.state.under_way:
            # A watchdog that was killed while it waited for an idle moment has left the door closed.
            Door(watchdog.order["door"]).open()
        watchdog.log({"decision": HOLD, "code": "watching", "why": f"mode {watchdog.order['mode']}"})
        while True:
            try:
                watchdog.once()
                wait_s = float(watchdog.order["every_s"])
            except _ERRORS as error:
                print(f"{time.ctime()}: {error!r}", flush=True)
                wait_s = RETRY_S
            time.sleep(wait_s)
