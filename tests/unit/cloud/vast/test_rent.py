"""Renting against a server that behaves as vast.ai's: one fault at each boundary.

After each of them `drafthouse destroy` leaves nothing of ours billing, and the account's other instances are as they
were. Whatever goes wrong, no request goes out for a box above the cap, with another disk than the plan's, or without
the deadline; the fake clock of these tests goes on only where the flow waits.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from drafthouse.cloud.vast import attempt as vast_attempt
from drafthouse.cloud.vast import destroy as vast_destroy
from drafthouse.cloud.vast.attempt import RentSetup, Waits
from drafthouse.cloud.vast.destroy import StillBilling
from drafthouse.cloud.vast.instances import ssh_address
from drafthouse.cloud.vast.ledger import INTENT, NotWritten, rentals
from drafthouse.cloud.vast.offers import Limits
from drafthouse.cloud.vast.rent import rent
from drafthouse.core.errors import DrafthouseError
from tests.fakes.vast_server import ALWAYS, Fault, Life, vast_server
from tests.support.vast_bench import (
    CAP,
    HOURS,
    LIMITS,
    PUBLIC,
    WAITS,
    Bench,
    check_end,
    check_requests,
    destroyed,
    destroyed_by_script,
    full_disk,
    made,
)

pytestmark = pytest.mark.processes


# --- the way where nothing goes wrong ---------------------------------------------------------------------


def test_the_cheapest_that_fits_is_rented_and_ended(bench: Bench) -> None:
    box = bench.rent()
    assert box is not None
    assert bench.vast.count("search") == bench.vast.count("create") == 1
    assert bench.vast.market.instances[box.instance].offer == 8200002
    assert box.row["actual_status"] == "running"
    assert box.price.hour <= CAP
    routes = [one.route for one in bench.vast.asked]
    assert routes.index("add_key") < routes.index("create"), "the key is there before the box"
    assert bench.vast.market.instances[box.instance].body["attached_keys"] == [PUBLIC]
    assert [one.state for one in rentals(bench.ledger).values()] == ["running"]
    check_end(bench, destroyed_by_script)
    assert bench.destroy().stdout.strip() == "nothing of ours bills", "as often as you like"


def test_a_no_rents_nothing(bench: Bench) -> None:
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    assert bench.rent(ask=no) is None
    assert re.fullmatch(r"rent 8200002 for 3 h, \$2\.20\d an hour, \$6\.61\?", asked[0])
    assert {one.route for one in bench.vast.asked} == {"search", "instances"}, "nothing but what is read"
    assert not bench.ledger.exists()


def test_the_cap_is_a_cap(bench: Bench) -> None:
    with pytest.raises(DrafthouseError, match=r"MAX_PRICE=2\.21"):
        bench.rent(Limits(2.2, HOURS))
    assert bench.vast.count("create") == 0


def test_a_box_is_one_when_its_ssh_answers(bench: Bench) -> None:
    asked: list[Any] = []

    def answers(*where: Any) -> bool:
        asked.append(where)
        return len(asked) == 3

    box = bench.rent(ssh_answers=answers)
    assert box is not None
    assert asked == [(box.instance, *(ssh_address(box.row) or ()))] * 3
    check_end(bench, destroyed)


def test_a_box_whose_ssh_never_answers_is_ended_and_the_next_is_tried(bench: Bench) -> None:
    tried: list[int] = []

    def answers(number: int, *where: Any) -> bool:
        tried.append(number)
        return number != tried[0]

    box = bench.rent(ssh_answers=answers)
    assert box is not None
    assert box.instance != tried[0]
    assert "its SSH server did not answer within 5 min" in "\n".join(bench.told)
    assert bench.vast.count("create") == 2
    assert sorted(bench.vast.ours) == [box.instance]
    check_end(bench, destroyed)


# --- one fault at each boundary ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fault, and what comes of the run: a `box`, `none` (nothing bills), or `billing` (said, with the way out)."""

    outcome: str
    faults: tuple[dict[str, Any], ...] = ()
    lives: tuple[dict[str, Any], ...] = ()
    says: str = ""
    creates: int | None = None
    credit: bool = True


ALL_LIVES_STUCK = ({"stuck": True},) * 8
LOST = {"route": "create", "after": True}
# The first instance that is ours, as it may be shown before it is whole.
UNPRICED = {"route": "instance", "body": b'{"instances": {"id": 31000004, "actual_status": null}}'}
CASES: dict[str, Case] = {
    "search: today's searches are spent": Case(
        "none", ({"route": "search", "status": 429, "error": "search_quota_exceeded"},), says="searches", creates=0
    ),
    "search: a 503 in between": Case("box", ({"route": "search", "status": 503},), creates=1),
    "search: no network": Case("none", ({"route": "search", "cut": True, "times": ALWAYS},), creates=0),
    "search: half an answer": Case("box", ({"route": "search", "half": True},), creates=1),
    "keys: the list is refused": Case("none", ({"route": "keys", "status": 500, "times": ALWAYS},), creates=0),
    "keys: the key is refused": Case("none", ({"route": "add_key", "status": 400, "times": ALWAYS},), creates=0),
    "create: somebody was faster": Case("box", ({"route": "create", "gone": True},), creates=2),
    "create: all are gone": Case(
        "none", ({"route": "create", "gone": True, "times": ALWAYS},), says="none of which started", creates=2
    ),
    "create: no credit": Case("none", says="credit", creates=1, credit=False),
    "create: a 500 and nothing rented": Case("none", ({"route": "create", "status": 500},), creates=1),
    "create: a 500 and it is rented": Case("box", ({**LOST, "status": 500},), says="found by its label", creates=1),
    "create: the answer is cut off": Case("box", ({**LOST, "cut": True},), says="found by its label", creates=1),
    "create: half an answer": Case("box", ({**LOST, "half": True},), says="found by its label", creates=1),
    "create: the connection is reset before": Case("none", ({"route": "create", "reset": True},), creates=1),
    "create: success, and no number": Case(
        "box", ({**LOST, "body": b'{"success": true}'},), says="found by its label", creates=1
    ),
    "create: lost, and the list is behind": Case(
        "box", ({**LOST, "cut": True},), ({"unlisted_for": 4},), says="found by its label", creates=1
    ),
    "create: lost, and the list cannot be read": Case(
        "billing", ({**LOST, "cut": True}, {"route": "instances", "cut": True, "times": ALWAYS}), says="make destroy"
    ),
    "create: the price has risen above the cap": Case(
        "box", ({"route": "create", "price": 2.6},), says=r"now costs \$2.682 an hour", creates=2
    ),
    "create: the price has risen within the cap": Case(
        "box", ({"route": "create", "price": 2.3},), says="which the cap allows", creates=1
    ),
    "create: the price is told late": Case("box", (UNPRICED,), creates=1),
    "create: the price is told late, and has risen above the cap": Case(
        "box", ({"route": "create", "price": 2.6}, UNPRICED), says=r"now costs \$2.682 an hour", creates=2
    ),
    "attach: refused": Case("box", ({"route": "attach_key", "status": 500, "times": ALWAYS},), creates=1),
    "wait: loads for ever": Case("box", lives=({"stuck": True},), says="was not running after 10 min", creates=2),
    "wait: all load for ever": Case("none", lives=ALL_LIVES_STUCK, says="none of which started", creates=2),
    "wait: exits": Case("box", lives=({"dies_after": 0},), says="the box is 'exited'", creates=2),
    "wait: is unknown": Case("box", lives=({"dies_after": 0, "dies_as": "unknown"},), says="'unknown'", creates=2),
    "wait: goes offline": Case("box", lives=({"dies_after": 0, "dies_as": "offline"},), says="'offline'", creates=2),
    "wait: no ports at first": Case("box", lives=({"no_ports_for": 5},), creates=1),
    "wait: no ports at all": Case("box", lives=({"direct": False},), says="no direct port for 22/tcp", creates=1),
    "wait: a 500 in between": Case("box", ({"route": "instance", "status": 500},), creates=1),
    "wait: the network is lost": Case(
        "billing", ({"route": "*", "cut": True, "skip": 6, "times": ALWAYS},), says="make destroy"
    ),
    "wait: the network is lost for a moment": Case(
        "box", ({"route": "instance", "cut": True, "times": 4},), says="no answer from", creates=1
    ),
    "give up: the end is refused": Case(
        "billing",
        ({"route": "destroy", "status": 500, "times": ALWAYS},),
        ({"dies_after": 0},),
        says=r"is still billing, \$2.143 an hour",
    ),
    "give up: the end's answer is lost": Case(
        "box", ({"route": "destroy", "cut": True, "after": True},), ({"dies_after": 0},), creates=2
    ),
    "give up: another one's end is refused once": Case(
        "box", ({"route": "destroy", "status": 503},), ({"stuck": True},), creates=2
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_after_a_fault_nothing_is_left_billing(tmp_path: Path, resolved: Any, name: str) -> None:
    case = CASES[name]
    lives = [Life(**life) for life in case.lives]
    with vast_server(lives=lives, credit=case.credit) as vast:
        bench = made(vast, tmp_path, resolved)
        vast.faults += [Fault(**fault) for fault in case.faults]
        bench.raised = any(fault.price is not None for fault in vast.faults)
        box, said = None, ""
        try:
            box = bench.rent()
        except DrafthouseError as error:
            said = str(error)
            assert isinstance(error, StillBilling) == (case.outcome == "billing"), said
        assert (box is not None) == (case.outcome == "box"), said
        assert re.search(case.says, "\n".join([*bench.told, said])), [*bench.told, said]
        if case.creates is not None:
            assert vast.count("create") == case.creates
        check_requests(bench)
        # What it says is so: who is told that nothing bills pays nothing.
        billed = [number for number in vast.billing() if number not in vast.others]
        if case.outcome == "billing":
            assert billed
        else:
            assert billed == ([box.instance] if box else [])
            assert not [one for one in rentals(bench.ledger).values() if one.is_open and one.instance not in billed]
        assert [row["dph_total"] for row in vast.ours.values() if row["dph_total"] > CAP] == []
        check_end(bench, destroyed)


def test_a_machine_that_has_just_failed_is_not_tried_again(bench: Bench) -> None:
    bench.vast.market.offers[8200001]["machine_id"] = bench.vast.market.offers[8200002]["machine_id"]
    bench.vast.market.lives.append(Life(stuck=True))
    box = bench.rent(Limits(3, HOURS))
    assert box is not None
    assert bench.vast.market.instances[box.instance].offer == 8200003
    check_end(bench, destroyed, cap=3)


def test_somebody_ends_it_while_we_wait(bench: Bench) -> None:
    def end_it() -> None:
        (number,) = bench.vast.ours
        bench.vast.market.destroy(number)

    bench.vast.market.lives.append(Life(loading=50))
    bench.vast.faults.append(Fault("instance", skip=2, act=end_it))
    box = bench.rent()
    assert box is not None, "the next offer is taken"
    assert any("vanished" in line for line in bench.told)
    check_end(bench, destroyed)


def test_a_ledger_that_cannot_be_written_rents_nothing(bench: Bench) -> None:
    bench.ledger.mkdir()
    with pytest.raises(DrafthouseError, match="cannot be written"):
        bench.rent()
    assert bench.vast.count("create") == 0


def test_a_disk_that_is_full_after_the_request_keeps_nothing_billing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for module in (vast_attempt, vast_destroy):
            patch.setattr(module, "record", full_disk(INTENT))
        with pytest.raises(NotWritten, match=r"has ended, but no space(.|\n)*make destroy"):
            bench.rent()
    assert bench.vast.count("create") == 1
    assert bench.vast.billing() == bench.vast.others
    destroyed(bench)
    assert not [one for one in rentals(bench.ledger).values() if one.is_open]


def test_two_at_once_rent_one_each(bench: Bench) -> None:
    """Both have seen the same cheapest offer before either asks for it."""
    both = threading.Barrier(2)

    def yes(question: str) -> bool:
        return both.wait(120) >= 0

    with ThreadPoolExecutor(2) as pool:
        boxes = [asked.result() for asked in [pool.submit(bench.rent, ask=yes) for _ in range(2)]]
    assert {box.instance for box in boxes if box} == set(bench.vast.ours)
    assert len(bench.vast.ours) == 2
    assert {box.id for box in boxes if box} == {one.id for one in rentals(bench.ledger).values() if one.is_open}
    check_end(bench, destroyed)


@pytest.mark.parametrize("at", ["create", "instance", "attach_key", "instances"])
def test_ctrl_c_ends_what_was_rented(bench: Bench, at: str) -> None:
    """The interruption comes while the client reads the answer: the request has had its effect."""
    client = bench.client()

    class Interrupted:
        def __getattr__(self, name: str) -> Any:
            real = getattr(client, name)
            wanted = {"attach_key": "attach_ssh_key"}.get(at, at)
            if name != wanted:
                return real

            def stop(*given: Any) -> Any:
                real(*given)
                if rentals(bench.ledger) and not interrupted:
                    interrupted.append(name)
                    raise KeyboardInterrupt
                return real(*given)

            return stop

    interrupted: list[str] = []
    if at == "instances":
        bench.vast.faults.append(Fault("create", cut=True, after=True))
    world = RentSetup(Interrupted(), bench.ledger, bench.told.append, ask=lambda question: True, sleep=bench.sleep)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        rent(world, bench.resolved, LIMITS, PUBLIC, Waits(poll_s=0.01, look_s=1))
    assert interrupted
    assert bench.vast.billing() == bench.vast.others
    check_end(bench, destroyed)


class Interrupted:
    """A client under which Ctrl-C comes as it is about to ask for these things, one after the other."""

    def __init__(self, bench: Bench, *at: str) -> None:
        self.client, self.at = bench.client(), list(at)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.client, name)

        def asked(*given: Any) -> Any:
            if self.at and self.at[0] == name:
                self.at.pop(0)
                raise KeyboardInterrupt
            return real(*given)

        return asked if callable(real) else real


@pytest.mark.parametrize(
    ("at", "life", "ends"),
    [
        (("instance", "instances"), {"stuck": True}, True),
        (("instance", "destroy"), {"stuck": True}, True),
        (("destroy",), {"dies_after": 0}, True),
        (("instance", "instances", "instances"), {"stuck": True}, False),
        (("destroy", "destroy"), {"dies_after": 0}, False),
    ],
)
def test_another_ctrl_c_does_not_keep_it_from_being_ended(
    bench: Bench, at: tuple[str, ...], life: dict[str, Any], ends: bool
) -> None:
    bench.vast.market.lives.append(Life(**life))
    client = Interrupted(bench, *at)
    world = replace(bench.world(), client=cast("Any", client))
    with pytest.raises(KeyboardInterrupt if ends else StillBilling) as raised:
        rent(world, bench.resolved, LIMITS, PUBLIC, WAITS)
    assert not client.at
    assert (bench.vast.billing() == bench.vast.others) == ends
    assert ends or "make destroy" in str(raised.value)
    assert bench.vast.count("create") == 1, "who wants to stop does not get the next offer"
    check_end(bench, destroyed)


def test_ctrl_c_before_the_request_leaves_nothing_to_look_for(bench: Bench) -> None:
    def stop(text: str) -> None:
        if text.startswith("renting offer"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.rent(tell=stop)
    assert bench.vast.count("create") == 0
    assert [one.state for one in rentals(bench.ledger).values()] == ["never-made"]
