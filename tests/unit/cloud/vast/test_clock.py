"""Three hours are three hours: rentals while the clock of the machine that rented is wrong, and set in mid-run.

The provider's clock is the truth: the server of these tests has it. The controller's and the box's wall clocks are each
wrong as the test says; no second is waited for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.action import resolve as resolve_action
from ansible_collections.drafthouse.core.plugins.inventory import vastai as inventory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafthouse.cloud.deadline import deadline_of
from drafthouse.cloud.vast import destroy as vast_destroy
from drafthouse.cloud.vast import ledger as vast_ledger
from drafthouse.cloud.vast import listing as vast_listing
from drafthouse.cloud.vast.attempt import RentSetup
from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.clock import ClockReading, Lease, ProviderClock, clock_reading, ends_at, lease_of, left_of
from drafthouse.cloud.vast.destroy import end_rentals
from drafthouse.cloud.vast.instances import host_of
from drafthouse.cloud.vast.ledger import new_id, record, rentals
from drafthouse.cloud.vast.listing import list_rentals
from drafthouse.cloud.vast.offers import Limits
from drafthouse.cloud.vast.rent import rent
from drafthouse.core.procfs import Clocks
from tests.fakes.vast_server import KEY, Fault, Life, Running, vast_server
from tests.support.deadline_box import DEADLINE, HOUR, Box, armed, loaded, written
from tests.support.refusals import refuses
from tests.support.vast_bench import CAP, PROFILE, PUBLIC, QUICK, WAITS

pytestmark = pytest.mark.processes

DAY = 86400.0
# `Date` is in whole seconds; what is left in the order is exact. Promised are 15 s: the network takes its time, too.
SLACK_S = 3.0


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return loaded(written(tmp_path_factory.mktemp("program")))


@dataclass
class Desk:
    """A machine that rents; all time is ``now``, the provider's, and what the clocks here are off by."""

    vast: Running
    folder: Path
    resolved: Any
    now: float = 1_790_000_000.0
    off: float = 0.0  # the wall clock's
    slept: float = 0.0
    told: list[str] = field(default_factory=list)
    number: int = 0
    sure: bool = True  # what was told last came from the provider

    def clocks(self) -> Clocks:
        return Clocks(self.now + self.off, self.now - 1_780_000_000, "controller")

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def client(self) -> VastClient:
        return VastClient(KEY, self.vast.url, patience=QUICK, sleep=self.sleep, clock=ProviderClock(self.clocks))

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    def world(self) -> RentSetup:
        up = lambda: self.clocks().up  # noqa: E731
        return RentSetup(
            self.client(), self.ledger, self.told.append, lambda text: None, lambda text: True, clock=up,
            sleep=self.sleep,
        )  # fmt: skip

    def rent(self, hours: float = 3.0) -> dict[str, Any]:
        """Rent a box; return what it was created with."""
        outcome = rent(self.world(), self.resolved, Limits(CAP, hours), PUBLIC, WAITS)
        assert outcome
        (box,) = outcome.boxes
        self.number = box.instance
        return self.vast.market.instances[box.instance].body

    def end(self, **options: Any) -> None:
        up = lambda: self.clocks().up  # noqa: E731
        end_rentals(self.client(), self.ledger, tell=self.told.append, clock=up, sleep=self.sleep, **options)

    def inventory(self) -> Any:
        """The host's variables, as the inventory reads them."""
        client = self.client()
        (row,) = [row for row in client.instances() if row["id"] == self.number]
        host = host_of(row)
        # Two libraries for mypy, as the plugin names its own; one in this process (support/one_name.py).
        book: Any = rentals(self.ledger)
        account: Any = client
        lease = inventory._lease(host, row, book, account)
        return {**host, "drafthouse_lease": lease}

    def left(self, host: Any, **extra: Any) -> float:
        """What a playbook tells the box that is left, by what the inventory said."""
        variables = host | extra
        deadline = resolve_action._deadline(variables)
        lease: Any = resolve_action._lease(variables, deadline)
        assert lease
        self.sure = lease["sure"]
        return left_of(lease, self.clocks())


@pytest.fixture
def desk(tmp_path: Path, resolved: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    tmp_path.chmod(0o700)
    with vast_server() as vast:
        desk = Desk(vast, tmp_path, resolved)
        vast.market.clock = lambda: desk.now
        wall = SimpleNamespace(
            time=lambda: desk.clocks().wall, strftime=lambda *words: "then", localtime=lambda when: when
        )
        for module in (vast_ledger, vast_destroy, vast_listing):
            monkeypatch.setattr(module, "time", wall)
        monkeypatch.setattr(resolve_action, "clocks", desk.clocks)
        yield desk


class Rented(Box):
    """The box that ``desk`` rented, from its first start on; its wall clock is off by ``wrong``."""

    def __init__(self, code: ModuleType, desk: Desk, body: dict[str, Any], wrong: float) -> None:
        super().__init__(code, desk.folder)
        self.desk, self.url = desk, desk.vast.url
        arm = re.search(r"echo '(\{[^']*\})' >\$d/arm.json", body["onstart"])
        assert arm
        (self.folder / "arm.json").write_text(arm[1])
        key = desk.vast.market.instances[desk.number].container_key
        self.environ = {"CONTAINER_ID": str(desk.number), "CONTAINER_API_KEY": key}
        self.wrong = wrong

    def _stamp(self) -> None:
        now = self.desk.now
        self.now = {"wall": now + self.wrong, "up": now - 1_700_000_000, "boot": "box"}

    def once(self) -> float:
        self._stamp()
        code = self.code
        wait: float = self.watch.once(
            dict(self.now),
            lambda verb, body: code.ask(verb, body, self.url, self.environ),
            lambda: code.provider_time(self.url, self.environ),
        )
        return wait

    def goes_on(self, seconds: float) -> None:
        """Let it look all the while, until it is destroyed."""
        until = self.desk.now + seconds
        while self.desk.now < until and self.desk.number in self.desk.vast.instances:
            wait = self.once()
            if self.desk.number not in self.desk.vast.instances:
                break
            # Nothing happens between two looks long before the end.
            self.desk.now += min(wait if self.left < 120 else 60, until - self.desk.now)

    def play(self, host: Any, **extra: Any) -> None:
        """Let a playbook give it its order, by what the inventory said."""
        deadline = resolve_action._deadline(host | extra)
        assert deadline
        self._stamp()
        left = self.desk.left(host, **extra)
        armed(self.folder, deadline, left, self.url, self.clocks, home="/workspace", sure=self.desk.sure)


# --- a rental -----------------------------------------------------------------------------------------------

CLOCKS = {
    "right": (0.0, 0.0),
    "a day ahead, then put right": (DAY, 0.0),
    "a day behind, then put right": (-DAY, 0.0),
    "always a day ahead": (DAY, DAY),
    "always a day behind": (-DAY, -DAY),
    "right, then a day ahead": (0.0, DAY),
    "right, then a day behind": (0.0, -DAY),
    "from one wrong time to the other": (DAY, -DAY),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [*((name, 0.0) for name in CLOCKS), *(("from one wrong time to the other", wrong) for wrong in (-DAY, DAY))],
)
def test_three_hours_are_three_hours(code: ModuleType, desk: Desk, name: str, wrong: float) -> None:
    desk.off, later = CLOCKS[name]
    box = Rented(code, desk, desk.rent(3.0), wrong)
    begun = float(desk.vast.instances[desk.number]["start_date"])
    box.goes_on(900)
    host = desk.inventory()
    box.play(host)  # before the clock is put right ...
    desk.off = later
    box.goes_on(300)
    box.play(host)  # ... after it was, with what the inventory read before: a playbook in which it happens ...
    box.goes_on(HOUR)
    box.play(desk.inventory())  # ... and a later one
    box.goes_on(30 * HOUR)
    assert desk.vast.market.gone == [desk.number]
    assert desk.now - begun == pytest.approx(3 * HOUR, abs=SLACK_S)


@pytest.mark.parametrize("off", [DAY, -DAY])
def test_a_ledger_of_an_earlier_version_too(code: ModuleType, desk: Desk, off: float) -> None:
    """Deadline and begin were this machine's clock then: how far they are apart is right."""
    desk.off = off
    one, wall = new_id(), desk.clocks().wall
    deadline = int(wall + 3 * HOUR)
    client = desk.client()
    record(desk.ledger, "intent", one, deadline=deadline, account=client.account, profile=PROFILE)
    body = {"image": "x", "disk": 20, "label": vast_ledger.label_of(one, deadline)}
    desk.number = client.create(8200002, body)
    record(desk.ledger, "created", one, instance=desk.number)
    desk.off = 0.0
    desk.now += HOUR
    assert desk.left(desk.inventory()) == pytest.approx(2 * HOUR, abs=SLACK_S)


def test_a_deadline_that_a_person_gives_is_by_their_own_clock(desk: Desk) -> None:
    desk.off = DAY
    desk.rent(3.0)
    asked = int(desk.clocks().wall + 5 * HOUR)
    assert desk.left(desk.inventory(), drafthouse_deadline=asked) == pytest.approx(5 * HOUR, abs=SLACK_S)


@pytest.mark.parametrize("off", [DAY, -DAY])
def test_a_box_of_a_static_inventory_keeps_what_it_was_rented_with(code: ModuleType, desk: Desk, off: float) -> None:
    """Nobody asked the provider: all that is known is the deadline that the box itself was given, and a wrong clock."""
    box = Rented(code, desk, desk.rent(3.0), 0.0)
    begun = float(desk.vast.instances[desk.number]["start_date"])
    box.goes_on(900)
    desk.off = off
    deadline = deadline_of(desk.vast.instances[desk.number]["label"])
    box.play({"drafthouse_label": f"drafthouse-0123456789-{deadline}"})
    assert json.loads((desk.folder / "arm.json").read_text())["home"] == "/workspace"
    box.goes_on(30 * HOUR)
    assert desk.now - begun == pytest.approx(3 * HOUR, abs=SLACK_S)


def test_the_wait_for_a_box_is_not_lengthened_by_a_clock_that_is_set(desk: Desk) -> None:
    desk.vast.market.lives += [Life(stuck=True)] * 3

    def back() -> None:
        desk.off -= DAY

    desk.vast.faults.append(Fault("instance", skip=10, act=back))
    with refuses("no-offer-started"):
        desk.rent()
    assert desk.slept < 5 * (WAITS.boot_s + 60)


# --- destroy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked_at", [True, False], ids=["this version's line", "an earlier version's"])
@pytest.mark.parametrize("off", [DAY, 0.0])
def test_destroy_waits_for_an_unanswered_one_no_longer_than_it_says(desk: Desk, off: float, asked_at: bool) -> None:
    desk.off = off
    client = desk.client()
    client.instances()
    facts = {"asked_at": client.clock.now(), "hours": 3.0} if asked_at else {}
    wall = int(desk.clocks().wall)
    record(desk.ledger, "intent", new_id(), deadline=wall + 9, account=client.account, profile="p", **facts)
    desk.off = 0.0
    desk.end(settle_s=60)
    assert desk.slept == pytest.approx(60, abs=2)
    assert any("was never created" in line for line in desk.told)


@pytest.mark.parametrize("off", [-DAY, -120.0])
def test_a_clock_that_was_behind_does_not_keep_destroy_from_waiting(desk: Desk, off: float) -> None:
    """Believed a day old, it would be given up at once; its box turns up some seconds later, and bills."""
    desk.off = off
    client = desk.client()
    client.instances()
    one, deadline = new_id(), int(client.clock.now() + HOUR)
    facts = {"asked_at": client.clock.now(), "hours": 1.0}
    record(desk.ledger, "intent", one, deadline=deadline, account=client.account, profile="p", **facts)
    desk.vast.market.lives.append(Life(unlisted_for=4))
    number = client.create(8200002, {"image": "x", "disk": 20, "label": vast_ledger.label_of(one, deadline)})
    desk.off = 0.0
    desk.end(settle_s=60)
    assert number not in desk.vast.instances
    assert rentals(desk.ledger)[one].state == "destroyed"


@pytest.mark.parametrize("off", [DAY, -DAY])
def test_the_list_counts_hours_by_the_providers_clock(desk: Desk, off: float) -> None:
    desk.rent(3.0)
    desk.off = off
    desk.now += 2 * HOUR
    (line,), notes, _ = list_rentals(desk.client(), desk.ledger)
    assert line[5] == "2.0 h"
    assert line[7] == "then"
    assert not [note for note in notes if "deadline" in note]


@pytest.mark.parametrize(("state", "says"), [("running", "it is 'running', and bills"), ("stopped", "it is stopped")])
def test_the_list_names_what_did_not_end_itself(desk: Desk, state: str, says: str) -> None:
    desk.rent(3.0)
    desk.vast.market.instances[desk.number].row["intended_status"] = state
    desk.client().instance(desk.number)
    desk.now += 3 * HOUR + 1200
    (line,), notes, _ = list_rentals(desk.client(), desk.ledger)
    assert line[7] == "then passed"
    (note,) = [note for note in notes if "past its deadline" in note]
    assert note.startswith(f"{desk.number} is 20 min past its deadline and did not end itself: {says}")
    assert note.endswith(f"make destroy ARGS={desk.number}")


# --- the clock itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("date", [None, "", "yesterday", "Mon, 99 Nov 2026 99:00:00 GMT", "\0"])
def test_an_answer_without_a_time_leaves_what_was_known(date: str | None) -> None:
    now = Clocks(50.0, 7.0, "b")
    clock = ProviderClock(lambda: now)
    clock.update({"date": "Mon, 23 Nov 2026 07:00:00 GMT"})
    clock.update({} if date is None else {"Date": date})
    assert clock.now() == 1795417200.0


def test_without_any_answer_the_wall_clock_is_all_there_is() -> None:
    assert ProviderClock(lambda: Clocks(50.0, 7.0, "b")).anchor() == ClockReading(50.0, 7.0, "b")


def test_a_restart_of_this_machine_ends_what_was_counted() -> None:
    lease = lease_of(1000.0, ClockReading(400.0, 7.0, "first"))
    assert left_of(lease, Clocks(0.0, 107.0, "first")) == 500.0
    assert left_of(lease, Clocks(800.0, 3.0, "second")) == 200.0
    assert left_of(lease, Clocks(800.0, 3.0, "first")) == 200.0, "where a system does not tell its starts apart"
    assert left_of(json.loads(json.dumps(lease)), Clocks(0.0, 107.0, "first")) == 500.0


@pytest.mark.parametrize(
    ("row", "facts", "begun", "ends"),
    [
        ({"start_date": 100.5}, {"hours": 2}, 0.0, 7300.5),
        ({"start_date": 100.5}, {}, 400.0, 700.5),
        ({"start_date": None}, {"hours": 2}, 400.0, 1000.0),
        ({"start_date": "x"}, {}, 400.0, 1000.0),
        ({}, {"hours": "2"}, None, 1000.0),
    ],
)
def test_when_an_instance_is_due(row: Any, facts: Any, begun: float | None, ends: float) -> None:
    assert ends_at(row, 1000.0, facts, begun) == ends


def test_what_is_no_time_is_none() -> None:
    assert clock_reading({"Content-Type": "x"}, Clocks(1, 1, "")) is None


# --- any order of it ----------------------------------------------------------------------------------------

HOURS = 3.0
Step = tuple[float, str, float]
STEPS = st.lists(
    st.tuples(
        st.floats(0, 5400),
        st.sampled_from(["set", "play", "play later", "box set", "container", "machine", "silent", "answers"]),
        st.floats(-2 * DAY, 2 * DAY),
    ),
    max_size=8,
)


@dataclass
class Clocked:
    """A rental under any order of clock jumps, playbooks and restarts; the right time is ``t`` since it began."""

    box: Box
    right: float = DEADLINE - HOURS * HOUR
    t: float = 0.0
    off: float = 0.0
    wrong: float = 0.0
    boots: int = 0
    silent: bool = False
    lease: Lease | None = None

    def clocks(self) -> Clocks:
        return Clocks(self.right + self.t + self.off, 100 + self.t, "controller")

    def look(self) -> bool:
        """Let the watch look; True when it ends the box."""
        now = self.right + self.t
        self._stamp()
        self.box.provider = lambda: None if self.silent else (float(int(now)), self.right)
        self.box.once()
        return bool(self.box.asked)

    def _stamp(self) -> None:
        wall = self.right + self.t + self.wrong
        self.box.now = {"wall": wall, "up": 500 + self.t, "boot": str(self.boots)}

    def does(self, what: str, by: float) -> None:
        if what == "set":
            self.off = by
        elif what == "box set":
            self.wrong = by
        elif what == "container":
            self.box.watch = self.box.code.Watch(str(self.box.folder))
        elif what == "machine" and not self.silent:
            # Both at once: then the wall clock is all there is, and that is said not to be promised.
            self.boots += 1
            self.wrong = by
            self.does("container", by)
        elif what in ("silent", "answers"):
            self.silent = what == "silent"
        elif what.startswith("play"):
            if what == "play" and not self.silent:
                # The inventory reads; what it read may be kept for a while.
                clock = ProviderClock(self.clocks)
                clock.update({"Date": formatdate(self.right + self.t, usegmt=True)})
                ends = ends_at({"id": 1, "start_date": self.right}, DEADLINE, {"hours": HOURS}, None)
                self.lease = lease_of(ends or 0, clock.anchor())
            if self.lease:
                self._stamp()
                armed(self.box.folder, DEADLINE, left_of(self.lease, self.clocks()), "u", self.box.clocks)


def ends_after(code: ModuleType, folder: Path, steps: list[Step]) -> float:
    """Return when the box was ended, in seconds since it was rented."""
    one = Clocked(Box(code, folder))
    one.box.rented(HOURS * HOUR)
    # The first word of the provider is heard; a silence comes later.
    for wait, what, by in [(0.0, "play", 0.0), *steps]:
        if one.look():
            return one.t
        left = HOURS * HOUR - one.t
        one.t += min(wait, max(left, 0.0))
        one.does(what, by)
    while not one.look():
        left = HOURS * HOUR - one.t
        one.t += left - 1 if left > 2 else 1
        assert one.t < 2 * HOURS * HOUR, "it is never ended"
    return one.t


@settings(
    max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_whatever_the_clocks_do(code: ModuleType, tmp_path: Path, steps: list[Step]) -> None:
    for file in tmp_path.iterdir():
        file.unlink()
    ended = ends_after(code, tmp_path, steps)
    assert HOURS * HOUR - 2 <= ended <= HOURS * HOUR + SLACK_S
