"""The client dies while it rents, at one boundary after the other: nothing is left billing after `make destroy`.

The real program in a process of its own, killed by the server in the middle of a request.
"""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import destroy as destroy_script
from tests.fakes.vast_server import KEY, Fault, Life, vast_server
from tests.support.vast_bench import (
    Bench,
    call,
    check_end,
    destroyed,
    made,
    start_rent,
)

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Death:
    """Where the client dies: at a request of this route, with or without its effect, and the lives of its boxes."""

    route: str
    after: bool = False
    skip: int = 0
    lives: tuple[dict[str, Any], ...] = ()
    words: tuple[str, ...] = ()


TWO = ("--boxes", "2")
DEATHS = {
    "before the search is answered": Death("search"),
    "before the key is in the account": Death("add_key"),
    "between the ledger and the request": Death("create"),
    "between the request and its answer": Death("create", after=True),
    "the same, and the list is behind": Death("create", after=True, lives=({"unlisted_for": 1},)),
    "while the key is attached": Death("attach_key", after=True),
    "while it loads": Death("instance", after=True, skip=1, lives=({"stuck": True},)),
    "before a dead box is ended": Death("destroy", lives=({"dies_after": 0},)),
    "after a dead box was ended": Death("destroy", after=True, lives=({"dies_after": 0},)),
    "between the second one's ledger and request": Death("create", skip=1, words=TWO),
    "between the second one's request and its answer": Death("create", after=True, skip=1, words=TWO),
    "while one runs and the other loads": Death("instance", skip=4, lives=({}, {"stuck": True}), words=TWO),
    "while those that run are ended": Death(
        "destroy", after=True, skip=1, lives=({}, {"dies_after": 0}), words=(*TWO, "--all-or-nothing")
    ),
}


@pytest.mark.parametrize("name", DEATHS)
def test_after_a_kill_nothing_is_left_billing(tmp_path: Path, resolved: Any, name: str) -> None:
    death = DEATHS[name]
    with vast_server(lives=[Life(**life) for life in death.lives]) as vast:
        bench = made(vast, tmp_path, resolved)
        running: list[subprocess.Popen[str]] = []
        vast.faults.append(
            Fault(death.route, skip=death.skip, after=death.after, cut=True, act=lambda: running[0].send_signal(9))
        )
        running.append(start_rent(bench, *death.words))
        output, _ = running[0].communicate(timeout=120)
        assert running[0].returncode == -signal.SIGKILL, output
        assert KEY not in output
        settle = "8" if death.lives and "unlisted_for" in death.lives[0] else "0.3"
        check_end(bench, lambda bench: settled(bench, settle))


def settled(bench: Bench, settle_s: str) -> None:
    done = call(bench, destroy_script.main, "--settle-s", settle_s)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_was_rented_before_the_program_ends(bench: Bench, number: signal.Signals) -> None:
    bench.vast.market.lives.append(Life(stuck=True))
    running: list[subprocess.Popen[str]] = []
    bench.vast.faults.append(Fault("instance", skip=2, act=lambda: running[0].send_signal(number)))
    running.append(start_rent(bench))
    output, _ = running[0].communicate(timeout=120)
    assert running[0].returncode == 130, output
    assert "nothing of this run is billing" in output
    assert bench.vast.billing() == bench.vast.others
    check_end(bench, destroyed)


def test_a_second_signal_does_not_keep_it_from_being_ended(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(stuck=True))
    running: list[subprocess.Popen[str]] = []

    def interrupt() -> None:
        running[0].send_signal(signal.SIGINT)

    bench.vast.faults += [Fault("instance", skip=2, act=interrupt), Fault("destroy", act=interrupt)]
    running.append(start_rent(bench))
    output, _ = running[0].communicate(timeout=120)
    assert running[0].returncode == 130, output
    assert bench.vast.billing() == bench.vast.others
    check_end(bench, destroyed)


def test_nobody_who_listens_any_more_does_not_keep_it_from_being_ended(bench: Bench) -> None:
    """As `make rent | head`, or a terminal that is closed: what is printed goes nowhere."""
    bench.vast.market.lives += [Life(stuck=True)] * 2
    running: list[subprocess.Popen[str]] = []

    def leave() -> None:
        assert running[0].stdout
        running[0].stdout.close()

    bench.vast.faults.append(Fault("instance", act=leave))
    running.append(start_rent(bench, "--wait-min", "0.02"))
    assert running[0].wait(120) == 2
    assert bench.vast.billing() == bench.vast.others
    check_end(bench, destroyed)
