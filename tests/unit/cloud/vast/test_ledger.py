"""The ledger: on disk before the request, whole lines whatever is killed, and nothing forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drafthouse.cloud.deadline import deadline_of
from drafthouse.cloud.vast.ledger import (
    CREATED,
    DESTROYED,
    INTENT,
    RUNNING,
    UNSURE,
    id_of,
    label_of,
    mark_of,
    new_id,
    read,
    record,
    rentals,
)
from drafthouse.cloud.vast.local_state import state_folder
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def intent(ledger: Path, rental_id: str) -> None:
    record(ledger, INTENT, rental_id, deadline=1800000000, account="a1", profile="p", offer=7)


def test_a_label_says_id_and_deadline_and_no_other_label_does() -> None:
    made = new_id()
    assert id_of(label_of(made, 1800000000)) == made
    for other in ("training", None, "", "drafthouse", "drafthouse-x-1", f"{label_of(made, 1800000000)} ", 7):
        assert id_of(other) is None


def test_the_life_of_a_rental(ledger: Path) -> None:
    assert rentals(ledger) == {}
    intent(ledger, "aaaaaaaaaa")
    (one,) = rentals(ledger).values()
    assert (one.state, one.instance, one.is_open, one.label) == (INTENT, None, True, "drafthouse-aaaaaaaaaa-1800000000")
    record(ledger, CREATED, one.id, instance=31)
    record(ledger, RUNNING, one.id, price_per_hour=2.5)
    (one,) = rentals(ledger).values()
    assert (one.state, one.instance, one.is_open) == (RUNNING, 31, True)
    assert (one.facts["profile"], one.facts["price_per_hour"], one.account) == ("p", 2.5, "a1")
    record(ledger, DESTROYED, one.id, instance=31)
    assert not rentals(ledger)[one.id].is_open
    assert rentals(ledger)[one.id].instance == 31


def test_nobody_else_may_read_it(ledger: Path) -> None:
    ledger.touch(mode=0o644)
    ledger.chmod(0o644)
    intent(ledger, "aaaaaaaaaa")
    assert ledger.stat().st_mode & 0o777 == 0o600


def test_a_line_that_a_kill_cut_off_costs_only_itself(ledger: Path) -> None:
    intent(ledger, "aaaaaaaaaa")
    whole = ledger.read_bytes()
    record(ledger, CREATED, "aaaaaaaaaa", instance=31)
    for length in range(len(whole), ledger.stat().st_size):
        ledger.write_bytes(ledger.read_bytes()[:length])
        assert rentals(ledger)["aaaaaaaaaa"].state in (INTENT, CREATED)
        intent(ledger, "bbbbbbbbbb")
        found = rentals(ledger)
        assert set(found) == {"aaaaaaaaaa", "bbbbbbbbbb"}, f"cut at {length}"
        ledger.write_bytes(whole)
        record(ledger, CREATED, "aaaaaaaaaa", instance=31)


@pytest.mark.parametrize(
    "junk", [b"\0\0\0\n", b"[]\n", b"7\n", b"\xff\xfe\n", b'{"time": 1}\n', b'{"time": "x", "id": 1}\n']
)
def test_lines_that_are_none_are_left_out(ledger: Path, junk: bytes) -> None:
    ledger.write_bytes(junk)
    intent(ledger, "aaaaaaaaaa")
    with ledger.open("ab") as file:
        file.write(junk)
    record(ledger, CREATED, "aaaaaaaaaa", instance=31)
    record(ledger, CREATED, "never-seen", instance=32)
    assert [one.instance for one in rentals(ledger).values()] == [31]


def test_several_at_once_write_whole_lines(ledger: Path) -> None:
    names = [new_id() for _ in range(64)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda name: intent(ledger, name), names))
    assert set(rentals(ledger)) == set(names)
    assert len([json.loads(line) for line in ledger.read_text().splitlines()]) == len(names)


def test_it_is_on_the_disk_when_the_call_comes_back(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync

    def noted(handle: int) -> None:
        synced.append(os.fstat(handle).st_size)
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    intent(ledger, "aaaaaaaaaa")
    assert synced[0] == ledger.stat().st_size, "the whole line was written before it was synced"
    assert len(synced) == 2, "and the folder, in which the file is new"


def test_a_disk_that_takes_nothing_is_said_and_nothing_is_rented(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="cannot be written"):
        intent(tmp_path / "no-such-folder" / "ledger.jsonl", "aaaaaaaaaa")


def test_a_folder_that_all_users_share_is_not_closed_to_them(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(DrafthouseError, match="all users share"):
        state_folder({"DRAFTHOUSE_STATE": str(shared)})
    assert shared.stat().st_mode & 0o7777 == 0o1777


def test_a_full_disk_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """A file that may not grow: the line that fits half is an error now and no rental later."""
    program = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[1]);"
        "from drafthouse.cloud.vast.ledger import record;"
        "from drafthouse.core.errors import DrafthouseError;"
        "from pathlib import Path; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200));"
        "record(Path(sys.argv[2]), 'intent', 'a' * 10, deadline=1800000000, account='a');"
        "\ntry: record(Path(sys.argv[2]), 'intent', 'b' * 10, deadline=1800000000, account='a')"
        "\nexcept DrafthouseError as error: print(error)"
    )
    ledger = tmp_path / "ledger.jsonl"
    command = [sys.executable, "-c", program, str(ROOT / "src"), str(ledger)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert "File too large" in done.stdout
    assert list(rentals(ledger)) == ["a" * 10]
    intent(ledger, "cccccccccc")
    assert list(rentals(ledger)) == ["a" * 10, "cccccccccc"]


def test_a_word_that_is_no_event_is_a_mistake(ledger: Path) -> None:
    with pytest.raises(ValueError, match="bought"):
        record(ledger, "bought", "aaaaaaaaaa")


def test_an_event_whose_announcement_is_lost_is_a_rental_all_the_same(ledger: Path) -> None:
    record(ledger, UNSURE, "aaaaaaaaaa")
    (one,) = rentals(ledger).values()
    assert (one.state, one.instance, one.account, one.is_open) == (UNSURE, None, "", True)


# --- damage -----------------------------------------------------------------------------------------------

BEFORE = Path(__file__).parent / "ledger_without_checksums.jsonl"


def three_lines(ledger: Path) -> bytes:
    intent(ledger, "aaaaaaaaaa")
    record(ledger, CREATED, "aaaaaaaaaa", instance=31, account="a1", deadline=1800000000)
    record(ledger, RUNNING, "aaaaaaaaaa", instance=31, account="a1", deadline=1800000000)
    return ledger.read_bytes()


def test_no_flipped_bit_hides_another_line_or_goes_unnoticed(ledger: Path) -> None:
    whole = three_lines(ledger)
    assert read(ledger).damage == []
    starts = [0, *(place + 1 for place, byte in enumerate(whole) if byte == 10)]
    for place in range(len(whole)):
        bit = 1 << place % 8
        ledger.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        found = read(ledger)
        number = sum(start <= place for start in starts)
        one = found.rentals["aaaaaaaaaa"]
        assert (one.instance, one.is_open, one.account) == (31, True, "a1"), f"byte {place}"
        assert found.damage, f"byte {place}"
        assert f"line {number} of the ledger is damaged" in found.damage[0].found, f"byte {place}"
        assert found.damage[0].where == str(ledger)


def test_a_newline_that_is_damaged_joins_no_lines(ledger: Path) -> None:
    ledger.write_bytes(three_lines(ledger).replace(b"\n", b"\x0b"))
    found = read(ledger)
    assert found.rentals["aaaaaaaaaa"].state == RUNNING
    assert [one.found for one in found.damage] == ["line 1 of the ledger is damaged (extra text after its record)"] * 3


def test_a_last_line_that_was_cut_off_is_no_damage_and_stays_none(ledger: Path) -> None:
    whole = three_lines(ledger)
    for length in range(len(whole)):
        ledger.write_bytes(whole[:length])
        assert read(ledger).damage == [], f"cut at {length}"
        intent(ledger, "bbbbbbbbbb")
        found = read(ledger)
        assert found.damage == [] and "bbbbbbbbbb" in found.rentals, f"cut at {length}"


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 300,
        b"\xff" * 5,
        b"{}\n",
        b'{"time": 1.5, "event": "bought"}\n',
        b'{"time": 1.5, "event": ["gone"], "id": "ab12cd34ef"}\n',
        b'{"time": 1.5, "event": "gone", "id": 1234567890}\n',
        b'{"time": 1' + b"0" * 400 + b', "event": "gone", "id": "ab12cd34ef"}\n',
    ],
)
def test_a_ledger_of_something_else_is_damaged(ledger: Path, data: bytes) -> None:
    ledger.write_bytes(data)
    found = read(ledger)
    assert not found.rentals
    assert [one.found for one in found.damage] == ["line 1 of the ledger is damaged (not a record)"]


def test_a_ledger_without_checksums_is_read_as_it_was(ledger: Path) -> None:
    ledger.write_bytes(BEFORE.read_bytes())
    found = read(ledger)
    assert found.damage == []
    known = {one.id: (one.state, one.instance, one.deadline, one.account) for one in found.rentals.values()}
    assert known == {
        "1f3a9c0d27": (DESTROYED, 31000004, 1795478400, "4be1c0aa91d2"),
        "b07e55d1aa": (RUNNING, 31000005, 1795478401, "4be1c0aa91d2"),
        "0c9d8e7f61": (INTENT, None, 1795478402, "4be1c0aa91d2"),
    }
    assert found.rentals["b07e55d1aa"].facts["price_per_hour"] == 2.2031
    record(ledger, DESTROYED, "b07e55d1aa", instance=31000005)
    found = read(ledger)
    assert found.damage == [] and not found.rentals["b07e55d1aa"].is_open
    assert not found.rentals["1f3a9c0d27"].sealed and found.rentals["b07e55d1aa"].sealed


def test_without_checksums_too_a_damaged_line_hides_no_other(ledger: Path) -> None:
    lines = BEFORE.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"event"', b'"event')
    ledger.write_bytes(b"".join(lines))
    found = read(ledger)
    assert [one.found for one in found.damage] == ["line 4 of the ledger is damaged (not a record)"]
    assert (found.rentals["b07e55d1aa"].instance, found.rentals["b07e55d1aa"].state) == (31000005, RUNNING)


def test_ids_carry_the_mark_of_their_ledger(tmp_path: Path) -> None:
    mark, other = mark_of(tmp_path / "ledger.jsonl"), mark_of(tmp_path / "clone" / "ledger.jsonl")
    assert mark == mark_of(tmp_path / "ledger.jsonl") != other
    made = new_id(mark)
    assert made.startswith(mark) and id_of(label_of(made, 1800000000)) == made
    assert deadline_of(label_of(made, 1800000000)) == 1800000000
