"""What the tests of renting share: a market, a ledger, the scripts, and the look at who is billed in the end."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import destroy as destroy_script
from drafthouse.cloud.vast.attempt import Rented, RentSetup, Waits
from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.clock import ProviderClock
from drafthouse.cloud.vast.fleet import Fleet
from drafthouse.cloud.vast.ledger import LABEL, NotWritten, record, rentals
from drafthouse.cloud.vast.offers import Limits, full_price
from drafthouse.cloud.vast.rent import Outcome, rent
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.core.procfs import Clocks
from drafthouse.core.retry import Patience
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_server import KEY, Running

PROFILE = "h100-llama33-draft3b"
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfTheTests someone@example.com"
CAP, HOURS = 2.5, 3.0
LIMITS = Limits(CAP, HOURS)
WAITS = Waits(boot_s=600, ports_s=60, look_s=45, poll_s=5)
QUICK = Patience(tries=2, first_s=0.01, longest_s=0.01, longest_wait_s=1)


@dataclass
class Bench:
    """A market, an account's client with a clock of its own, and a ledger."""

    vast: Running
    ledger: Path
    resolved: Any
    now: float = field(default_factory=time.time)
    begun: float = field(default_factory=time.time)
    raised: bool = False  # a price goes up between search and request
    told: list[str] = field(default_factory=list)
    before: dict[int, dict[str, Any]] = field(default_factory=dict)

    def client(self, key: str = KEY) -> VastClient:
        clock = ProviderClock(lambda: Clocks(self.now, self.now, "boot"))
        return VastClient(
            key, self.vast.url, patience=QUICK, timeout_s=60, sleep=self.sleep, tell=self.told.append, clock=clock
        )

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def world(self, **options: Any) -> RentSetup:
        parts = {"tell": self.told.append, "show_progress": self.told.append, "ask": lambda question: True} | options
        return RentSetup(self.client(), self.ledger, clock=lambda: self.now, sleep=self.sleep, **parts)

    def rent(self, limits: Limits = LIMITS, **options: Any) -> Rented | None:
        outcome = self.rent_all(Fleet(), limits, **options)
        return outcome.boxes[0] if outcome else None

    def rent_all(self, fleet: Fleet, limits: Limits = LIMITS, **options: Any) -> Outcome | None:
        return rent(self.world(**options), self.resolved, limits, PUBLIC, WAITS, fleet)

    def destroy(self, *words: str) -> Said:
        return call(self, destroy_script.main, *words, "--settle-s", "0.3")


def script(bench: Bench, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script as `make` does."""
    command = [sys.executable, str(ROOT / "scripts" / "drafthouse"), name, *words]
    return subprocess.run(
        command,
        env=environment(bench),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def start(bench: Bench, name: str, *words: str) -> subprocess.Popen[str]:
    """Start a verb in a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "drafthouse"), name, *words],
        env=environment(bench), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def start_rent(bench: Bench, *words: str) -> subprocess.Popen[str]:
    """Start `drafthouse rent`."""
    key = bench.ledger.parent / "key.pub"
    key.write_text(PUBLIC + "\n")
    given = ["--max-price", str(CAP), "--yes", "--ssh-key", str(key), "--poll-s", "0.05", "--look-s", "1"]
    given += ["--ssh-wait-min", "0"]  # nothing listens at the addresses of made instances
    return start(bench, "rent", PROFILE, *given, *words)


@dataclass(frozen=True)
class Said:
    """How a script ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def call(bench: Bench, main: Callable[[], int], *words: str, **environ: str) -> Said:
    """Run a script's `main` in this process, as `_clone.run` does: a second less than its imports take."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**environment(bench), **environ}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["script", *words])
        patch.setattr(sys, "stdin", io.StringIO())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main()
            except DrafthouseError as error:
                code = 2
                print(error, file=sys.stderr)
            except SystemExit as error:
                code = int(error.code or 0)
    assert KEY not in out.getvalue() + err.getvalue()
    return Said(code, out.getvalue(), err.getvalue())


def environment(bench: Bench) -> dict[str, str]:
    state = str(bench.ledger.parent)
    return {**os.environ, "VAST_URL": bench.vast.url, "VAST_API_KEY": KEY, "DRAFTHOUSE_STATE": state, "HOME": state}


def made(vast: Running, folder: Path, resolved: Any) -> Bench:
    folder.chmod(0o700)
    bench = Bench(vast, folder / "ledger.jsonl", resolved, before=others(vast))
    vast.market.clock = lambda: bench.now  # what is waited for passes at the provider, too
    return bench


def others(vast: Running) -> dict[int, dict[str, Any]]:
    return {number: dict(vast.instances[number]) for number in vast.others}


def full_disk(*fitting: str) -> Callable[..., None]:
    """A ledger's `record` that has room for these events alone."""

    def written(path: Path, event: str, rental_id: str, **facts: Any) -> None:
        if event not in fitting:
            raise NotWritten(Problem("ledger-unwritable", "no space left", "room for a line", "free the disk"))
        record(path, event, rental_id, **facts)

    return written


def check_requests(bench: Bench, cap: float = CAP, hours: float = HOURS) -> None:
    """Look at every request that went out: only ours was touched, and each wish for a box was as it must be."""
    disk = bench.resolved["rental"]["disk_gb"]
    lines = bench.ledger.read_text().splitlines() if bench.ledger.exists() else []
    mine = {json.loads(line).get("instance") for line in lines}
    for one in bench.vast.asked:
        if one.route in ("destroy", "state", "attach_key"):
            number = int(one.path.split("/")[4])
            assert number not in bench.vast.others
            assert number in mine, "nothing is ended that the ledger does not know"
        if one.route == "create":
            assert "price" not in one.body
            assert one.body["disk"] == disk
            found = LABEL.fullmatch(one.body["label"])
            assert found and found.group(1) in rentals(bench.ledger), "announced before it was asked for"
            deadline = int(found.group(2))
            assert str(deadline) in one.body["onstart"]
            assert bench.begun - 2 <= deadline - hours * 3600 <= max(bench.now, time.time())
            shown = full_price(bench.vast.market.offers[int(one.path.split("/")[4])], bench.resolved["rental"], hours)
            assert shown.hour <= cap or bench.raised
        assert KEY not in json.dumps(one.body), "the account's key stays here"
    assert KEY not in bench.ledger.read_text() if bench.ledger.exists() else True
    assert not [line for line in bench.told if KEY in line]


def check_end(bench: Bench, destroy: Callable[[Bench], None], cap: float = CAP) -> None:
    """Let the faults be over, end what is ours, and look at who is billed."""
    bench.vast.faults.clear()
    destroy(bench)
    assert bench.vast.billing() == bench.vast.others
    assert others(bench.vast) == bench.before
    assert not [one for one in rentals(bench.ledger).values() if one.is_open]
    check_requests(bench, cap)


def destroyed_by_script(bench: Bench) -> None:
    """Run `drafthouse destroy` as `make destroy` does."""
    done = script(bench, "destroy", "--settle-s", "0.3")
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr


def destroyed(bench: Bench) -> None:
    """Run its `main` in this process."""
    done = bench.destroy()
    assert done.returncode == 0, done.stderr
