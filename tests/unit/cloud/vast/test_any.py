"""Any market, any faults, any fate of the boxes: cap, disk and deadline hold, and nothing is left billing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.destroy import StillBilling, end_rentals
from drafthouse.cloud.vast.ledger import rentals
from drafthouse.cloud.vast.offers import Limits, full_price
from drafthouse.core.errors import DrafthouseError
from tests.fakes.vast_market import offer
from tests.fakes.vast_server import ALWAYS, KEY, Fault, Life, vast_server
from tests.support.vast_bench import (
    made,
    others,
)

pytestmark = pytest.mark.processes


ROUTES = ("search", "keys", "add_key", "create", "attach_key", "instance", "instances", "destroy")
BAD: tuple[dict[str, Any], ...] = (
    {"status": 500}, {"status": 429}, {"cut": True}, {"reset": True}, {"half": True}, {"body": b"<html>"},
    {"status": 500, "after": True}, {"cut": True, "after": True}, {"half": True, "after": True},
)  # fmt: skip


def some_market(dice: random.Random) -> dict[int, dict[str, Any]]:
    rows = []
    for number in range(1, dice.randrange(2, 9)):
        values: dict[str, Any] = {"dph_base": dice.uniform(0.5, 3.5), "machine_id": dice.randrange(3)}
        values |= {"inet_down_cost": dice.choice([0.0, 0.002, 0.05]), "storage_cost": dice.uniform(0, 1)}
        values |= dice.choice([{}, {}, {"disk_space": 80.0}, {"gpu_ram": 1}, {"reliability": 0.5}])
        rows.append(offer(number, **values))
    return {row["id"]: row for row in rows}


def some_fault(dice: random.Random) -> Fault:
    if dice.random() < 0.2:
        return Fault("create", price=dice.uniform(1, 9), times=dice.randrange(1, 4))
    if dice.random() < 0.2:
        return Fault("create", gone=True, times=dice.randrange(1, 4))
    times = dice.choice([1, 1, 2, 3, ALWAYS])
    return Fault(dice.choice(ROUTES), times=times, skip=dice.randrange(3), **dice.choice(BAD))


def some_life(dice: random.Random) -> Life:
    ways: list[dict[str, Any]] = [
        {}, {"stuck": True}, {"dies_after": dice.randrange(3)}, {"direct": False}, {"no_ports_for": 3},
        {"unlisted_for": dice.randrange(4)}, {"dies_after": 0, "dies_as": "offline"},
    ]  # fmt: skip
    return Life(**dice.choice(ways))


def one_run(seed: int, folder: Path, resolved: Any) -> str:
    """Rent in a market, with faults and lives that the seed makes; return what came of it."""
    dice = random.Random(seed)
    folder.mkdir(parents=True)
    cap, hours = dice.choice([1.5, 2.5, 4.0]), dice.choice([0.5, 3.0, 30.0])
    lives = [some_life(dice) for _ in range(8)]
    with vast_server(lives=lives, offers=some_market(dice), page=dice.choice([2, 25])) as vast:
        bench = made(vast, folder, resolved)
        vast.faults += [some_fault(dice) for _ in range(dice.randrange(3))]
        outcome, box = "none", None
        try:
            box = bench.rent(Limits(cap, hours))
            outcome = "box"
        except StillBilling:
            outcome = "billing"
        except DrafthouseError:
            pass
        billed = [number for number in vast.billing() if number not in vast.others]
        if box is not None:
            assert billed == [box.instance]
            assert full_price(vast.instances[box.instance], resolved["rental"], hours).hour <= cap + 1e-9
            assert vast.instances[box.instance]["disk_space"] == resolved["rental"]["disk_gb"]
            assert box.deadline - bench.now <= hours * 3600
        if outcome == "none" and billed:
            # Only an instance that the list did not show for as long as was looked for; the next run ends it.
            assert all(one.life.unlisted_for for one in vast.market.instances.values() if one.row["id"] in billed)
        vast.faults.clear()
        for _ in range(6):
            bench.client().instances()
        end_rentals(bench.client(), bench.ledger, tell=bench.told.append, clock=lambda: bench.now, sleep=bench.sleep)
        assert vast.billing() == vast.others
        assert others(vast) == bench.before
        assert not [one for one in rentals(bench.ledger).values() if one.is_open]
        for one in vast.asked:
            if one.route == "create":
                assert one.body["disk"] == resolved["rental"]["disk_gb"]
            if one.route in ("destroy", "state", "attach_key"):
                assert int(one.path.split("/")[4]) not in vast.others
        assert KEY not in "".join(bench.told)
    return outcome


def run_seeds(seeds: range, folder: Path, resolved: Any) -> dict[str, int]:
    outcomes: dict[str, int] = {}
    for seed in seeds:
        try:
            outcome = one_run(seed, folder / str(seed), resolved)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_whatever_the_market_and_the_faults(tmp_path: Path, resolved: Any, figure: Callable[[str], None]) -> None:
    outcomes = run_seeds(range(24), tmp_path, resolved)
    figure(f"rent, 24 markets with random faults: {outcomes}")
    assert outcomes["box"] > 4 and outcomes["none"] > 4


@pytest.mark.soak
def test_whatever_the_market_and_the_faults_for_long(
    tmp_path: Path, resolved: Any, figure: Callable[[str], None]
) -> None:
    outcomes = run_seeds(range(1000, 2500), tmp_path, resolved)
    figure(f"rent, 1500 markets with random faults: {outcomes}")
