"""Why a change is not served, as a run that failed says it; and an answered request, which is what ready means."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action.refused import ActionModule as RefusedAction
from ansible_collections.drafthouse.core.plugins.action.release import ActionModule as ReleaseAction
from ansible_collections.drafthouse.core.plugins.plugin_utils.following import FollowingAction

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.operate.failure_summary import both, brief, gate_problems, is_superseded, reason_of
from drafthouse.serving.first_request import ask_once
from tests.support.little_box import Box, little_box
from tests.support.ports import free_port

pytestmark = pytest.mark.processes

DIED = Problem("engine-died", "the baseline arm died (exit status 1)", "an engine that stays up", "read the log", "box")
RESOLVED: Any = {"profile": "small", "engine": {"id": "vllm", "version": "0.33.0"}}
BACK: Any = {
    "release": {"release": "0001", "profile": "small", "arm": "speculative", "engine": "vllm", "version": "0.32.0"},
    "seconds": 3.21,
}


def failed(*problems: Problem) -> Any:
    return {"failed": True, **DrafthouseError(list(problems)).result}


def test_the_reason_is_the_first_problem_also_of_a_loop() -> None:
    assert reason_of(failed(DIED)) == DIED
    looped: Any = {"failed": True, "msg": "One or more items failed", "results": [{"failed": False}, failed(DIED)]}
    assert reason_of(looped) == DIED


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"msg": "No space left on device"}, "No space left on device"),
        ({"msg": "One or more items failed", "results": [{"msg": "one item's own"}]}, "one item's own"),
        ({}, "a task that failed without output"),
    ],
)
def test_ansibles_own_words_where_we_have_none(result: Any, found: str) -> None:
    assert reason_of(result).found == found


def test_a_run_that_failed_names_both_reasons() -> None:
    refused, back = both(DIED, "Wait for the engine", RESOLVED, BACK)
    assert refused.found == "small (vllm 0.33.0) is not served: the baseline arm died (exit status 1)"
    assert refused.where == "box: Wait for the engine"
    assert refused.do == "read the log"
    assert back.found == (
        "the last good server runs again: release 0001 (small, the speculative arm, vllm 0.32.0); "
        "it answers again after 3.2 s"
    )


def test_a_last_good_server_that_stays_away_is_the_second_reason() -> None:
    gone = failed(
        Problem("release-incomplete", "release 0001 needs missing files: /m", "weights", "make small", "rollback")
    )
    refused, back = both(DIED, "", RESOLVED, gone)
    assert refused.where == "box"
    assert back.found == "and the last good server could not be restored: release 0001 needs missing files: /m"
    assert back.do == "make small"


def test_the_history_gets_the_reason_in_a_line() -> None:
    assert brief("one line") == "one line"
    log = "the baseline arm died (exit status 1); its last lines:\nloading\n\nerror: invalid argument: --x\n"
    assert brief(log) == "the baseline arm died (exit status 1); its last lines: error: invalid argument: --x"
    # What it says on its other stream, and is no reason, may come last.
    assert brief(f"{log}DEPRECATED: '--host' twice") == brief(log)
    assert brief("it died; its last lines:\none\ntwo") == "it died; its last lines: two"
    assert brief("") == ""
    assert len(brief("x" * 1000)) == 300


def test_a_run_that_a_newer_one_ended_is_known() -> None:
    assert is_superseded({"failed": True, "superseded": True})
    assert is_superseded({"results": [{"superseded": True}]})
    assert not is_superseded(failed(DIED))


@dataclass
class Played:
    """What an action gave its module, and the commands that it ran on the box."""

    given: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)


def refuse(
    monkeypatch: pytest.MonkeyPatch, failed_by: Any, served: bool = True, check: bool = False
) -> tuple[dict[str, Any], Played]:
    """Run the action for a change that failed; return its result, and what it did."""
    played = Played()

    def follow(self: Any, variables: dict[str, Any]) -> Any:
        played.given.update(self._task.args)
        return dict(BACK)

    monkeypatch.setattr(FollowingAction, "answer", follow)
    box = {"served": {"release": "0001"} if served else None}
    action = RefusedAction.__new__(RefusedAction)
    resolved = {**RESOLVED, "box": box, "site": {"home": "/a home"}}
    action._task = SimpleNamespace(args={"resolved": resolved, "failed": failed_by, "task": "Wait"}, check_mode=check)
    monkeypatch.setattr(action, "_low_level_execute_command", played.commands.append)
    return action.answer({}), played


def test_a_failed_change_brings_back_what_served_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    result, played = refuse(monkeypatch, failed(DIED))
    assert result["failed"]
    assert [one["found"].partition(":")[0] for one in result["problems"]] == [
        "small (vllm 0.33.0) is not served", "the last good server runs again",
    ]  # fmt: skip
    assert played.commands == ["rm -f '/a home'/served/ballast"]
    assert (played.given["state"], played.given["refused"]["why"]) == ("put_back", DIED.found)


@pytest.mark.parametrize(
    ("more", "how"),
    [({}, {"served": False}), ({}, {"check": True}), ({"superseded": True}, {})],
    ids=["nothing served", "check mode", "a newer run works there"],
)
def test_nothing_is_touched_where_nothing_is_to_come_back(more: Any, how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    result, played = refuse(monkeypatch, failed(DIED) | more, **how)
    assert result == {"failed": True, "changed": False, "msg": DIED.found}
    assert played == Played()


def test_a_stop_is_noted_without_a_file_on_the_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk has no room for a job's files, and must not keep a server from being stopped."""
    asked: list[dict[str, Any]] = []

    def execute(**given: Any) -> Any:
        asked.append(given)
        return {"changed": True}

    monkeypatch.setattr(ActionBase, "run", lambda *_: {})
    monkeypatch.setattr(FollowingAction, "start", lambda *_: pytest.fail("a job"))
    action = ReleaseAction.__new__(ReleaseAction)
    action._task = SimpleNamespace(args={"home": "/h", "state": "ended", "why": "make stop"}, check_mode=False)
    action._execute_module = execute
    assert action.run(task_vars={}) == {"changed": True}
    assert asked[0]["module_args"] == {"home": "/h", "state": "ended", "why": "make stop"}


def report(invalid: bool = False, *gates: tuple[str, str], word: str = "pays") -> Any:
    return {
        "verdict": "invalid" if invalid else word, "sentence": f"{word}: too noisy",
        "invalid": invalid, "reasons": ["the baseline drafted"] if invalid else [], "directory": "reports/x",
        "gates": [{"title": title, "word": word, "said": f"{title} said"} for title, word in gates],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("told", "serve_arm", "found"),
    [
        (report(False, ("JSON", "passed"), ("Tools", "not measured")), "auto", []),
        (report(True), "auto", ["an invalid comparison: the baseline drafted"]),
        (report(True), "baseline", ["an invalid comparison: the baseline drafted"]),
        (report(False, ("JSON", "failed"), ("Tools", "passed")), "auto", ["a gate fails: JSON said"]),
        (report(False, ("JSON", "failed")), "speculative", ["a gate fails: JSON said"]),
        (report(False, ("JSON", "failed")), "baseline", []),
        (report(False, ("JSON", "no baseline")), "auto", []),
        (report(word="cannot say"), "auto", ["no verdict: cannot say: too noisy"]),
        (report(word="cannot say"), "speculative", []),
        (report(word="cannot say"), "baseline", []),
    ],
)
def test_what_may_not_take_the_place_of_what_serves(told: Any, serve_arm: str, found: list[str]) -> None:
    assert [problem.found for problem in gate_problems(told, "small", serve_arm)] == found


# --- a real request -----------------------------------------------------------------------------


def awaited(box: Box, name: str, wanted: str) -> str:
    """Start a server and ask it until it says so; return what it said last."""
    box.start(box.resolved(name), "speculative")
    end, said = time.monotonic() + 120, ""
    while wanted not in said and time.monotonic() < end:
        try:
            answered = ask_once(f"http://127.0.0.1:{box.port}", "m", "the-key", timeout_s=60)
            said = f"{answered.tokens} tokens"
        except DrafthouseError as error:
            said = error.problems[0].found
        time.sleep(0.1)
    return said


def test_tokens_are_an_answer() -> None:
    with little_box() as box:
        assert awaited(box, "one", "tokens") == "1 tokens"


def test_a_status_that_is_no_answer() -> None:
    with little_box() as box:
        said = awaited(box, "mute", "status 500")
    assert said == 'the server is running but does not answer a request: status 500: {"error": "out of memory"}'


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes requests and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []
        threading.Thread(target=lambda: taken.append(server.accept()[0]), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in taken:
            one.close()


def test_silence_is_given_up(silent: str) -> None:
    with pytest.raises(DrafthouseError, match="nothing within 1 s"):
        ask_once(silent, "m", "", timeout_s=1)


def test_an_error_whose_text_never_comes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            one = server.accept()[0]
            one.recv(65536)
            one.sendall(b"HTTP/1.1 500 no\r\nContent-Length: 99\r\n\r\n")
            given_up.wait(120)
            one.close()

        given_up = threading.Event()
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DrafthouseError, match="does not answer a request: status 500") as caught:
            ask_once(f"http://127.0.0.1:{server.getsockname()[1]}", "m", "", timeout_s=2)
        given_up.set()
        assert caught.value.problems[0].found.endswith("status 500")
        thread.join()


def test_nobody_there() -> None:
    with pytest.raises(DrafthouseError, match="Connection refused"):
        ask_once(f"http://127.0.0.1:{free_port()}", "m", "", timeout_s=60)
