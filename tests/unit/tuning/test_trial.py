"""A trial against a server of known clock: what it measures, whom it stops, and how it ends."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, cast

import pytest

from drafthouse.analysis.answer_checks import check_answer
from drafthouse.analysis.output_equality import judge_outputs
from drafthouse.bench.client import Endpoint
from drafthouse.core.errors import DrafthouseError
from drafthouse.tuning.paired_stats import pair_key, prompt_of
from drafthouse.tuning.trial import TrialOptions, endpoint_of, run_trial
from drafthouse.tuning.types import FAILED, OK, STOPPED, TOO_LATE
from tests.fakes.clock_server import clock_server

pytestmark = pytest.mark.processes

QUICK: Any = {"ttft_ms": 5, "interval_ms": 10, "tokens": 12, "tokens_per_chunk": 3}


def asks(number: int, temperature: float = 0.0) -> list[Any]:
    return [
        {
            "suite": "tune", "kind": "chat", "prompt_id": f"p{n}", "output_tokens": 12, "temperature": temperature,
            "messages": [{"role": "user", "content": f"prompt {n}"}],
        }
        for n in range(number)
    ]  # fmt: skip


def measured(server: Any, number: int = 4, temperature: float = 0.0, **options: Any) -> Any:
    endpoint = Endpoint("speculative", server.base_url, "clock", options.pop("key", None))
    return run_trial(endpoint, asks(number, temperature), TrialOptions(**options))


# A busy neighbour delays what is read; who reads the clock wrongly does so every time.
TRIES = 4


@pytest.mark.alone
def test_a_trial_reads_the_clock_and_the_counters() -> None:
    with clock_server(**QUICK, metrics="vllm", drafted=4) as server:
        for _ in range(TRIES):
            server.reset()
            trial = measured(server)
            # Four chunks of three tokens, 10 ms apart: 30 ms for the 11 tokens behind the first, and what they really
            # took stands in the server's record.
            sent = [entry["sent_s"] for entry in server.record()[-4:]]
            true_ms = [1000 * (moments[-1] - moments[0]) / 11 for moments in sent]
            read_ms = list(trial["tpot_ms"].values())
            if read_ms == pytest.approx(true_ms, rel=0.25):
                break
    assert read_ms == pytest.approx(true_ms, rel=0.25)
    assert trial["status"] == OK
    assert list(trial["tpot_ms"]) == ["tune/p0", "tune/p1", "tune/p2", "tune/p3"]
    assert trial["drafted"]
    # Of four drafted tokens a chunk two were accepted: tokens_per_chunk less the one that the target gave.
    assert trial["acceptance"]["spec_decode_acceptance_length"] == pytest.approx(3.0)
    assert trial["output_tokens"] == 48
    assert len(set(trial["outputs"].values())) >= 1
    assert json.loads(json.dumps(trial)) == trial


def test_a_server_that_does_not_draft() -> None:
    with clock_server(**{**QUICK, "tokens_per_chunk": 1}, metrics="vllm") as server:
        assert not measured(server)["drafted"]


def test_a_loser_is_not_asked_the_rest() -> None:
    told: list[Any] = []
    with clock_server(**QUICK) as server:
        endpoint = Endpoint("speculative", server.base_url, "clock")
        options = TrialOptions(reference={f"tune/p{n}": 1.0 for n in range(12)}, label="loser")
        trial = run_trial(endpoint, asks(12), options, told.append)
        asked = [one for one in server.record() if "prompt" in one["request"]["messages"][0]["content"]]
    assert trial["status"] == STOPPED
    assert trial["asked"] == len(asked) == 3
    assert "x the leader's speed after 3 of 12 prompts" in trial["why"]
    assert "x the leader's speed" in told[-1]["text"]
    assert (told[-1]["done"], told[-1]["total"]) == (3, 12)


def test_one_that_keeps_up_is_asked_everything() -> None:
    with clock_server(**QUICK) as server:
        # Of a leader so slow that no busy machine makes this one a loser.
        trial = measured(server, 8, reference={f"tune/p{n}": 50.0 for n in range(8)})
    assert (trial["status"], trial["asked"]) == (OK, 8)


def test_without_a_partner_nobody_is_stopped() -> None:
    with clock_server(**QUICK) as server:
        assert measured(server, 6, reference={"other": 0.1})["status"] == OK
        assert measured(server, 6, 0.6, reference={f"tune/p{n}": 0.1 for n in range(6)})["status"] == OK


def test_answers_that_fail_are_told() -> None:
    with clock_server(**QUICK, fail_every=3) as server:
        trial = measured(server, 6)
    assert trial["status"] == FAILED
    assert trial["failed"] == 2
    assert "HTTP 500" in trial["why"]
    assert len(trial["tpot_ms"]) == 4


def test_time_that_is_up_ends_it_with_what_there_is() -> None:
    # The warm-up and two answers; the next one never comes.
    with clock_server(**QUICK, holds_from=4) as server:
        begun = time.monotonic()
        trial = measured(server, 20, seconds=1.5)
        assert time.monotonic() - begun < 60
    assert trial["status"] == TOO_LATE
    assert trial["asked"] == 2


def test_a_server_that_stalls_in_the_warm_up_is_no_endless_wait() -> None:
    with clock_server(ttft_ms=60_000) as server, pytest.raises(DrafthouseError) as caught:
        measured(server, 4, seconds=0.5)
    assert caught.value.problems[0].code == "request-failed"


def test_a_wrong_key_is_said_and_never_shown() -> None:
    with clock_server(**QUICK, key="right") as server:
        with pytest.raises(DrafthouseError) as caught:
            measured(server, 4, key="wr0ng-key")
        assert "401" in str(caught.value)
        assert "wr0ng-key" not in str(caught.value)
        trial = measured(server, 4, key="right")
    assert trial["status"] == OK


def test_streams_run_side_by_side() -> None:
    """None is answered before all eight have come, behind as many of the warm-up."""
    over = threading.Event()
    with clock_server(**QUICK, holds_from=9) as server:

        def let_go() -> None:
            while not over.wait(0.01):
                if len(server.record()) == 16:
                    return server.release()

        thread = threading.Thread(target=let_go)
        thread.start()
        try:
            trial = measured(server, 8, concurrency=8, seconds=60)
        finally:
            over.set()
            thread.join()
    assert (trial["status"], trial["asked"]) == (OK, 8)


def test_names_of_pairs() -> None:
    assert pair_key("mine", "a", 0.0) == "mine/a"
    assert pair_key("mine", "a", 0.6) == "mine/a@0.6"
    assert [prompt_of(key) for key in ("a", "a@0.6", "a@1", "a@home", "@")] == ["a", "a", "a", "a@home", "@"]


def test_two_suites_with_prompts_of_the_same_id_are_two() -> None:
    with clock_server(**QUICK) as server:
        twice: list[Any] = [{**ask, "suite": suite} for suite in ("mine", "yours") for ask in asks(2)]
        trial = run_trial(Endpoint("speculative", server.base_url, "clock"), twice, TrialOptions(texts=True))
    names = ["mine/p0", "mine/p1", "yours/p0", "yours/p1"]
    assert list(trial["tpot_ms"]) == list(trial["outputs"]) == names
    assert [one["prompt_id"] for one in trial["answers"]] == names


def test_texts_come_only_where_they_are_asked_for_and_are_what_the_gate_reads() -> None:
    with clock_server(**QUICK) as server:
        assert "answers" not in measured(server, 2)
        assert measured(server, 2, 0.6, texts=True)["answers"] == []
        answers = measured(server, 6, texts=True)["answers"]
    rounds: Any = [{**answer, "round": number} for answer in answers for number in (1, 2)]
    told: Any = {"requests": rounds}
    assert judge_outputs(told, told)["word"] == "passed"


def test_a_gates_prompt_is_checked_and_not_timed_and_its_failure_fails_no_trial() -> None:
    gate = {"name": "needle", "contains": "lighthouse"}
    timed, checked = asks(2), {**asks(1)[0], "prompt_id": "needle-1", "gate": gate}
    with clock_server(**QUICK) as server:
        endpoint = Endpoint("speculative", server.base_url, "clock", None)
        trial = run_trial(endpoint, [*timed, cast("Any", checked)], TrialOptions(texts=True))
    assert trial["status"] == "ok"
    assert list(trial["tpot_ms"]) == list(trial["outputs"]) == ["tune/p0", "tune/p1"]
    (answer,) = [answer for answer in trial["answers"] if answer["gate"]]
    assert answer["prompt_id"] == "tune/needle-1"
    assert check_answer(cast("Any", answer))[0] == "wrong"


def test_a_key_that_is_not_on_the_box_is_named(tmp_path: Any) -> None:
    resolved: Any = {"site": {"host": "127.0.0.1", "port": 1}, "key_file": str(tmp_path / "key")}
    with pytest.raises(DrafthouseError) as caught:
        endpoint_of(resolved, "baseline")
    (problem,) = caught.value.problems
    assert problem.where == str(tmp_path / "key")
    assert "No such file" in problem.found


def test_the_address_is_that_of_the_served_arm(tmp_path: Any) -> None:
    (tmp_path / "key").write_text("k\n")
    resolved: Any = {
        "site": {"host": "127.0.0.1", "port": 8123},
        "target": {"served_name": "m"},
        "engine": {"metrics": {"path": "/prometheus/metrics"}},
        "key_file": str(tmp_path / "key"),
    }
    endpoint = endpoint_of(resolved, "baseline")
    assert endpoint.chat_url == "http://127.0.0.1:8123/v1/chat/completions"
    assert endpoint.counters_url.endswith("/prometheus/metrics")
    assert "api_key" not in repr(endpoint)
