"""What becomes of rented boxes when a run is over: real commands and signals, and a server like vast.ai's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast import run_and_destroy as rented_run
from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.destroy import StillBilling
from drafthouse.cloud.vast.ledger import CREATED, FILE, INTENT, label_of, new_id, record, rentals
from drafthouse.cloud.vast.run_and_destroy import RunSetup, instance_state, run_then_destroy, state_text
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.foreground import Stop
from drafthouse.core.retry import Patience
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_server import ALWAYS, Fault, Running, vast_server

pytestmark = pytest.mark.processes

QUICK = Patience(tries=2, first_s=0.0, longest_s=0.0, longest_wait_s=1.0)
PATIENCE_S = 50.0
Rent = Callable[[], int]


@pytest.fixture
def vast() -> Iterator[Running]:
    with vast_server() as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / FILE


@pytest.fixture
def client(vast: Running) -> VastClient:
    return VastClient(vast.key, vast.url, patience=QUICK)


@pytest.fixture
def rented(vast: Running, client: VastClient, ledger: Path) -> Rent:
    """Rent a box as `make rent` does; return its number."""
    offers = iter((8200001, 8200002, 8200003))

    def rent() -> int:
        one, deadline = new_id(), int(time.time()) + 3600
        record(ledger, INTENT, one, deadline=deadline, account=client.account, profile="p", price_per_hour=2.1)
        body = {"client_id": "me", "image": "x", "disk": 10, "runtype": "ssh_direc ssh_proxy"}
        number = client.create(next(offers), {**body, "label": label_of(one, deadline)})
        record(ledger, CREATED, one, instance=number)
        return number

    return rent


def world(client: VastClient, ledger: Path, said: list[str], **more: Any) -> RunSetup:
    return RunSetup(client, ledger, tell=said.append, **{"patience_s": 120.0, **more})


def run(client: VastClient, ledger: Path, program: str, policy: str, hosts: Any = None, **more: Any) -> tuple[int, str]:
    said: list[str] = []
    status = run_then_destroy(
        [sys.executable, "-c", program], policy, world(client, ledger, said, **more), os.environ, lambda: hosts
    )
    return status, "\n".join(said)


@pytest.mark.parametrize(
    ("policy", "status", "ended"),
    [
        ("always", 0, True), ("always", 4, True), ("on-success", 0, True), ("on-success", 2, False),
        ("never", 0, False), ("never", 4, False),
    ],
)  # fmt: skip
def test_each_policy(
    vast: Running, client: VastClient, ledger: Path, rented: Rent, policy: str, status: int, ended: bool
) -> None:
    number = rented()
    got, said = run(client, ledger, f"raise SystemExit({status})", policy)
    assert got == status
    assert (number not in vast.billing()) == ended
    assert set(vast.others) <= set(vast.instances)
    if not ended:
        assert f"instance {number}, $2.1 an hour" in said
        assert f"make destroy ARGS={number}" in said


def test_only_what_the_run_was_about(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    first, second = rented(), rented()
    run(client, ledger, "pass", "always", hosts={str(second)})
    assert first in vast.billing()
    assert second not in vast.billing()
    run(client, ledger, "pass", "always", hosts=set())
    assert first in vast.billing(), "a run on none of ours ends none of ours"


def test_a_box_whose_number_the_ledger_never_heard_is_ended(vast: Running, client: VastClient, ledger: Path) -> None:
    """`make rent` was killed before it wrote the number down; the inventory knows the box by its label."""
    one, deadline = new_id(), int(time.time()) + 3600
    record(ledger, INTENT, one, deadline=deadline, account=client.account, profile="p", price_per_hour=2.1)
    body = {"client_id": "me", "image": "x", "disk": 10, "runtype": "ssh_direc ssh_proxy"}
    number = client.create(8200001, {**body, "label": label_of(one, deadline)})
    assert "still billing" in run(client, ledger, "pass", "never", hosts={str(number)})[1]
    assert run(client, ledger, "pass", "always", hosts={"1"})[0] == 0
    assert number in vast.billing(), "another run's"
    run(client, ledger, "pass", "always", hosts={str(number)})
    assert number not in vast.billing()


def test_ctrl_c_while_the_account_is_compared_loses_nothing(
    client: VastClient, ledger: Path, rented: Rent, monkeypatch: pytest.MonkeyPatch
) -> None:
    rented()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rented_run, "compare_with_account", interrupted)
    with pytest.raises(StillBilling, match="it is unknown what else is billing: interrupted"):
        run(client, ledger, "pass", "always")


def test_a_command_that_is_not_there_is_said(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    box = rented()
    with pytest.raises(DrafthouseError, match=r"no-such-command: No such file(.|\n)*nothing was run or destroyed"):
        run_then_destroy(["no-such-command"], "always", world(client, ledger, []), os.environ, lambda: None)
    assert box in vast.billing()


def test_a_command_that_was_killed_is_none_that_succeeded(
    vast: Running, client: VastClient, ledger: Path, rented: Rent
) -> None:
    number = rented()
    status, _ = run(client, ledger, "import os; os.kill(os.getpid(), 9)", "on-success")
    assert status == 130
    assert number in vast.billing()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_the_boxes(
    vast: Running, client: VastClient, ledger: Path, rented: Rent, tmp_path: Path, number: int
) -> None:
    box = rented()
    came = tmp_path / "came"
    # Ansible ends on SIGINT, and says so.
    program = (
        f"import pathlib, time\ntry:\n pathlib.Path({str(came)!r}).touch()\n time.sleep(60)\n"
        f"except KeyboardInterrupt:\n pathlib.Path({str(came)!r}).write_text('told')\n raise SystemExit(99)"
    )

    def send() -> None:
        while not came.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    began = time.monotonic()
    status, _ = run(client, ledger, program, "always")
    assert status == 130
    assert came.read_text() == "told"
    assert box not in vast.billing()
    assert time.monotonic() - began < PATIENCE_S
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_command_that_does_not_listen_is_killed(
    vast: Running, client: VastClient, ledger: Path, rented: Rent, tmp_path: Path
) -> None:
    box, came = rented(), tmp_path / "came"
    program = (
        "import pathlib, signal, time\nfor one in (2, 15): signal.signal(one, signal.SIG_IGN)\n"
        f"pathlib.Path({str(came)!r}).touch()\ntime.sleep(60)"
    )

    def send() -> None:
        while not came.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    clock = iter(range(0, 100000, 4))  # four seconds pass at each look
    status, _ = run(client, ledger, program, "always", clock=lambda: float(next(clock)), patience_s=1000)
    assert status == 130
    assert box not in vast.billing()


def test_a_network_that_comes_back(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    box = rented()
    vast.faults += [Fault("instances", times=5, cut=True), Fault("instances", body=b"<html>log in here</html>")]
    status, said = run(client, ledger, "pass", "always", sleep=lambda seconds: None)
    assert status == 0
    assert "not ended yet" in said
    assert box not in vast.billing()


def test_a_network_that_stays_away_is_said(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    box = rented()
    vast.faults.append(Fault("*", times=ALWAYS, cut=True))
    clock = iter(range(0, 100000, 10))
    with pytest.raises(DrafthouseError) as caught:
        run(client, ledger, "pass", "always", sleep=lambda s: None, clock=lambda: float(next(clock)), patience_s=60)
    text = str(caught.value)
    assert f"{box} ($2.1 an hour)" in text
    assert "make destroy" in text
    assert box in vast.billing()


def test_a_platform_that_refuses_is_said(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    box = rented()
    vast.faults.append(Fault("destroy", times=ALWAYS, status=500))
    clock = iter(range(0, 100000, 10))
    with pytest.raises(DrafthouseError) as caught:
        run(client, ledger, "pass", "always", sleep=lambda s: None, clock=lambda: float(next(clock)), patience_s=60)
    assert f"instance {box} is still billing" in str(caught.value)


def test_a_key_that_is_refused_by_then_is_said(vast: Running, client: VastClient, ledger: Path, rented: Rent) -> None:
    box = rented()
    vast.market.keys = ("vk-another",)
    with pytest.raises(StillBilling) as caught:
        run(client, ledger, "pass", "always")
    assert f"{box} ($2.1 an hour)" in str(caught.value)
    assert vast.count("instances") == 1


@pytest.mark.parametrize("before", [0, 1, 2])
def test_two_signals_while_they_are_ended_leave_them(before: int) -> None:
    """Who pressed Ctrl-C twice to stop the playbook has not said yet that the boxes shall stay."""
    said: list[str] = []
    stop = Stop(tell=said.append, warning="the boxes are being ended")
    for _ in range(before):
        stop(signal.SIGINT)
    stop.ending = True
    stop(signal.SIGINT)
    assert "being ended" in said[0]
    with pytest.raises(KeyboardInterrupt):
        stop(signal.SIGINT)


def test_what_the_platform_says_of_a_lost_box(vast: Running, client: VastClient, rented: Rent) -> None:
    box = rented()
    assert "still billing" in instance_state(client, box)
    client.destroy(box)
    assert instance_state(client, box) == "it is gone from vast.ai and bills nothing"
    vast.faults.append(Fault("*", times=ALWAYS, cut=True))
    assert "could not be asked" in instance_state(client, box)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (None, "it is gone from vast.ai and bills nothing"),
        (
            {"actual_status": "exited", "status_msg": "OOM killed\nmore"},
            "vast.ai says 'exited' (OOM killed); its disk is still billing: make destroy ARGS=7",
        ),
        ({"actual_status": "running"}, "vast.ai says 'running'; it is still billing: make destroy ARGS=7"),
        (
            {"actual_status": None, "status_msg": None},
            "vast.ai says 'being created'; it is still billing: make destroy ARGS=7",
        ),
    ],
)
def test_the_words_for_each_state(row: Any, words: str) -> None:
    assert state_text(row, 7) == words


# --- the script ------------------------------------------------------------------------------------------


def script(vast: Running, state: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "VAST_API_KEY": vast.key, "VAST_URL": vast.url, "DRAFTHOUSE_STATE": str(state), **more}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "drafthouse"), "rented", *words],
        env=environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_the_script_ends_what_the_playbook_names(
    vast: Running, client: VastClient, ledger: Path, rented: Rent, tmp_path: Path
) -> None:
    first, second = rented(), rented()
    program = (
        "import json, os; open(os.environ['DRAFTHOUSE_RUN_FILE'], 'w')"
        f".write(json.dumps({{'instances': [{second}]}})); raise SystemExit(3)"
    )
    done = script(vast, tmp_path, "--destroy", "always", "--", sys.executable, "-c", program)
    assert done.returncode == 3, done.stderr
    assert f"destroyed: instance {second}" in done.stdout
    assert first in vast.billing()
    assert second not in vast.billing()
    assert vast.key not in done.stdout + done.stderr
    assert rentals(ledger)
    assert json.loads(ledger.read_text().splitlines()[-1])["why"] == "the run is over"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--destroy", "allways", "--", "true"], "'allways'"),
        (
            ["--destroy", "always", "--inventory", "inventory/local", "--", "true"],
            "for the inventory 'inventory/local'",
        ),
        (["--destroy", "always"], "no command"),
    ],
)
def test_what_cannot_be_is_said_first(vast: Running, tmp_path: Path, words: list[str], found: str) -> None:
    done = script(vast, tmp_path, *words)
    assert done.returncode == 2
    assert found in done.stderr.splitlines()[-4]
    assert not vast.asked


def test_without_a_key_nothing_is_run(vast: Running, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    done = script(
        vast, tmp_path, "--destroy", "always", "--", "touch", str(ran), VAST_API_KEY="", HOME=str(tmp_path),
        XDG_CONFIG_HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 2
    assert "code: no-vast-key" in done.stderr
    assert not ran.exists()
