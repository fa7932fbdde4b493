"""The baseline scores the answers of both arms: what is asked of it, what is kept, and what the gate makes of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drafthouse.analysis.scored_outputs import judge_scores
from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import ChatRequest, Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.output_scoring import ANSWERS, asking_token_ids, score_answers, score_row
from drafthouse.bench.results import assemble
from drafthouse.bench.step import run_step
from drafthouse.experiment import loop as module
from drafthouse.experiment.loop import assemble_results, measure_one_step
from drafthouse.profiles.experiment_plan import steps_of_round
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.report.data.checks import gates_not_measured
from drafthouse.serving.runtimes import State
from tests.fakes.scoring_server import GARBAGE, MODEL, Spoil, scoring_server
from tests.support.builders import make_pair, make_resolved
from tests.unit.bench.test_step import lay_suites, suite

Data = Any


def one_in_eight(ids: list[int], temperature: float) -> list[int]:
    return [GARBAGE if place % 8 == 7 else token for place, token in enumerate(ids)]


def from_token(first: int) -> Spoil:
    return lambda ids, temperature: ids[:first] + [GARBAGE] * len(ids[first:])


def when_warm(ids: list[int], temperature: float) -> list[int]:
    return [GARBAGE] * len(ids) if temperature else ids


def as_it_is(ids: list[int], temperature: float) -> list[int]:
    return ids


def the_second_best(ids: list[int], temperature: float) -> list[int]:
    """Always one word on: each an ordinary word, and never the one that the target would have said."""
    return [1 + token % 63 for token in ids]


def step_of(arms: dict[str, str], **options: Any) -> Data:
    made = suite(chat=8)
    made["kinds"]["chat"]["output_tokens"] = 48
    given = {"rounds": 2, "warmups": 1, "temperatures": (0.0, 0.6), "token_ids": ANSWERS, **options}
    endpoints = [Endpoint(arm, base_url, MODEL) for arm, base_url in arms.items()]
    return run_step(endpoints, [made], StepOptions(**given))


def scored(spoil: Spoil, **more: Any) -> tuple[Data, list[Data]]:
    """The gate over an arm with a fault, and what its baseline was asked."""
    with scoring_server("a") as (base, asked), scoring_server("b", spoil, **more) as (spec, _):
        step = step_of({"baseline": base, "speculative": spec})
        step["scoring"] = score_answers(Endpoint("baseline", base, MODEL), [step], 1024)
    results = [assemble([step], arm) for arm in ("baseline", "speculative")]
    return judge_scores(*results), asked


# ---- the gate ----------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_good_arm_passes_and_its_answers_are_asked_for_by_their_ids() -> None:
    found, asked = scored(as_it_is)
    assert found["word"] == "passed", found
    assert found["said"].startswith("0 of 768 tokens at temperature 0 are not the target's own choice")
    assert found["speculative"]["total"] == 32
    # Ids and not text; both arms say the same at temperature 0, which is asked once.
    assert {(len(one["prompt"]), one["prompt_logprobs"], one["max_tokens"]) for one in asked} == {(53, 1, 1)}
    assert len(asked) == 8 + 2 * 16


@pytest.mark.processes
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (one_in_eight, "at temperature 0 8 of 8 prompts have tokens that the baseline would not have chosen"),
        (from_token(12), "at temperature 0 8 of 8 prompts have tokens"),
        (from_token(4), "at temperature 0 8 of 8 prompts have tokens"),
        (when_warm, "at temperature 0.6 the baseline gives the speculative arm's answers a mean log-probability of -1"),
        (the_second_best, "at temperature 0 8 of 8 prompts have tokens"),
    ],
)
def test_an_arm_that_says_what_its_target_would_not_fails(spoil: Spoil, said: str) -> None:
    found, _ = scored(spoil)
    assert found["word"] == "failed"
    assert found["said"].startswith(said), found["said"]


@pytest.mark.processes
def test_a_server_that_sends_no_ids_is_not_scored_and_says_so() -> None:
    found, asked = scored(as_it_is, with_ids=False)
    assert (found["word"], asked) == ("not measured", [])
    assert found["said"] == "the server sent no token ids with its answers"


def test_text_that_is_not_what_its_ids_say_fails() -> None:
    pair = made_scores(random.Random(1), 12)
    for row in pair[1]["scored"]:
        row["same_text"] = False
    assert judge_scores(*pair)["said"].startswith("in 24 of 24 answers the text does not match its token ids")
    # A parser that rewrites both arms' texts is nobody's fault.
    for row in pair[0]["scored"]:
        row["same_text"] = False
    assert judge_scores(*pair)["word"] == "passed"


def test_it_turns_the_verdict_and_results_without_scores_are_still_judged() -> None:
    pair = make_pair({"copy-edit": 2.5})
    assert judge(*pair, make_resolved())["word"] == "pays"
    plain: Any = judge(*pair, make_resolved())
    told = gates_not_measured(plain)
    assert any("would have given" in sentence for sentence in told)
    for result, scores in zip(pair, made_scores(random.Random(2), 12, worse=1.0), strict=True):
        result.update(scores)
    verdict = judge(*pair, make_resolved())
    assert (verdict["word"], verdict["wrong_output"]) == ("does not pay", True)
    assert verdict["said"].startswith("wrong output: at temperature 0.6 the baseline gives")


def test_one_odd_prompt_and_rounding_are_forgiven_and_a_second_one_is_not() -> None:
    pair = made_scores(random.Random(3), 12, worst=0.2)
    assert judge_scores(*pair)["word"] == "passed"
    cold = [row for row in pair[1]["scored"] if row["temperature"] == 0]
    cold[0]["worst"] = 9.0
    assert judge_scores(*pair)["word"] == "passed"
    cold[1]["worst"] = 9.0
    assert judge_scores(*pair)["word"] == "failed"
    # Where the baseline's own tokens are as unlikely to itself, nobody can tell.
    pair[0]["scored"][0]["worst"] = 5.0
    assert judge_scores(*pair)["word"] == "passed"


def test_too_few_answers_are_not_judged() -> None:
    assert judge_scores(*made_scores(random.Random(4), 3))["said"] == "3 pairs of scored answers, and 6 are needed"


def made_scores(chance: random.Random, prompts: int, *, worse: float = 0.0, worst: float = 0.0) -> tuple[Data, Data]:
    """Scores as they come of equal arms: at temperature 0 the same, at 0.6 drawn alike around each prompt's own."""
    rows: dict[str, list[Data]] = {"baseline": [], "speculative": []}
    for number in range(prompts):
        cold, own = -abs(chance.gauss(0.6, 0.3)), -abs(chance.gauss(0.9, 0.35))
        for temperature in (0.0, 0.6):
            for arm, found in rows.items():
                mean = cold if temperature == 0 else own + chance.gauss(0.0, 0.2)
                mean -= worse * (arm == "speculative") * (temperature > 0)
                found.append(
                    {
                        "round": 1, "group": f"chat{temperature}", "prompt_id": f"p{number}",
                        "temperature": temperature, "tokens": 96, "misses": 0, "mean_logprob": mean,
                        "worst": chance.random() * worst if temperature == 0 else abs(chance.gauss(4, 1.5)),
                        "same_text": True,
                    }
                )  # fmt: skip
    return {"scored": rows["baseline"]}, {"scored": rows["speculative"]}


@pytest.mark.parametrize("prompts", [6, 8, 12, 24])
def test_equal_arms_fail_in_fewer_than_one_experiment_in_a_hundred(prompts: int) -> None:
    chance = random.Random(prompts)
    runs = 400 if prompts <= 12 else 100
    failed = sum(judge_scores(*made_scores(chance, prompts, worst=0.4))["word"] == "failed" for _ in range(runs))
    assert failed <= runs // 100


@pytest.mark.parametrize(("prompts", "worse", "found"), [(6, 4.0, 60), (8, 4.0, 98), (12, 1.0, 98)])
def test_answers_that_are_less_likely_are_found(prompts: int, worse: float, found: int) -> None:
    """So many of a hundred experiments of one round; a second round doubles the pairs."""
    chance = random.Random(prompts)
    failed = sum(judge_scores(*made_scores(chance, prompts, worse=worse))["word"] == "failed" for _ in range(100))
    assert failed >= found


# ---- what is asked, and what is kept -----------------------------------------------------------------


def test_a_sample_takes_short_prompts_of_every_group_and_none_that_is_held_to_a_form() -> None:
    def ask(group: str, number: int, **more: Any) -> ChatRequest:
        words: list[Any] = [{"role": "user", "content": "x" * (40 - number)}]
        return ChatRequest("s", group, group, f"p{number}", words, 8, **more)

    groups = [
        tuple(ask("chat", number) for number in range(5)),
        (ask("json", 1, response_format={"type": "json_object"}), ask("tools", 2, tools=[{}])),
        tuple(ask("code", number, extra={"top_k": 3}) for number in range(2)),
    ]
    asked = asking_token_ids(groups, 5)
    chosen = [[one.prompt_id for one in group if (one.extra or {}).get("return_token_ids")] for group in asked]
    assert chosen == [["p2", "p3", "p4"], [], ["p0", "p1"]]
    assert asked[2][0].extra == {"top_k": 3, "return_token_ids": True}
    assert asking_token_ids(groups, 0) == groups


def test_the_figures_of_one_answer() -> None:
    made: Any = {"own": [-0.5, -3.0, -0.25], "best": [-0.5, -0.5, -0.25], "decoded": " Caf\ufffd is", "whole": True}
    assert score_row(made, ("", "Café is")) == {
        "tokens": 3, "misses": 1, "worst": 2.5, "mean_logprob": -1.25, "same_text": True,
    }  # fmt: skip
    thought: Any = {**made, "decoded": "<think>\nSo it is.\n</think>\nYes.<|im_end|>"}
    assert score_row(thought, ("\nSo it is.\n", "Yes."))["same_text"] is True
    assert score_row(made, ("", "Other words"))["same_text"] is False
    assert score_row(made | {"whole": False}, ("", "Other words"))["same_text"] is None


@pytest.mark.processes
def test_a_long_answer_is_scored_as_far_as_the_engine_may_and_a_refusal_ends_nothing() -> None:
    with scoring_server("a") as (base, asked):
        endpoint = Endpoint("baseline", base, MODEL)
        step = step_of({"baseline": base, "speculative": base}, rounds=1, temperatures=(0.0,))
        found = score_answers(endpoint, [step], 25)
        assert {len(one["prompt"]) for one in asked} == {25}
        assert {row["tokens"] for row in found["answers"]} == {20}
        assert {row["same_text"] for row in found["answers"]} == {None}
        # What is scored once is not scored again.
        again = score_answers(endpoint, [step | {"scoring": found}], 25)
        assert again["answers"] == []
    gone = score_answers(endpoint, [step], 25)
    assert (gone["answers"], gone["left"]) == ([], 16)
    assert "Connect" in str(gone["why"]) or "refused" in str(gone["why"])


# ---- in an experiment --------------------------------------------------------------------------------


@pytest.mark.processes
def test_arms_in_turns_are_scored_in_the_next_step_of_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps, baseline and speculative in turns: what the speculative arm said is scored by the later baseline."""
    runtime = SimpleNamespace(
        mark=lambda arm: "", printed=lambda arm, since="": "", state=lambda arm: State(True, 1.0), log_name=str
    )
    monkeypatch.setattr(module, "runtime_of", lambda name, home: runtime)
    # What else works on this machine is not the question here.
    monkeypatch.setattr(module, "disturbance_of", lambda step: None)
    (tmp_path / "key").write_text("key\n")
    resolved = make_resolved(kinds=["chat"], suites=["s"])
    resolved |= {
        "result_dir": str(tmp_path), "key_file": str(tmp_path / "key"),
        "suites_file": lay_suites(tmp_path, s=suite("s", chat=8)),
        "scores": {"by": "prompt_logprobs", "tokens": 1024},
    }  # fmt: skip
    resolved["site"]["home"] = str(tmp_path)
    resolved["target"]["served_name"] = MODEL
    resolved["experiment"]["temperatures"] = [0.0, 0.6]
    with scoring_server("a") as (base, asked), scoring_server("b", when_warm) as (spec, _):
        ports = {"baseline": int(base.rpartition(":")[2]), "speculative": int(spec.rpartition(":")[2])}
        resolved["experiment"]["turns"] = [{arm: port} for arm, port in ports.items()]
        steps = [step for number in (1, 2) for step in steps_of_round(resolved["experiment"], number)]
        assert [*steps[3]["arms"]] == ["baseline"]
        resolved["experiment"]["steps"] = steps
        for step in resolved["experiment"]["steps"]:
            path = measure_one_step(resolved, step, 10.0, lambda event, important=False: None)
            kept = json.loads(path.read_text("utf-8"))
            # Nothing to score before both arms have answered, and no server to score beside the speculative one.
            assert len((kept.get("scoring") or {}).get("answers") or []) == (32 if step["number"] == 4 else 0)
            assert asked == [] or step["number"] == 4
        results = [json.loads(path.read_text("utf-8")) for path in assemble_results(resolved, 2)]
    assert [len(result["scored"]) for result in results] == [16, 16]
    assert results[0]["scoring"]["answers"] == 32
    found = judge_scores(*results)
    assert (found["word"], "at temperature 0.6" in found["said"]) == ("failed", True)


def test_which_engine_scores_stands_in_the_catalogue() -> None:
    site = site_of_inventory("local")
    assert resolved_profile("cpu-smollm2-vllm-ngram", site)["scores"] == {"by": "prompt_logprobs", "tokens": 1024}
    assert resolved_profile("cpu-smollm2-ngram", site)["scores"] is None
