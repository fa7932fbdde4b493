"""What is ours ends and what is not stays; what the list says; and the two programs with bad words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import destroy as destroy_script
from drafthouse.cli import rent as rent_script
from drafthouse.cloud.vast import destroy as vast_destroy
from drafthouse.cloud.vast.destroy import StillBilling, end_rentals
from drafthouse.cloud.vast.ledger import label_of, new_id, record, rentals
from drafthouse.cloud.vast.listing import list_rentals
from drafthouse.cloud.vast.offers import Limits, query_of
from drafthouse.core.errors import DrafthouseError
from tests.fakes.vast_market import offer
from tests.fakes.vast_server import KEY, SECOND_KEY, Fault, Life, vast_server
from tests.support.refusals import refuses
from tests.support.vast_bench import (
    PROFILE,
    PUBLIC,
    Bench,
    call,
    check_end,
    destroyed,
    full_disk,
    made,
)

pytestmark = pytest.mark.processes


def test_only_the_one_that_was_named_ends(bench: Bench) -> None:
    first, second = bench.rent(), bench.rent()
    assert first and second
    done = bench.destroy(first.label)
    assert (done.returncode, list(bench.vast.ours)) == (0, [second.instance])
    done = bench.destroy("31000001")
    assert done.returncode == 2 and "code: no-such-rental" in done.stderr
    check_end(bench, destroyed)


def test_a_copied_label_is_ours_in_the_ledger_that_made_it_alone(bench: Bench) -> None:
    box = bench.rent()
    assert box
    body = {"image": "x", "label": box.label, "disk": 20}
    row = bench.vast.market._new_row(offer(9100001), body, 20.0)
    copy = bench.vast.market.add(row, KEY, Life(loading=0))
    bench.client().instances()
    elsewhere = bench.ledger.parent / "moved" / "ledger.jsonl"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(bench.ledger.read_bytes())
    with pytest.raises(StillBilling, match=f"instance {copy.row['id']} .*its owner is unknown"):
        end_rentals(bench.client(), elsewhere, tell=bench.told.append, clock=lambda: bench.now, sleep=bench.sleep)
    assert copy.row["id"] in bench.vast.billing() and box.instance not in bench.vast.billing()
    check_end(bench, destroyed)


def test_a_box_that_its_owner_labelled_anew_is_named_and_left(bench: Bench) -> None:
    box = bench.rent()
    assert box
    row = bench.vast.market.instances[box.instance].row
    row["label"] = "my favourite"
    done = bench.destroy()
    assert done.returncode == 2
    assert f"instance {box.instance} is still billing" in done.stderr and "'my favourite'" in done.stderr
    row["label"] = ""
    check_end(bench, destroyed)


def test_a_box_that_turns_up_after_it_was_given_up_is_ended_by_the_next_run(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(unlisted_for=20))
    bench.vast.faults.append(Fault("create", cut=True, after=True))
    with refuses("rental-state-unknown"):
        bench.rent()
    assert len(bench.vast.ours) == 1
    assert [one.state for one in rentals(bench.ledger).values()] == ["never-made"]
    for _ in range(20):
        bench.client().instances()
    check_end(bench, destroyed)


def test_another_key_closes_nothing_in_the_ledger(bench: Bench) -> None:
    box = bench.rent()
    assert box
    with pytest.raises(DrafthouseError, match="rented with another key"):
        end_rentals(bench.client(SECOND_KEY), bench.ledger, tell=bench.told.append, sleep=bench.sleep)
    assert rentals(bench.ledger)[box.id].is_open
    assert bench.vast.count("destroy") == 0
    check_end(bench, destroyed)


def test_a_number_of_another_account_says_nothing_in_this_one(bench: Bench) -> None:
    """A ledger that was also used at another address, where the same number was ours."""
    one = new_id()
    record(bench.ledger, "intent", one, deadline=int(time.time()), account="elsewhere", profile="p")
    record(bench.ledger, "created", one, instance=bench.vast.others[0])
    assert "rented with another key or at another address" in end_or_say(bench)
    assert list_rentals(bench.client(), bench.ledger)[0] == []
    assert bench.vast.billing() == bench.vast.others
    assert bench.vast.count("destroy") == 0


def test_what_another_key_of_the_account_rented_is_ended(bench: Bench) -> None:
    one, deadline = new_id(), int(time.time())
    record(bench.ledger, "intent", one, deadline=deadline, account="the-key-before", profile="p")
    number = bench.client().create(8200002, {"image": "x", "disk": 20, "label": label_of(one, deadline)})
    record(bench.ledger, "created", one, instance=number)
    assert end_or_say(bench) == ""
    assert bench.vast.billing() == bench.vast.others
    assert rentals(bench.ledger)[one].state == "destroyed"


def test_a_full_disk_keeps_none_from_being_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench.rent() and bench.rent()
    with monkeypatch.context() as patch:
        patch.setattr(vast_destroy, "record", full_disk())
        assert end_or_say(bench).count("has ended, but no space left") == 2
    assert bench.vast.billing() == bench.vast.others
    check_end(bench, destroyed)


def test_what_is_known_ends_before_anything_is_waited_for(bench: Bench) -> None:
    account = bench.client().account
    record(bench.ledger, "intent", new_id(), deadline=int(time.time()) + 9, account=account, profile="p")
    box = bench.rent()
    assert box
    done = bench.destroy()
    assert done.returncode == 0
    assert done.stdout.index(f"destroyed: instance {box.instance}") < done.stdout.index("was never created")


def test_ctrl_c_says_what_may_still_bill(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    box = bench.rent()
    assert box

    def stop(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(destroy_script, "end_rentals", stop)
        done = bench.destroy()
    assert done.returncode == 130
    assert f"{box.label}: instance {box.instance}" in done.stdout
    check_end(bench, destroyed)


def test_one_that_is_gone_says_nothing_of_the_others(bench: Bench) -> None:
    first, second = bench.rent(), bench.rent()
    assert first and second
    assert bench.destroy(first.id).returncode == 0
    done = bench.destroy(first.id)
    assert (done.returncode, done.stdout.strip()) == (0, "nothing of that bills")
    assert list(bench.vast.ours) == [second.instance]
    check_end(bench, destroyed)


def test_one_that_cannot_be_ended_does_not_keep_the_others(bench: Bench) -> None:
    boxes = [bench.rent(), bench.rent()]
    bench.vast.faults.append(Fault("destroy", status=500, times=2))
    done = end_or_say(bench)
    assert f"instance {boxes[0].instance if boxes[0] else 0} is still billing" in done
    assert list(bench.vast.ours) == [boxes[0].instance if boxes[0] else 0]
    check_end(bench, destroyed)


def end_or_say(bench: Bench) -> str:
    try:
        end_rentals(bench.client(), bench.ledger, tell=bench.told.append, sleep=bench.sleep)
    except DrafthouseError as error:
        return str(error)
    return ""


def test_a_list_that_is_behind_does_not_hide_a_box_whose_number_is_known(bench: Bench) -> None:
    bench.vast.market.lives.append(Life(unlisted_for=1))
    box = bench.rent()
    assert box
    end_rentals(bench.client(), bench.ledger, tell=bench.told.append, sleep=bench.sleep)
    assert bench.vast.billing() == bench.vast.others
    assert rentals(bench.ledger)[box.id].state == "destroyed"
    check_end(bench, destroyed)


def test_an_end_that_has_no_effect_is_noticed(bench: Bench) -> None:
    box = bench.rent()
    assert box
    bench.vast.faults.append(Fault("destroy", body=b'{"success": true}'))
    assert f"instance {box.instance} is still billing" in end_or_say(bench)
    assert list(bench.vast.ours) == [box.instance]
    assert rentals(bench.ledger)[box.id].is_open, "whoever asks the ledger is told so, too"
    check_end(bench, destroyed)


def test_many_pages_of_instances_hide_nothing(tmp_path: Path, resolved: Any) -> None:
    with vast_server(page=2) as vast:
        bench = made(vast, tmp_path, resolved)
        boxes = [bench.rent(), bench.rent()]
        assert all(boxes)
        vast.faults.append(Fault("instances", skip=1, half=True))
        end_rentals(bench.client(), bench.ledger, tell=bench.told.append, sleep=bench.sleep)
        assert vast.billing() == vast.others
        check_end(bench, destroyed)


def test_the_list_says_what_bills_and_what_it_has_cost(bench: Bench) -> None:
    box = bench.rent()
    assert box
    row = bench.vast.market.instances[box.instance].row
    row["start_date"] = time.time() - 2 * 3600
    (line,), notes, _ = list_rentals(bench.client(), bench.ledger)
    assert line[:5] == [str(box.instance), box.label, PROFILE, "running", "2.143"]
    assert line[5:7] == ["2.0 h", "4.29"]
    assert notes == [
        "labelled by Drafthouse but not in this ledger, never touched: 31000003",
        "other instances of the account, never touched: 2",
    ]
    row["intended_status"] = "stopped"
    bench.client().instance(box.instance)
    (line,), _, _ = list_rentals(bench.client(), bench.ledger)
    assert line[3:5] == ["stopped", "0.023"], "a stopped one still costs its disk"
    done = call(bench, destroy_script.main, "--list")
    assert box.label in done.stdout and done.returncode == 0
    (found,) = json.loads(call(bench, destroy_script.main, "--list", "--json").stdout)["billing"]
    assert (found["label"], found["price_per_hour"]) == (box.label, "0.023")
    assert bench.vast.count("destroy") == 0


def test_without_an_answer_the_ledger_says_what_may_bill(bench: Bench) -> None:
    box = bench.rent()
    assert box
    done = call(bench, destroy_script.main, VAST_API_KEY="another-key-that-is-not-valid")
    assert done.returncode == 2
    assert f"{box.label}: instance {box.instance}, ${box.price.hour:.4f} an hour" in done.stdout
    assert "another-key" not in done.stdout + done.stderr


def test_an_announced_rental_that_was_never_asked_for_is_closed(bench: Bench) -> None:
    record(
        bench.ledger, "intent", "ab12cd34ef", deadline=int(time.time()) + 9, account=bench.client().account, profile="p"
    )
    check_end(bench, destroyed)


# --- the programs -----------------------------------------------------------------------------------------


def test_a_dry_run_sends_one_search_and_nothing_else(bench: Bench) -> None:
    done = call(bench, rent_script.main, PROFILE, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [one.route for one in bench.vast.asked] == ["search"]
    assert not bench.ledger.exists()
    assert '"disk": 112' in done.stdout
    assert done.stdout.rstrip().endswith("nothing was rented")
    assert KEY not in done.stdout + done.stderr


def without_key(bench: Bench, main: Callable[[], int], *words: str) -> Any:
    """Run a script as somebody whom vast.ai does not know."""
    return call(bench, main, *words, VAST_API_KEY="", XDG_CONFIG_HOME=str(bench.ledger.parent / "none"))


def test_a_dry_run_without_a_key_says_what_it_would_ask_for(bench: Bench) -> None:
    done = without_key(bench, rent_script.main, PROFILE, "--dry-run", "--hours", "2", "--max-price", "2.5")
    assert done.returncode == 0
    assert bench.vast.asked == []
    filters = json.loads("{" + done.stdout.partition("{")[2].rpartition("}")[0] + "}")
    assert filters == query_of(bench.resolved, Limits(2.5, 2.0))
    assert "1 x H100 NVL, cap $2.5 an hour, for 2 h\n" in done.stdout
    assert "disk 112 GB" in done.stdout
    assert "export VAST_API_KEY" in done.stdout
    real = without_key(bench, rent_script.main, PROFILE, "--max-price", "2.5", "--yes")
    assert real.returncode == 2
    assert "code: no-vast-key" in real.stderr


@pytest.mark.parametrize("words", [(), ("--list",), ("--yes",), ("--list", "--json")])
def test_where_nothing_was_rented_no_key_is_needed_to_say_so(bench: Bench, words: tuple[str, ...]) -> None:
    done = without_key(bench, destroy_script.main, *words)
    assert done.returncode == 0, done.stderr
    assert "nothing was rented from here" in done.stdout
    assert bench.vast.asked == []
    if "--json" in words:
        assert json.loads(done.stdout)["billing"] == []


def test_with_an_entry_in_the_ledger_or_a_number_a_key_is_needed(bench: Bench) -> None:
    assert "code: no-vast-key" in without_key(bench, destroy_script.main, "31000001").stderr
    bench.ledger.write_text("no record\n")
    assert without_key(bench, destroy_script.main).returncode == 2
    bench.ledger.unlink()
    box = bench.rent()
    assert box
    done = without_key(bench, destroy_script.main, "--list")
    assert done.returncode == 2
    assert f"{box.label}: instance {box.instance}" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((PROFILE,), "--max-price"),
        ((PROFILE, "--max-price", "0"), "not a number above 0"),
        ((PROFILE, "--max-price", "nan"), "not a number above 0"),
        ((PROFILE, "--max-price", "2", "--hours", "-1"), "not a number above 0"),
        ((PROFILE, "--max-price", "2", "--reliability", "1.5"), "more than 1"),
        ((PROFILE, "--max-price", "3", "--ssh-key", "/dev/null/x"), "no SSH public key"),
        ((PROFILE, "--max-price", "3"), "no SSH public key"),
        (("no-such-profile", "--max-price", "3"), "no profile"),
        (("cpu-smollm2-ngram", "--max-price", "3"), "no vast.ai name"),
    ],
)
def test_bad_words_rent_nothing(bench: Bench, words: tuple[str, ...], says: str) -> None:
    done = call(bench, rent_script.main, *words, "--yes")
    assert done.returncode == 2
    assert says in done.stderr
    assert bench.vast.count("create") == 0


def test_nobody_to_ask_is_no_yes(bench: Bench) -> None:
    key = bench.ledger.parent / "key.pub"
    key.write_text(PUBLIC)
    done = call(bench, rent_script.main, PROFILE, "--max-price", "3", "--ssh-key", str(key))
    assert done.returncode == 2
    assert "code: not-confirmed" in done.stderr
    assert bench.vast.count("create") == 0


def test_a_private_key_is_not_sent(bench: Bench) -> None:
    key = bench.ledger.parent / "id_ed25519"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nxyz\n-----END OPENSSH PRIVATE KEY-----\n")
    done = call(bench, rent_script.main, PROFILE, "--max-price", "3", "--yes", "--ssh-key", str(key))
    assert done.returncode == 2
    assert "code: no-ssh-key" in done.stderr
    assert [one.route for one in bench.vast.asked if one.route != "search"] == []
