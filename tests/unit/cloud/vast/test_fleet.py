"""Several boxes in one run: within one sum, on different machines, in one country, all or nothing; and what fails."""

from __future__ import annotations

import configparser
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from drafthouse.cli import rent as rent_script
from drafthouse.cloud.vast.destroy import StillBilling
from drafthouse.cloud.vast.fleet import Fleet, plan_fleet
from drafthouse.cloud.vast.ledger import rentals
from drafthouse.cloud.vast.offers import MOST_OFFERS, Limits, query_of, suitable_offers
from drafthouse.cloud.vast.rent import Outcome, rent
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_market import offer, priced
from tests.fakes.vast_server import ALWAYS, Fault, Life, vast_server
from tests.support.refusals import refuses
from tests.support.vast_bench import (
    HOURS,
    PROFILE,
    PUBLIC,
    WAITS,
    Bench,
    call,
    check_end,
    destroyed,
    destroyed_by_script,
    made,
)

pytestmark = pytest.mark.processes

# Four machines fit: $2.20, 2.39, 2.74 and 2.98 an hour.
LIMITS = Limits(3.0, HOURS)
PRICES = (2.20, 2.39, 2.74, 2.98)


@pytest.fixture
def bench(tmp_path: Path, resolved: Any) -> Iterator[Bench]:
    with vast_server() as vast:
        vast.market.offers[8200004] = offer(8200004, dph_base=2.9, geolocation="Texas, US")
        yield made(vast, tmp_path, resolved)


def offers_of(bench: Bench, outcome: Outcome | None) -> list[int]:
    assert outcome and not outcome.short
    return [bench.vast.market.instances[box.instance].offer for box in outcome.boxes]


def ours(bench: Bench) -> list[int]:
    return sorted(bench.vast.ours)


def test_all_are_asked_for_before_any_is_waited_for(bench: Bench) -> None:
    outcome = bench.rent_all(Fleet(3), LIMITS)
    assert offers_of(bench, outcome) == [8200002, 8200001, 8200003]
    routes = [one.route for one in bench.vast.asked]
    assert routes.count("search") == 1 and routes.count("create") == 3
    last = max(place for place, route in enumerate(routes) if route == "create")
    assert "instance" not in routes[:last]
    assert outcome and len({box.label for box in outcome.boxes}) == 3
    assert [one.state for one in rentals(bench.ledger).values()] == ["running"] * 3
    check_end(bench, destroyed_by_script, cap=3)


def test_the_question_and_the_table_say_what_all_cost(bench: Bench) -> None:
    asked: list[str] = []

    def no(question: str) -> bool:
        asked.append(question)
        return False

    assert bench.rent_all(Fleet(4), LIMITS, ask=no) is None
    (question,) = asked
    total = sum(priced(bench.vast.market.offers[8200000 + place], 112)["dph_total"] for place in (1, 2, 3, 4))
    hour = float(question.partition(" h, $")[2].split()[0])
    assert hour == pytest.approx(total + 4 * 0.002 * 88.3 / 3, abs=0.002)  # and the traffic
    assert question.startswith("rent 4 boxes (8200002, 8200001, 8200003, 8200004) for 3 h, $")
    assert f"on the first 4: ${hour:.3f} an hour, $" in "\n".join(bench.told)
    assert bench.vast.count("create") == 0 and not bench.ledger.exists()


@pytest.mark.parametrize("life", [{"dies_after": 0}, {"stuck": True}], ids=["exits", "never runs"])
def test_one_that_does_not_come_is_replaced_and_the_others_stay(bench: Bench, life: dict[str, Any]) -> None:
    bench.vast.market.lives = [Life(), Life(**life)]
    assert sorted(offers_of(bench, bench.rent_all(Fleet(2), LIMITS))) == [8200002, 8200003]
    assert bench.vast.count("create") == 3
    check_end(bench, destroyed, cap=3)


def test_what_runs_is_kept_and_named_where_the_rest_cannot_be_had(bench: Bench) -> None:
    bench.vast.market.lives = [Life(), Life(dies_after=0), Life(), Life(dies_after=0)]
    outcome = bench.rent_all(Fleet(3), LIMITS)
    assert outcome and outcome.short
    assert [problem.code for problem in outcome.short.problems] == ["rental-incomplete"]
    said = str(outcome.short)
    assert "2 of 3 boxes run and bill" in said and "BOXES=1" in said
    assert ours(bench) == sorted(box.instance for box in outcome.boxes)
    assert all(f"{number} ($" in said for number in ours(bench))
    assert sum(one.is_open for one in rentals(bench.ledger).values()) == 2
    check_end(bench, destroyed, cap=3)


def test_all_or_nothing_ends_those_that_run(bench: Bench) -> None:
    bench.vast.market.lives = [Life(), Life(stuck=True), Life(stuck=True), Life(stuck=True)]
    with refuses("rental-incomplete", match="1 of 3 boxes ran .*all were destroyed"):
        bench.rent_all(Fleet(3, all_or_nothing=True), LIMITS)
    assert bench.vast.billing() == bench.vast.others
    assert not [one for one in rentals(bench.ledger).values() if one.is_open]
    check_end(bench, destroyed, cap=3)


def test_all_or_nothing_waits_for_none_once_one_is_missing(bench: Bench) -> None:
    """Each minute of the others costs."""
    bench.vast.market.lives = [Life(loading=200), Life(loading=200), Life(dies_after=0)]
    del bench.vast.market.offers[8200004]
    began = bench.now
    with refuses("rental-incomplete", match="0 of 3"):
        bench.rent_all(Fleet(3, all_or_nothing=True), LIMITS)
    assert bench.now - began < WAITS.boot_s / 2
    assert bench.vast.billing() == bench.vast.others


@pytest.mark.parametrize("all_or_nothing", [False, True])
def test_credit_that_ends_in_between(bench: Bench, all_or_nothing: bool) -> None:
    bench.vast.faults.append(
        Fault("create", skip=2, status=400, error="insufficient_credit", said="lacks credit", times=ALWAYS)
    )
    fleet = Fleet(4, all_or_nothing=all_or_nothing)
    if all_or_nothing:
        with pytest.raises(DrafthouseError, match=r"0 of 4 boxes ran(.|\n)*credit"):
            bench.rent_all(fleet, LIMITS)
        assert bench.vast.billing() == bench.vast.others
    else:
        outcome = bench.rent_all(fleet, LIMITS)
        assert outcome and outcome.short
        assert "credit" in str(outcome.short) and "2 of 4" in str(outcome.short)
        assert len(ours(bench)) == 2
    assert bench.vast.count("create") == 3, "who has no credit is not asked again"
    check_end(bench, destroyed, cap=3)


def test_the_end_of_one_is_refused_and_the_others_are_said_too(bench: Bench) -> None:
    bench.vast.market.lives = [Life(), Life(dies_after=0)]
    bench.vast.faults.append(Fault("destroy", status=500, times=ALWAYS))
    outcome = bench.rent_all(Fleet(2), LIMITS)
    assert outcome and isinstance(outcome.short, StillBilling)
    assert len(ours(bench)) == 2
    assert all(str(number) in str(outcome.short) for number in ours(bench))
    check_end(bench, destroyed, cap=3)


# --- the sum ----------------------------------------------------------------------------------------------


def test_more_than_the_sum_is_not_asked_for(bench: Bench) -> None:
    with refuses("rental-total-exceeded", match=r"cheapest 3 boxes cost \$7\.3.*\n(.|\n)*MAX_TOTAL=7\.3\d, or BOXES=2"):
        bench.rent_all(Fleet(3, max_total=5.0), LIMITS)
    assert {one.route for one in bench.vast.asked} == {"search"}


def test_a_replacement_keeps_to_the_sum(bench: Bench) -> None:
    """$2.20 and 2.39 are within 4.8; 2.20 and 2.74 are not."""
    bench.vast.market.lives = [Life(), Life(dies_after=0)]
    outcome = bench.rent_all(Fleet(2, max_total=4.8), LIMITS)
    assert outcome and outcome.short and len(outcome.boxes) == 1
    assert bench.vast.count("create") == 2
    check_end(bench, destroyed, cap=3)


def test_a_price_that_has_risen_above_the_sum_is_not_paid(bench: Bench) -> None:
    bench.raised = True
    bench.vast.faults.append(Fault("create", skip=1, price=2.6))
    outcome = bench.rent_all(Fleet(2, max_total=4.8), LIMITS)
    assert outcome and outcome.short
    assert math.fsum(box.price.hour for box in outcome.boxes) <= 4.8
    assert ours(bench) == [outcome.boxes[0].instance]
    assert any("now costs $2.682 an hour, more than 2.59" in line for line in bench.told)
    check_end(bench, destroyed, cap=3)


# --- where ------------------------------------------------------------------------------------------------


def rows(resolved: Any, *values: dict[str, Any]) -> Any:
    made_of = [offer(place, **one) for place, one in enumerate(values, 1)]
    return suitable_offers(
        [cast("Any", priced(one, resolved["rental"]["disk_gb"])) for one in made_of], resolved, LIMITS
    )


def test_boxes_share_no_machine(resolved: Any) -> None:
    found = rows(resolved, {"dph_base": 1.0, "machine_id": 7}, {"dph_base": 1.1, "machine_id": 7}, {"dph_base": 2.0})
    assert [one.number for one in plan_fleet(found, Fleet(2))] == [1, 3]
    with refuses("too-few-machines", match="3 suitable offers, on 2 machines(.|\n)*BOXES=2"):
        plan_fleet(found, Fleet(3))
    unknown = rows(resolved, {"machine_id": None}, {"machine_id": None})
    assert len(plan_fleet(unknown, Fleet(2))) == 2


def test_one_country_is_the_cheapest_that_has_enough(resolved: Any) -> None:
    here: dict[str, Any] = {"geolocation": "Sweden, SE"}
    there: dict[str, Any] = {"geolocation": "Texas, US"}
    found = rows(
        resolved, {"dph_base": 1.0, **here}, {"dph_base": 2.5, **here}, {"dph_base": 1.2, **there},
        {"dph_base": 1.3, **there}, {"dph_base": 0.5, "geolocation": None}, {"dph_base": 0.4, "geolocation": "Mars"},
    )  # fmt: skip
    assert [one.number for one in plan_fleet(found, Fleet(2, one_country=True))] == [3, 4]
    assert [one.number for one in plan_fleet(found, Fleet(2))] == [6, 5, 1, 3, 4, 2]
    with refuses("too-few-machines", match="2 machines in one country"):
        plan_fleet(found, Fleet(3, one_country=True))


def test_countries_are_asked_for_and_looked_at(bench: Bench) -> None:
    abroad = replace(LIMITS, countries=("US", "CA"))
    assert query_of(bench.resolved, abroad)["geolocation"] == {"in": ["US", "CA"]}
    assert offers_of(bench, bench.rent_all(Fleet(), abroad)) == [8200004]
    with refuses("no-offer-fits", match="in US or CA"):
        bench.rent_all(Fleet(), abroad)
    lies = [cast("Any", priced(one, 112)) for one in bench.vast.market.offers.values()]
    assert [
        one.offer["geolocation"] for one in suitable_offers(lies, bench.resolved, replace(abroad, countries=("NO",)))
    ] == []
    check_end(bench, destroyed, cap=3)


def test_ansible_works_on_as_many_at_once_as_a_search_can_find() -> None:
    """With fewer forks the boxes would measure in turns, and bill meanwhile."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "ansible.cfg")
    assert settings.getint("defaults", "forks") >= MOST_OFFERS


# --- interruptions ----------------------------------------------------------------------------------------


class Stopped:
    """A client under which Ctrl-C comes as it is about to ask for a thing for the n-th time, and each time after it."""

    def __init__(self, bench: Bench, at: str, after: int, times: int = 1) -> None:
        self.client, self.at, self.after, self.times = bench.client(), at, after, times

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.client, name)

        def asked(*given: Any) -> Any:
            if name == self.at:
                self.after -= 1
                if self.after < 0 and self.times > 0:
                    self.times -= 1
                    raise KeyboardInterrupt
            return real(*given)

        return asked if callable(real) else real


@pytest.mark.parametrize(
    ("at", "after"),
    [("create", 0), ("create", 1), ("create", 2), ("attach_ssh_key", 1), ("instance", 0), ("instance", 4)],
)
def test_ctrl_c_ends_all_of_this_run_the_running_too(bench: Bench, at: str, after: int) -> None:
    kept = bench.rent_all(Fleet(), LIMITS)
    assert kept
    bench.vast.market.lives = [Life(), Life(), Life(loading=50)]
    world = replace(bench.world(), client=cast("Any", Stopped(bench, at, after)))
    with pytest.raises(KeyboardInterrupt):
        rent(world, bench.resolved, LIMITS, PUBLIC, WAITS, Fleet(3))
    assert ours(bench) == [kept.boxes[0].instance], "an earlier run's box is not this one's to end"
    assert sum(one.is_open for one in rentals(bench.ledger).values()) == 1
    check_end(bench, destroyed, cap=3)


def test_a_third_ctrl_c_leaves_them_and_names_each(bench: Bench) -> None:
    bench.vast.market.lives = [Life(), Life(loading=50)]

    class Twice(Stopped):
        """And then each time that something is to be destroyed."""

        def __getattr__(self, name: str) -> Any:
            if name == "destroy" and self.times == 0:
                raise KeyboardInterrupt
            return super().__getattr__(name)

    world = replace(bench.world(), client=cast("Any", Twice(bench, "instance", 3)))
    with pytest.raises(StillBilling) as raised:
        rent(world, bench.resolved, LIMITS, PUBLIC, WAITS, Fleet(2))
    assert len(ours(bench)) == 2
    assert all(str(number) in str(raised.value) for number in ours(bench))
    check_end(bench, destroyed, cap=3)


# --- the program ------------------------------------------------------------------------------------------


def test_a_dry_run_shows_all_of_them_and_rents_none(bench: Bench) -> None:
    done = call(bench, rent_script.main, PROFILE, "--dry-run", "--boxes", "2", "--max-total", "5")
    assert done.returncode == 0, done.stderr
    assert [one.route for one in bench.vast.asked] == ["search"]
    sent = [line.split("/")[-2] for line in done.stdout.splitlines() if line.startswith("would send: PUT")]
    assert sent == ["8200002", "8200001"]
    assert "on the first 2: $4.59" in done.stdout and "cap $5 an hour for all" in done.stdout
    assert done.stdout.rstrip().endswith("nothing was rented")


def test_the_program_says_what_runs_and_ends_with_2_where_one_is_missing(bench: Bench, tmp_path: Path) -> None:
    key = tmp_path / "key.pub"
    key.write_text(PUBLIC + "\n")
    words = (
        PROFILE,
        "--max-price",
        "3",
        "--max-total",
        "8",
        "--yes",
        "--ssh-key",
        str(key),
        "--poll-s",
        "0.01",
        "--look-s",
        "0.5",
        "--ssh-wait-min",
        "0",
    )
    done = call(bench, rent_script.main, *words, "--boxes", "2", "--all-or-nothing")
    assert done.returncode == 0, done.stderr
    assert all(f"instance {number} runs: 1 x H100 NVL" in done.stdout for number in ours(bench))
    assert "costs      $4.59" in done.stdout
    bench.vast.market.lives = [Life(), Life(dies_after=0)]
    short = call(bench, rent_script.main, *words, "--boxes", "2")
    assert short.returncode == 2
    assert "code: rental-incomplete" in short.stderr
    third = max(ours(bench))
    assert len(ours(bench)) == 3 and f"{third} ($" in short.stderr and f"instance {third} runs" in short.stdout
    check_end(bench, destroyed, cap=8)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--boxes", "0"), "'0' is not a whole number"),
        (("--boxes", "65"), "'65' is not a whole number"),
        (("--boxes", "2.5"), "'2.5' is not a whole number"),
        (("--boxes", "²"), "is not a whole number"),
        (("--region", "Sweden"), "two-letter"),
        (("--region", "SE,"), "two-letter"),
        (("--max-total", "-1"), "not a number above 0"),
        ((), "--max-price or --max-total"),
    ],
)
def test_what_is_no_fleet_is_said(bench: Bench, words: tuple[str, ...], says: str) -> None:
    done = call(bench, rent_script.main, PROFILE, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert bench.vast.asked == []
