"""Ledger and account against each other: what one of them does not know is named with its price, and ended on a yes."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import destroy as destroy_script
from drafthouse.cli import doctor as doctor_script
from drafthouse.cli import rent as rent_script
from drafthouse.cloud.vast import run_and_destroy as rented_run
from drafthouse.cloud.vast.account import compare_with_account
from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.errors import NotWhole, VastError
from drafthouse.cloud.vast.ledger import CONSOLE, label_of, mark_of, new_id, record, rentals
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.operate.doctor import rentals as doctor_rentals
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_market import Instance
from tests.fakes.vast_server import ALWAYS, KEY, Fault, Life, vast_server
from tests.support.vast_bench import PROFILE, Bench, Said, call, check_end, destroyed, made

pytestmark = pytest.mark.processes

PARTIAL = b'{"success": false, "instances": [], "total_instances": 7}'
LOSSES: dict[str, Callable[[Path], object]] = {
    "missing": lambda ledger: ledger.unlink(),
    "empty": lambda ledger: ledger.write_bytes(b""),
    "zeroed": lambda ledger: ledger.write_bytes(bytes(ledger.stat().st_size)),
}


def damage(ledger: Path) -> None:
    """Flip a bit of the line that announced the first rental."""
    data = bytearray(ledger.read_bytes())
    data[data.index(b'"deadline"')] ^= 1
    ledger.write_bytes(data)


def quick(bench: Bench) -> Said:
    """Run the script with a client and a clock that nobody waits for."""
    real = destroy_script.act

    def act(given: argparse.Namespace, client: VastClient, ledger: Path) -> int:
        return real(given, bench.client(), ledger, lambda: bench.now, bench.sleep)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(destroy_script, "act", act)
        return call(bench, destroy_script.main)


# --- a damaged ledger -------------------------------------------------------------------------------------


def test_one_damaged_byte_keeps_no_box_from_being_ended(bench: Bench) -> None:
    box = bench.rent()
    assert box
    damage(bench.ledger)
    done = bench.destroy()
    assert bench.vast.billing() == bench.vast.others
    assert f"destroyed: instance {box.instance}" in done.stdout
    assert done.returncode == 2
    assert "line 1 of the ledger is damaged (its checksum does not match)" in done.stderr
    assert f"where: {bench.ledger}" in done.stderr and CONSOLE in done.stderr


def test_one_damaged_byte_in_a_ledger_without_checksums(bench: Bench) -> None:
    box = bench.rent()
    assert box
    lines = bench.ledger.read_text().splitlines()
    plain = [json.loads(line) for line in lines]
    for line in plain:
        del line["sum"]
        if line["event"] != "intent":  # as it was written before
            del line["deadline"], line["account"]
    text = "".join(f"{json.dumps(line)}\n" for line in plain)
    bench.ledger.write_text(text.replace('"event": "intent"', '"event": "intens"'))
    done = bench.destroy()
    assert done.returncode == 2 and "line 1 of the ledger is damaged" in done.stderr
    assert bench.vast.billing() == bench.vast.others


def test_a_damaged_line_stays_said_until_it_is_removed(bench: Bench) -> None:
    assert bench.rent()
    damage(bench.ledger)
    assert [bench.destroy().returncode for _ in range(2)] == [2, 2]
    assert "line 1 of the ledger is damaged" in call(bench, destroy_script.main, "--list").stdout
    _, *rest = bench.ledger.read_text().splitlines(keepends=True)
    bench.ledger.write_text("".join(rest))
    done = bench.destroy()
    assert (done.returncode, done.stdout) == (0, "nothing of ours bills\n")


# --- a list that is not whole -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        PARTIAL,
        b'{"success": true, "instances": [], "total_instances": 7}',
        b'{"success": true, "instances": []}',
        b'{"success": true, "instances": [], "total_instances": "0"}',
        b'{"instances": [], "total_instances": 0}',
    ],
)
def test_a_partial_list_is_not_believed(bench: Bench, body: bytes) -> None:
    record(bench.ledger, "intent", "ab12cd34ef", deadline=int(time.time()) + 9, account=bench.client().account)
    box = bench.rent()
    assert box
    bench.vast.faults.append(Fault("instances", ALWAYS, body=body))
    with pytest.raises(NotWhole, match="what is billing is unknown"):
        bench.client().instances()
    done = quick(bench)
    assert done.returncode == 2
    assert "never created" not in done.stdout + done.stderr
    assert "code: vast-answer-malformed" in done.stderr and CONSOLE in done.stderr
    # What the ledger has a number of is ended without a list.
    assert bench.vast.billing() == bench.vast.others
    assert rentals(bench.ledger)["ab12cd34ef"].is_open
    assert "drafthouse-ab12cd34ef" in done.stderr
    bench.now += 100
    check_end(bench, destroyed)


def test_a_list_that_changes_between_two_pages_is_read_again(tmp_path: Path, resolved: Any) -> None:
    with vast_server(page=2) as vast:
        bench = made(vast, tmp_path, resolved)
        assert bench.rent()
        vast.faults.append(Fault("instances", act=lambda: vast.market.instances.pop(vast.others[0])))
        rows = bench.client().instances()
        assert {row["id"] for row in rows} == set(vast.instances)
        assert vast.count("instances") == 8, "two pages before it was rented and when it ran, and two pages twice"


# --- what the ledger has lost -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", LOSSES)
def test_what_a_lost_ledger_knew_is_named_with_its_price(bench: Bench, how: str) -> None:
    box = bench.rent()
    assert box
    LOSSES[how](bench.ledger)
    done = bench.destroy()
    assert done.returncode == 2
    assert f"instance {box.instance} ({box.label}) bills, $2.143 an hour" in done.stderr
    assert f"make destroy ARGS={box.instance} YES=1" in done.stderr
    assert box.instance in bench.vast.billing(), "nobody said yes"
    assert f"instance {box.instance}" in call(bench, destroy_script.main, "--list").stdout
    done = bench.destroy("--yes")
    assert f"destroyed: instance {box.instance}" in done.stdout
    assert bench.vast.billing() == bench.vast.others
    assert done.returncode == (2 if how == "zeroed" else 0), done.stderr
    if how != "zeroed":
        check_end(bench, destroyed)


def test_a_second_instance_of_our_label_is_ours_whatever_its_number(bench: Bench) -> None:
    box = bench.rent()
    assert box
    copy = bench.vast.market.again(box.instance).row["id"]
    (problem,) = compare_with_account(bench.client(), bench.ledger).billing
    assert f"instance {copy} bills, $" in problem.found and "a second one with this label" in problem.found
    shown = call(bench, destroy_script.main, "--list")
    assert shown.returncode == 1 and shown.stdout.count(box.label) == 3 and f"ARGS={copy}" in shown.stdout
    del bench.vast.market.instances[box.instance]  # its own deadline ended it
    check_end(bench, destroyed)


def test_a_request_that_a_proxy_sends_twice_leaves_one_box(bench: Bench) -> None:
    def sent_again(instance: Instance) -> None:
        bench.vast.market.again(instance.row["id"])

    bench.vast.market.on_create = sent_again
    box = bench.rent()
    assert box
    assert bench.vast.billing() == sorted([*bench.vast.others, box.instance])
    assert any("a second instance of its label" in line or "destroyed: instance" in line for line in bench.told)
    assert rentals(bench.ledger)[box.id].is_open
    check_end(bench, destroyed)


def test_a_429_after_the_effect_rents_nothing_twice(bench: Bench) -> None:
    bench.vast.faults.append(Fault("create", status=429, after=True))
    box = bench.rent()
    assert box
    assert bench.vast.billing() == sorted([*bench.vast.others, box.instance])
    assert bench.vast.count("create") == 1, "its label is looked for before it is asked for again"
    check_end(bench, destroyed)


def test_an_offer_that_is_gone_after_a_429_is_not_taken_for_the_next_one(bench: Bench) -> None:
    """The list shows our own box late: it was rented by the request that was answered by 429."""
    bench.vast.market.lives.append(Life(unlisted_for=2))
    bench.vast.faults.append(Fault("create", status=429, after=True))
    box = bench.rent()
    assert box
    assert bench.vast.billing() == sorted([*bench.vast.others, box.instance])
    assert bench.vast.count("create") == 2
    check_end(bench, destroyed)


def test_the_number_of_somebody_else_s_box_in_an_answer_ends_nothing_of_theirs(bench: Bench) -> None:
    other = bench.vast.others[0]
    answer = json.dumps({"success": True, "new_contract": other}).encode()
    bench.vast.faults.append(Fault("create", after=True, status=200, body=answer))
    box = bench.rent()
    assert box and box.instance != other
    assert bench.vast.billing() == sorted([*bench.vast.others, box.instance])
    check_end(bench, destroyed)


def test_list_and_its_status_come_from_one_read(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(unlisted_for=1))
    box = bench.rent()
    assert box
    bench.vast.market.instances[box.instance].listed = 0
    shown = call(bench, destroy_script.main, "--list")
    assert shown.returncode == 1
    assert f"instance {box.instance} bills, $2.143 an hour, but vast.ai's list does not show it" in shown.stdout


def test_one_number_that_cannot_be_asked_hides_no_stray(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    box, client = bench.rent(), bench.client()
    assert box
    lost = label_of(new_id(mark_of(bench.ledger)), int(time.time()) + 3600)
    stray = client.create(8200003, {"image": "x", "disk": 10, "label": lost})
    rows = [row for row in client.instances() if row["id"] != box.instance]

    def unanswered(number: int) -> None:
        raise VastError(Problem("vast-unreachable", "no answer", "one", "try again"))

    monkeypatch.setattr(client, "instance", unanswered)
    said = "\n".join(one.found for one in compare_with_account(client, bench.ledger, rows).billing)
    assert f"instance {stray} ({lost}) bills" in said
    assert f"instance {box.instance} may bill: no answer" in said


def test_a_wall_clock_that_is_set_back_does_not_lengthen_the_wait() -> None:
    assert inspect.signature(destroy_script.act).parameters["clock"].default is time.monotonic


def test_a_lost_announcement_leaves_the_provider_clock(bench: Bench) -> None:
    box = bench.rent()
    assert box
    _, *rest = bench.ledger.read_text().splitlines(keepends=True)
    bench.ledger.write_text("".join(rest))
    known = rentals(bench.ledger)[box.id]
    assert known.facts["hours"] and known.facts["asked_at"]


def test_a_yes_at_a_terminal_ends_it_and_a_no_does_not(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    box = bench.rent()
    assert box
    bench.ledger.unlink()
    asked: list[str] = []

    def said(yes: bool) -> Callable[[str], bool]:
        def answered(question: str) -> bool:
            asked.append(question)
            return yes

        return answered

    monkeypatch.setattr(destroy_script, "confirmed", said(False))
    assert bench.destroy().returncode == 2
    monkeypatch.setattr(destroy_script, "confirmed", said(True))
    assert bench.destroy().returncode == 0
    assert bench.vast.billing() == bench.vast.others
    assert len(asked) == 2 and "$2.143 an hour" in asked[0] and asked[0].endswith("End it?")


def test_a_box_of_another_clone_is_not_touched_and_one_without_a_mark_only_by_its_number(bench: Bench) -> None:
    assert bench.rent()
    old = bench.client().create(
        8200003,
        {"image": "x", "disk": bench.resolved["rental"]["disk_gb"], "label": label_of("ab12cd34ef", 1795478400)},
    )
    done = bench.destroy("--yes")
    assert done.returncode == 2
    assert f"instance {old} " in done.stderr and "its owner is unknown" in done.stderr
    assert "31000003" not in done.stderr, "another clone's"
    assert bench.vast.billing() == sorted([*bench.vast.others, old])
    assert bench.destroy(str(old)).returncode == 2
    assert bench.destroy(str(old), "--yes").returncode == 0
    assert bench.destroy().returncode == 0
    assert bench.vast.billing() == bench.vast.others


def test_a_number_without_checksum_ends_nothing_that_is_labelled_otherwise(bench: Bench) -> None:
    """As a digit that is damaged in a ledger of an earlier version: the number is somebody else's."""
    box = bench.rent()
    assert box
    lines = [json.loads(line) for line in bench.ledger.read_text().splitlines()]
    text = "".join(f"{json.dumps({name: line[name] for name in line if name != 'sum'})}\n" for line in lines)
    bench.ledger.write_text(text.replace(str(box.instance), str(bench.vast.others[0])))
    bench.vast.market.instances[box.instance].row["label"] = "my favourite"
    done = bench.destroy()
    assert done.returncode == 2
    assert set(bench.vast.others) < set(bench.vast.billing())
    assert "its number in the ledger has no checksum, and that instance is labelled" in done.stderr
    bench.vast.market.instances[box.instance].row["label"] = box.label
    check_end(bench, destroyed)


# --- what the list has lost -------------------------------------------------------------------------------


def test_what_is_not_listed_is_asked_for_by_its_number(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(unlisted_for=ALWAYS))
    box = bench.rent()
    assert box
    (problem,) = compare_with_account(bench.client(), bench.ledger).billing
    assert f"instance {box.instance} bills, $2.143 an hour, but vast.ai's list does not show it" in problem.found
    bench.vast.faults.append(Fault("instance", ALWAYS, status=500))
    bench.vast.asked.clear()
    done = quick(bench)
    assert done.returncode == 2 and f"instance {box.instance} is still billing" in done.stderr
    assert bench.vast.count("destroy") == 0 and bench.vast.count("instance") > 0
    check_end(bench, destroyed)


def test_an_end_without_effect_of_what_is_not_listed_is_noticed(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(unlisted_for=ALWAYS))
    box = bench.rent()
    assert box
    bench.vast.faults.append(Fault("destroy", body=b'{"success": true}'))
    done = quick(bench)
    assert done.returncode == 2 and f"instance {box.instance} is still billing" in done.stderr
    assert rentals(bench.ledger)[box.id].is_open
    check_end(bench, destroyed)


def test_what_the_ledger_has_as_ended_and_the_list_shows_is_named(bench: Bench) -> None:
    """As after a kill between an end without effect and the look whether it is gone."""
    box = bench.rent()
    assert box
    record(bench.ledger, "destroyed", box.id, instance=box.instance)
    (problem,) = compare_with_account(bench.client(), bench.ledger).billing
    assert f"instance {box.instance} bills, $2.143 an hour, but the ledger has it as ended" in problem.found
    world = rented_run.RunSetup(bench.client(), bench.ledger, bench.told.append, patience_s=1)
    with pytest.raises(DrafthouseError, match="but the ledger has it as ended"):
        rented_run._after(0, "always", world, None)
    check_end(bench, destroyed)


# --- every run says it ------------------------------------------------------------------------------------


def test_the_next_rental_says_what_bills_already(bench: Bench) -> None:
    box = bench.rent()
    assert box
    bench.ledger.unlink()
    second = bench.rent()
    assert second
    (line,) = [line for line in bench.told if f"instance {box.instance} " in line and "bills" in line]
    assert "$2.143 an hour" in line and f"make destroy ARGS={box.instance} YES=1" in line
    bench.vast.faults.append(Fault("instances", ALWAYS, body=PARTIAL))
    assert call(bench, rent_script.main, PROFILE, "--dry-run").returncode == 0


@pytest.mark.parametrize("policy", ["always", "never"])
def test_a_run_whose_ledger_is_lost_meanwhile_does_not_end_well(bench: Bench, policy: str) -> None:
    box = bench.rent()
    assert box
    bench.ledger.unlink()
    world = rented_run.RunSetup(bench.client(), bench.ledger, bench.told.append, patience_s=1)
    if policy == "never":
        rented_run._after(0, policy, world, None)
        return
    with pytest.raises(DrafthouseError, match=f"instance {box.instance} .*bills, .2.143 an hour"):
        rented_run._after(0, policy, world, None)


def test_the_doctor_says_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"VAST_API_KEY": KEY, "VAST_URL": bench.vast.url}
    box = bench.rent()
    assert box
    (check,) = doctor_rentals.checks(bench.ledger, environ, bench.ledger.parent)
    assert (check.status, check.found) == ("ok", "the ledger and the account agree, 1 rented box is billed")
    ended = bench.client().destroy(box.instance)
    assert ended
    (check,) = doctor_rentals.checks(bench.ledger, environ, bench.ledger.parent)
    assert check.status == "warn" and "not in the account" in check.found
    assert bench.rent()
    damage(bench.ledger)
    checks = doctor_rentals.checks(bench.ledger, environ, bench.ledger.parent)
    assert [one.status for one in checks] == ["fail", "warn"]
    bench.vast.faults.append(Fault("instances", ALWAYS, status=302))
    (check,) = doctor_rentals.checks(bench.ledger, environ, bench.ledger.parent)
    assert check.status == "fail"
    (check,) = doctor_rentals.checks(bench.ledger, {}, bench.ledger.parent)
    assert check.status == "not here"
    # Asked for only where the inventory is one of vast.ai.
    monkeypatch.setenv("DRAFTHOUSE_STATE", str(bench.ledger.parent))
    monkeypatch.setenv("HOME", str(bench.ledger.parent))
    for name in ("VAST_API_KEY", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert doctor_script.account_checks(ROOT / "inventory" / "local") == []
    assert [one["status"] for one in doctor_script.account_checks(ROOT / "inventory" / "vastai")] == ["not here"]
    assert os.environ["HOME"]
