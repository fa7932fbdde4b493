"""Result files in the forms of their clients, made here with a known gain: each is read, paired and judged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.report.from_files import judge_files
from tests.support.builders import make_pair
from tests.support.verb import called

TOKENS, TTFT_S = 64, 0.05


def tpots(gain: float, seed: int = 1, number: int = 8) -> list[float]:
    """Times per token in s: those of a prompt are alike in both arms, but for the gain."""
    chance = random.Random(seed)
    return [0.02 / gain * (1 + 0.002 * chance.random()) for _ in range(number)]


def arrays(gain: float, seed: int, **more: Any) -> dict[str, Any]:
    """The parallel lists of `vllm bench serve --save-detailed` and of bench_serving --output-details."""
    found = tpots(gain, seed)
    return {
        "duration": 10.0, "completed": 8, "total_output_tokens": 8 * TOKENS, "output_throughput": 50.0 * gain,
        "median_tpot_ms": 20.0 / gain, "mean_tpot_ms": float("nan"), "p99_itl_ms": None,
        "input_lens": [20 + place for place in range(8)], "output_lens": [TOKENS] * 8, "ttfts": [TTFT_S] * 8,
        "itls": [[one] * (TOKENS - 1) for one in found], "generated_texts": [f"text {n} " * 40 for n in range(8)],
        "errors": [""] * 8, **more,
    }  # fmt: skip


def vllm(gain: float, seed: int, load: int = 1) -> str:
    head = {"date": "20261128-101500", "backend": "openai-chat", "label": None, "model_id": "m", "num_prompts": 8}
    return json.dumps({**head, "request_rate": "inf", "max_concurrency": load, **arrays(gain, seed)})


def sglang(gain: float, seed: int, load: int = 1) -> str:
    told: dict[str, Any] = {"tag": None, "backend": "sglang", "dataset_name": "sharegpt", "request_rate": float("inf"),
            "max_concurrency": load, "accept_length": None if gain == 1 else 2.4, "server_info": {}}  # fmt: skip
    return json.dumps({**told, **arrays(gain, seed)}) + "\n"


def csv_table(gain: float, seed: int, load: int = 1) -> str:
    lines = ["prompt;kind;seconds;tokens;ttft;accepted;drafted;text;hash;concurrency"]
    for place, one in enumerate(tpots(gain, seed)):
        drafts = "" if gain == 1 else "30;40"
        seconds = TTFT_S + one * (TOKENS - 1)
        lines.append(f"what is {place} plus 1;maths;{seconds};{TOKENS};{TTFT_S};{drafts or ';'};;h{place};{load}")
    return "\n".join(lines) + "\n"


def json_lines(gain: float, seed: int, load: int = 1) -> str:
    rows = [
        {"id": f"p{place}", "prompt": "x y", "elapsed_ms": 1000 * TOKENS * one, "completion_tokens": TOKENS,
         "users": load}
        for place, one in enumerate(tpots(gain, seed))
    ]  # fmt: skip
    random.Random(seed).shuffle(rows)
    return "\n".join(map(json.dumps, rows))


def guidellm(gain: float, seed: int, load: int = 1) -> str:
    requests = [
        {"request_id": f"{seed}-{place}", "request_latency": TTFT_S + one * (TOKENS - 1), "output_tokens": TOKENS,
         "time_to_first_token_ms": 50.0, "inter_token_latency_ms": 1000 * one, "prompt_tokens": 20,
         "request_args": json.dumps({"body": {"messages": [{"role": "user", "content": f"q{place}"}]}})}
        for place, one in enumerate(tpots(gain, seed))
    ]  # fmt: skip
    strategy = {"type_": "concurrent", "streams": load}
    ended = {"successful": requests, "errored": [], "incomplete": []}
    return json.dumps({"benchmarks": [{"config": {"strategy": strategy}, "metrics": {}, "requests": ended}]})


FORMS: Mapping[str, tuple[Callable[[float, int, int], str], str]] = {
    "a.json": (vllm, "position"), "a.jsonl": (sglang, "position"), "a.csv": (csv_table, "hash of the prompt"),
    "rows.jsonl": (json_lines, "id"), "guide.json": (guidellm, "hash of the prompt"),
}  # fmt: skip


def arm(folder: Path, name: str, texts: Sequence[str]) -> str:
    """The files of an arm, one a run, as words of the command line."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}-{name}" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return ",".join(map(str, paths))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("gain", "word"), [(1.8, "pays"), (1.0, "does not pay"), (0.6, "does not pay")])
def test_runs_of_each_form_have_the_real_word(tmp_path: Path, name: str, gain: float, word: str) -> None:
    form, paired = FORMS[name]
    one = arm(tmp_path / "a", name, [form(1.0, seed, 1) for seed in (1, 2, 3)])
    two = arm(tmp_path / "b", name, [form(gain, seed, 1) for seed in (4, 5, 6)])
    report: Any = judge_files(one, two)
    verdict = report["verdict"]
    assert verdict["word"] == word, verdict["sentence"]
    assert verdict["speedup"]["gain"] == pytest.approx(gain, rel=0.01)
    assert report["files"]["paired_by"] == paired
    assert verdict["scope"]["concurrency"] == 1
    assert verdict["control"]["gain"] == pytest.approx(1.0, abs=0.01)
    once: Any = judge_files(one, two.partition(",")[0])
    assert once["verdict"]["sentence"].startswith("cannot say: one run of the speculative arm: ")
    assert once["files"]["if_quiet"] == word


@pytest.mark.parametrize("form", [vllm, sglang, guidellm, csv_table])
def test_several_loads_have_a_crossover(tmp_path: Path, form: Callable[[float, int, int], str]) -> None:
    gains = {1: 1.8, 4: 1.4, 16: 0.8}
    suffix = "csv" if form is csv_table else "json"
    one = arm(tmp_path / "a", f"x.{suffix}", [form(1.0, load, load) for load in gains])
    two = arm(tmp_path / "b", f"x.{suffix}", [form(gain, load + 1, load) for load, gain in gains.items()])
    report: Any = judge_files(one, two)
    assert [row["level"] for row in report["load"]["rows"]] == list(gains)
    assert report["verdict"]["scope"]["concurrency"] == 1
    assert "over the loads, if the box was quiet: pays 1.80" in report["verdict"]["reasons"][-1]
    assert "until about" in report["verdict"]["reasons"][-1]


def runs_in_one_line(gain: float, load: int) -> list[tuple[str, str]]:
    """Files without single answers: vllm bench without details, llama-bench, llama-benchy, AIPerf's summary."""
    speeds = [50.0 * gain * factor for factor in (0.99, 1.0, 1.01)]
    bench = {"n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": speeds[1], "stddev_ts": 0.5, "samples_ts": speeds}
    prompt = {"n_prompt": 512, "n_gen": 0, "avg_ts": 9000.0, "samples_ts": [9000.0]}
    benchy = {"concurrency": load, "context_size": 0, "prompt_size": 512, "response_size": 128,
              "is_context_prefill_phase": False, "tg_throughput": {"mean": speeds[1], "values": speeds}}  # fmt: skip
    brief = {name: value for name, value in arrays(gain, 1).items() if not isinstance(value, list)}
    aiperf = {
        "inter_token_latency": {"unit": "ms", "p50": 20 / gain},
        "request_latency": {"avg": 1.0},
        "output_token_throughput": {"avg": 50 * gain},
        "input_config": {"phases": [{"concurrency": load}]},
    }
    return [
        ("llama-bench", json.dumps([prompt, bench])),
        ("llama-bench", "\n".join(map(json.dumps, [prompt, bench]))),
        ("llama-benchy", json.dumps({"version": "0.4.0", "model": "m", "benchmarks": [benchy]})),
        ("named columns", json.dumps({"max_concurrency": load, "num_prompts": 8, **brief})),
        ("AIPerf", json.dumps(aiperf)),
    ]


@pytest.mark.parametrize("place", range(5))
def test_runs_in_one_line_have_a_ratio_and_the_spread_of_their_repeats(tmp_path: Path, place: int) -> None:
    words = []
    for name, gain in (("a", 1.0), ("b", 1.5)):
        form, text = runs_in_one_line(gain, 1)[place]
        words.append(arm(tmp_path / name, "x.json", [text]))
    report: Any = judge_files(*words)
    speedup = report["verdict"]["speedup"]
    assert report["verdict"]["sentence"].startswith("cannot say: no single answers in these files")
    assert speedup["gain"] == pytest.approx(1.5)
    assert report["files"]["forms"]["baseline"] == [form]
    # Three repeats that differ by 1 % either way; without repeats there is no spread.
    assert (1.44 < speedup["low"] < 1.5 < speedup["high"] < 1.56) == (place < 3)
    assert (speedup["low"] == speedup["high"]) == (place >= 3)


def test_runs_in_one_line_over_loads_say_where_the_gain_ends(tmp_path: Path) -> None:
    gains = {1: 1.5, 4: 1.2, 16: 0.9}
    one = arm(tmp_path / "a", "x.json", [runs_in_one_line(1.0, load)[3][1] for load in gains])
    two = arm(tmp_path / "b", "x.json", [runs_in_one_line(gain, load)[3][1] for load, gain in gains.items()])
    said = judge_files(one, two)["verdict"]["reasons"][-1]
    assert "at about 8" in said
    assert "1.20" in said


def test_our_own_results_are_judged_by_their_own_counters(tmp_path: Path) -> None:
    words = []
    for name, result in zip(("a.json", "b.json"), make_pair({"code": 2.0}), strict=True):
        (tmp_path / name).write_text(json.dumps(result))
        words.append(str(tmp_path / name))
    report: Any = judge_files(words[0], words[1])
    assert report["verdict"]["word"] == "pays"
    assert report["verdict"]["drafting"]["speculative"]["drafted"]
    assert report["files"]["forms"]["baseline"] == ["drafthouse bench"]
    assert called("judge", *words).returncode in (0, 1)
    swapped: Any = judge_files(words[1], words[0])
    assert swapped["verdict"]["sentence"].startswith("invalid: the baseline drafted")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told.update(output_lens=[96] * 8), "usage and the text disagree"),
        (lambda told: told.update(input_lens=[99] * 8), "not the same prompts in the same order"),
        (lambda told: told.update(max_concurrency=8), "max_concurrency is 1 in baseline and 8 in speculative"),
        (lambda told: told.update(errors=["", "HTTP 500"] * 4), "4 of 8 answers left out: HTTP 500 (4)"),
        (lambda told: told.update(spec_decode_draft_tokens=0), "the speculative arm did not draft"),
    ],
)  # fmt: skip
def test_what_makes_two_files_no_pair(tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str) -> None:
    told = json.loads(vllm(1.8, 2))
    change(told)
    report: Any = judge_files(
        arm(tmp_path / "a", "a.json", [vllm(1.0, 1)]), arm(tmp_path / "b", "b.json", [json.dumps(told)])
    )
    assert report["verdict"]["word"] == "invalid"
    assert said in " ".join(report["verdict"]["reasons"])


def test_arms_under_keys_of_their_own(tmp_path: Path) -> None:
    arms = {name: [{"id": n, "tps": one} for n in range(8)] for name, one in (("without", 40.0), ("eagle", 60.0))}
    words = arm(tmp_path / "a", "a.json", [json.dumps(arms)])
    report: Any = judge_files(f"{words}#without", f"{words}#eagle")
    assert report["verdict"]["speedup"]["gain"] == pytest.approx(1.5)
    refused = called("judge", words, words)
    assert "'without', 'eagle'" in refused.stderr


def test_prompts_of_other_files_are_no_pair(tmp_path: Path) -> None:
    one = arm(tmp_path / "a", "a.csv", [csv_table(1.0, 1)])
    two = arm(tmp_path / "b", "b.csv", [csv_table(1.8, 1).replace("what", "how much")])
    assert judge_files(one, two)["verdict"]["sentence"].startswith(
        "invalid: the prompts of the two arms are not the same"
    )
