"""Every fault on the way from the hub to the disk ends in the right files, or in an error that says what to do.

The cases wait much and compute little, so several are played at once, each with a hub and a folder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.hub_server import RIGHT, Hub, hub_server
from tests.weights.cases import CASES, Case
from tests.weights.harness import Done, Job, a_model, in_words, lying, note_of, right_names, total, wrong_names

AT_ONCE = 4


@dataclass
class Played:
    """What a case came to. ``mended``: the next run, without the fault."""

    hub: Hub
    done: Done
    sent: int  # by the first run
    left: str
    there: set[str]
    wrong: list[str]  # files with wrong bytes under their own name
    complete: bool
    noted: str
    outside: list[str]  # what was changed outside of the destination
    mended: Done | None
    right_then: bool


def play(case: Case, room: Path) -> Played:
    """Run the module with the fault, and where that ended in an error that passes, once more without."""
    hub, dest, files = Hub(a_model()), room / "models" / "m", a_model()
    dest.parent.mkdir(parents=True)
    case.before(dest)
    with hub_server(hub):
        case.hub(hub)
        done = Job(hub, dest, case.options).run()
        played = Played(
            hub, done, hub.sent, in_words(dest, files), lying(dest), wrong_names(dest, files),
            note_of(dest).get("complete") is True, str(note_of(dest)), changed_outside(room), None, False,
        )  # fmt: skip
        if done.returned and case.again:
            hub.faults, hub.files, hub.gated = {}, files, False
            for name in case.leaves:
                (dest / name).unlink(missing_ok=True)
            played.mended = Job(hub, dest).run()
            played.right_then = lying(dest) == set(files) == right_names(dest, files)
    return played


def changed_outside(room: Path) -> list[str]:
    """What the fault made the module do where it has no business."""
    victims = [path for path in room.rglob("victim") if path.read_bytes() != b"keep\n"]
    return [str(path) for path in (*victims, *room.rglob("victims/*"), *room.rglob("evil*"))]


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Played]]]:
    """Play the cases that were asked for, some of them ahead of their tests."""
    asked_for = [item for item in request.session.items if item.path == request.path]
    chosen: list[Case] = [item.callspec.params["case"] for item in asked_for if isinstance(item, pytest.Function)]  # type: ignore[misc]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {case.title: pool.submit(play, case, tmp_path_factory.mktemp("case")) for case in chosen}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_fault(case: Case, played: dict[str, Future[Played]], row: Callable[[str, str, str], None]) -> None:
    seen = played[case.title].result()
    done = seen.done
    assert seen.wrong == []
    assert seen.outside == []
    assert RIGHT not in done.text + seen.noted
    assert seen.hub.tokens_at_cdn == 0
    if case.asked_for_none:
        assert seen.sent == 0
    if case.ends == "right":
        assert done.returned == 0, done.text
        assert seen.there - set(case.leaves) == set(a_model())
        assert seen.complete
        assert done.result["changed"] is True
        assert seen.sent <= total(a_model()) + case.spare, dict(seen.hub.sent_of)
        assert done.seconds >= case.at_least_s
        assert case.says in "\n".join(done.notes)
        row(case.title, "<br>".join(["the right files", *done.notes]), seen.left)
        return
    assert done.returned == 1, done.text
    assert case.ends in done.problems
    for word in ("found: ", "needed: ", "do: "):
        assert word in done.problems
    assert not seen.complete
    if seen.mended:
        assert seen.mended.returned == 0, seen.mended.text
        assert seen.right_then
    row(case.title, done.problems, seen.left)
