"""SGLang: its arms, its key, its counters and answers through to the result, and its pasted commands.

Names of counters, answers and log lines: `srt/observability/metrics_collector.py`, `srt/entrypoints/openai/protocol.py`
and `srt/managers/scheduler_components/metrics_reporter.py` of 0.5.23. No server of it ran: the numbers are made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.drafting import drafting_of, drafting_problems
from drafthouse.bench.foreign_traffic import parse_traffic
from drafthouse.bench.results import assemble, summary_lines
from drafthouse.bench.spec_metrics import acceptance_from_log, difference, parse_counters
from drafthouse.bench.sse import read_answer, split_events
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import translate

HOUSE = load_catalog(ROOT)
EAGLE = "rtx6000-gptoss-sglang-eagle3"


def resolved(overrides: Any = None, runtime: str = "docker", **speculation: Any) -> Any:
    """Resolve the profile; what is said of its speculation is laid over it, None takes a key away."""
    wanted = {**(overrides or {}), "speculation": speculation}
    return resolved_profile(EAGLE, {**site_of_inventory("workstation"), "runtime": runtime}, wanted)


def flags(found: Any, arm: str) -> dict[str, str]:
    return {words[0]: words[-1] for words in found["arms"][arm]["flags"]}


def refused(overrides: Any = None, **speculation: Any) -> str:
    with pytest.raises(DrafthouseError) as caught:
        resolved(overrides, **speculation)
    return "\n".join(str(problem) for problem in caught.value.problems)


# --- its arms -------------------------------------------------------------------------------------------


def test_the_arms_differ_in_speculation_alone() -> None:
    found = resolved(num_speculative_tokens=4)
    both, more = flags(found, "baseline"), flags(found, "speculative")
    assert {name: more[name] for name in more if name not in both} == {
        "--speculative-algorithm": "EAGLE3",
        "--speculative-draft-model-path": found["draft"]["path"],
        "--speculative-num-steps": "4",
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "5",
        "--speculative-draft-model-quantization": "unquant",
    }
    assert {name: more[name] for name in both} == both
    # What SGLang would choose by whether it speculates.
    chosen = {"--max-running-requests": "48", "--chunked-prefill-size": "8192", "--mem-fraction-static": "0.85"}
    assert chosen.items() <= both.items()
    for arm in ("baseline", "speculative"):  # a head that was trained with less context than the target has
        assert found["arms"][arm]["environment"]["SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"] == "1"


@pytest.mark.parametrize(
    ("method", "draft", "own"),
    [
        ("ngram", None, {"--speculative-algorithm": "NGRAM", "--speculative-num-draft-tokens": "4"}),
        (
            "eagle3",
            "gpt-oss-120b-eagle3",
            {"--speculative-num-steps": "3", "--speculative-eagle-topk": "4", "--speculative-num-draft-tokens": "8"},
        ),
    ],
)
def test_k_and_what_follows_from_it(method: str, draft: str | None, own: dict[str, str]) -> None:
    options = {"eagle_topk": 4, "num_draft_tokens": 8} if method == "eagle3" else {"draft_model_quantization": None}
    found = resolved(method=method, draft=draft, options=options)
    assert own.items() <= flags(found, "speculative").items()


def test_a_method_a_version_does_not_have_is_refused_and_spellings_are_its_own() -> None:
    told = refused({"engine_version": "0.5.9"}, options={"adaptive": True})
    assert "SGLang 0.5.9, which does not have 'adaptive'" in told
    old = resolved({"engine_version": "0.5.15"}, options={"draft_window_size": 512, "adaptive": True})
    assert flags(old, "speculative")["--speculative-dflash-draft-window-size"] == "512"
    assert "--speculative-adaptive" in flags(old, "speculative")
    for method, version in (("dflash", "0.5.9"), ("dspark", "0.5.15")):
        assert f"which does not have '{method}'" in refused({"engine_version": version}, method=method)


def test_what_would_end_it_or_make_another_server_is_refused() -> None:
    told = refused(draft=None)
    assert "a head for 'eagle3'" in told
    assert "gpt-oss-120b-eagle3-lmsys" in told
    assert "qwen3-32b-eagle3" not in told  # another target's, and in a layout that it does not load
    told = refused({"target": "qwen3-32b"}, draft="qwen3-32b-eagle3")
    assert "in the layout of speculators" in told
    told = refused({"target": "llama33-70b-fp8", "hardware": "h100-nvl"}, draft="llama33-70b-eagle3")
    assert "use one of: llama33-70b-eagle3-specforge" in told
    for words in (
        ["--enable-mixed-chunk"],
        ["--api-key", "x"],
        ["--speculative-num-steps", "2"],
        ["--tensor-parallel-size", "2"],
    ):
        assert "reserved-flag" in refused({"serve": {"extra": words}})


def test_image_and_driver_are_the_versions() -> None:
    new, old = resolved(), resolved({"engine_version": "0.5.19"})
    assert (new["engine"]["image"], new["rental"]["cuda"]) == ("lmsysorg/sglang:v0.5.23", "13.0")
    assert old["engine"]["image"].partition("@")[0] == "lmsysorg/sglang:v0.5.19-cu129"
    assert old["rental"]["driver"] == "575.51.03"
    assert resolved(runtime="process")["engine"]["install"]["python_packages"] == ["sglang==0.5.23"]
    assert new["arms"]["baseline"]["container"]["ipc"] == "host"
    assert not [route for route in new["open_paths"]["routes"] if route["open"] and route["gives"] == "work"]


# --- its key --------------------------------------------------------------------------------------------

# In the place of SGLang's server: it logs its settings as that does, and says what is seen of it from outside.
SERVER = """
import json, logging, sys
from pathlib import Path
logging.basicConfig(format="%(message)s")
key = sys.argv[-1].partition("=")[2]
logging.warning("server_args=%s", {"api_key": key})
logging.warning(f"server_args={key!r} 100%")
logging.warning("nothing of it")
print(json.dumps([sys.argv, Path("/proc/self/cmdline").read_text()]))
"""


@pytest.mark.processes
def test_the_key_is_in_no_process_list_and_in_no_log(tmp_path: Path) -> None:
    found = resolved(runtime="process")
    (script,) = [file["content"] for file in found["arms"]["speculative"]["files"] if file["path"] == "serve.sh"]
    key_file, module = tmp_path / "api key", tmp_path / "modules" / "sglang" / "launch_server.py"
    key_file.write_text("sk-very-secret\n")
    module.parent.mkdir(parents=True)
    module.write_text(SERVER)
    (tmp_path / "serve.sh").write_text(script.replace(found["key_file"], f"'{key_file}'"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(tmp_path / "serve.sh"), "--host", "0.0.0.0"],
        env={"PATH": path, "PYTHONPATH": str(module.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    given, listed = json.loads(done.stdout)
    assert given[0] == "sglang.launch_server"
    assert given[-3:] == ["--host", "0.0.0.0", "--api-key=sk-very-secret"]
    assert "--speculative-num-draft-tokens" in given
    assert "sk-very-secret" not in listed + done.stderr
    assert str(key_file) in listed
    assert done.stderr.splitlines() == ["server_args={'api_key': '(key)'}", "server_args='(key)' 100%", "nothing of it"]


# --- its counters, answers and log ----------------------------------------------------------------------

LABELS = 'engine_type="unified",model_name="m"'


def page(requests: int, tokens: int, verified: int | None, gauge: float | None = 0.0) -> str:
    """What it shows; the counter of verifications has no line before it moved (or before 0.5.15)."""
    lines = [
        f'sglang:num_requests_total{{{LABELS},is_streaming="true"}} {requests}.0',
        f'sglang:generation_tokens_total{{{LABELS},is_streaming="true"}} {tokens - 5}.0',
        f'sglang:generation_tokens_total{{{LABELS},is_streaming="false"}} 5.0',
        f'sglang:prompt_tokens_total{{{LABELS},is_streaming="true"}} 900.0',
        f"sglang:num_running_reqs{{{LABELS}}} 2.0",
        f"sglang:num_queue_reqs{{{LABELS}}} 1.0",
    ]
    lines += [f"sglang:spec_verify_calls_total{{{LABELS}}} {verified}.0"] if verified is not None else []
    lines += [f"sglang:spec_accept_length{{{LABELS}}} {gauge}"] if gauge is not None else []
    return "\n".join(lines) + "\n"


def result(before: str, after: str, **fields: Any) -> Any:
    request = {
        "prompt_id": "p", "kind": "chat", "suite": "s", "group": "chat", "round": 1, "temperature": 0.0, "status": "ok",
        "error": None, "started_s": 1.0, "input_tokens": 20, "output_tokens": 40, "text": "t", "cached_tokens": None,
        "ttft_ms": 100.0, "ttfat_ms": 100.0, "e2el_ms": 500.0, "tpot_ms": 10.0, "itls_ms": [10.0] * 39, "timings": None,
        "avg_decoded_tokens_per_iter": None, "spec_metrics": None, **fields,
    }  # fmt: skip
    around = [{"round": 1, "group": "chat", "before": parse_counters(before), "after": parse_counters(after)}]
    arm = {
        "model_id": "m", "requests": [request], "spans": [{"round": 1, "group": "chat", "duration_s": 1.0}],
        "counters": around, "warmup": {"sent": 0, "failed": 0, "error": None},
    }  # fmt: skip
    step: Any = {
        "started_unix_s": 1.0, "settings": {"concurrency": 1}, "suites": ["s"], "arms": {"speculative": arm},
        "machine": {"before": {"time": 1.0}, "after": {"time": 2.0}, "groups": []},
    }  # fmt: skip
    return assemble([step], "speculative", engine={"id": "sglang", "version": "0.5.23"})


def test_acceptance_is_what_the_verifications_gave_beside_their_own_tokens() -> None:
    # Four requests more: 104 tokens, of which each has one of the prefill and 40 are the verifications' own.
    moved = difference(parse_counters(page(6, 105, 30)), parse_counters(page(10, 209, 70)))
    assert moved == {"num_drafts": 40, "draft_tokens": None, "accepted_tokens": 60, "per_position": []}
    assert parse_traffic(page(6, 105, 30)) == {
        "requests": 6.0, "output_tokens": 105.0, "input_tokens": 900.0, "running": 3.0,
    }  # fmt: skip
    first = difference(parse_counters(""), parse_counters(page(4, 104, 40)))
    assert first == {**moved, "num_drafts": 40}
    counted = result(page(6, 105, 30), page(10, 209, 70))
    assert (counted["spec_decode_source"], counted["spec_decode_acceptance_length"]) == ("metrics", 2.5)
    assert drafting_of(counted)["drafted"] is True


def test_an_answer_tells_the_rest() -> None:
    details = {
        "spec_accept_rate": 0.5, "spec_accept_length": 2.6, "spec_num_correct_drafts": 60, "spec_verify_ct": 40,
        "spec_num_proposed_drafts": 120, "spec_correct_drafts_histogram": [10, 10, 10, 10],
    }  # fmt: skip
    chunks = [
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [], "sglext": {"spec_tokens_details": details}},
        {"choices": [], "usage": {"completion_tokens": 104}},
    ]
    body = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    answer = read_answer(split_events(body, [1.0], [len(body)]))
    counted = result(page(6, 105, 30), page(10, 209, 70), spec_metrics=answer.spec_metrics)
    assert counted["spec_decode_acceptance_rate"] == 50.0
    assert counted["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.75, 0.5, 0.25])
    assert (counted["spec_decode_source"], counted["spec_decode_acceptance_length"]) == ("response", 2.5)
    assert resolved()["engine"]["metrics"]["ask"] == "return_spec_tokens_details"


def test_an_arm_without_drafts_has_drafted_nothing() -> None:
    base = result(page(6, 105, None), page(10, 209, None))
    assert drafting_of(base)["drafted"] is False
    (told,) = drafting_problems({"baseline": drafting_of(base), "speculative": drafting_of(base)})
    assert "the speculative arm did not draft" in told
    silent = result(page(6, 105, None, None), page(10, 209, None, None))
    assert drafting_of(silent)["drafted"] is None
    (told,) = drafting_problems({"baseline": drafting_of(base), "speculative": drafting_of(silent)})
    assert "sglang:spec_verify_calls_total" in told


def test_an_older_one_has_a_gauge_and_it_is_said() -> None:
    old = result(page(6, 105, None), page(10, 209, None, 2.4))
    assert (old["spec_decode_source"], old["spec_decode_acceptance_length"]) == ("gauge", 2.4)
    assert drafting_of(old)["drafted"] is True
    assert any("an engine gauge" in line for line in summary_lines(old))


def test_its_log() -> None:
    line = (
        "[2026-10-02 10:00:0{}] Decode batch, #running-req: 1, #token: 512, token usage: 0.01, accept len: {},"
        " accept rate: 0.55, cuda graph: True, gen throughput (token/s): 161.2, #queue-req: 0"
    )
    got = acceptance_from_log("\n".join([line.format(1, "2.50"), "INFO else", line.format(2, "3.10")]))
    assert got is not None
    assert got["spec_decode_acceptance_length"] == pytest.approx(2.8)
    assert acceptance_from_log("Decode batch, #running-req: 1, gen throughput (token/s): 9") is None


# --- its pasted commands --------------------------------------------------------------------------------

PASTED = (
    "--model-path openai/gpt-oss-120b --speculative-algorithm EAGLE3 --tp 2 --speculative-num-steps 3"
    " --speculative-draft-model-path lmsys/EAGLE3-gpt-oss-120b-bf16 --speculative-eagle-topk 1"
    " --speculative-num-draft-tokens 4 --mem-fraction-static 0.8 --api-key sk-secret --port 30000"
)


def read(command: str) -> Any:
    (found,) = translate(command, HOUSE, load_flags(ROOT), lambda name: None)[0]
    return found


@pytest.mark.parametrize(
    "command",
    [
        f"python3 -m sglang.launch_server {PASTED}",
        f"sglang serve {PASTED}",
        f"docker run --gpus all --ipc=host lmsysorg/sglang:v0.5.12 python3 -m sglang.launch_server {PASTED}",
    ],
)
def test_its_commands_are_read(command: str) -> None:
    found = read(command)
    assert (found.engine, found.profile["target"]) == ("sglang", "gpt-oss-120b")
    assert found.profile["speculation"] == {
        "method": "eagle3", "draft": "gpt-oss-120b-eagle3-lmsys", "num_speculative_tokens": 3,
    }  # fmt: skip
    assert {"tp_size": 2, "mem_fraction_static": 0.8}.items() <= found.profile["serve"].items()
    words = [word for flag in found.command for word in flag]
    assert words[:4] == ["python3", "-m", "sglang.launch_server", "--model-path"]
    assert {"--speculative-num-draft-tokens", "--speculative-eagle-topk"} <= set(words)
    assert "sk-secret" not in str(found)
    assert any("serve.sh passes it" in change.why for change in found.changes)


@pytest.mark.parametrize(
    ("words", "speculation"),
    [
        (
            "--speculative-algorithm eagle3 --speculative-draft-model-path x/y --speculative-num-steps 5"
            " --speculative-eagle-topk 8 --speculative-num-draft-tokens 32",
            {"method": "eagle3", "num_speculative_tokens": 5, "options": {"eagle_topk": 8, "num_draft_tokens": 32}},
        ),
        (
            "--speculative-algorithm NGRAM --speculative-num-draft-tokens 12",
            {"method": "ngram", "num_speculative_tokens": 11},
        ),
        ("--speculative-algorithm NEXTN", {"method": "nextn", "num_speculative_tokens": 3}),
        ("--speculative-algorithm EAGLE --speculative-num-steps 2", {"method": "nextn", "num_speculative_tokens": 2}),
        (
            "--speculative-algorithm NEXTN --speculative-draft-model-path Qwen/Qwen3.8-27B-FP8",
            {"method": "nextn", "num_speculative_tokens": 3},
        ),
        (
            "--speculative-algorithm STANDALONE --speculative-draft-model-path x/y --speculative-num-steps 4"
            " --speculative-eagle-topk 2 --speculative-num-draft-tokens 7",
            {"method": "standalone", "num_speculative_tokens": 4, "options": {"eagle_topk": 2, "num_draft_tokens": 7}},
        ),
        (
            "--speculative-algorithm DFLASH --speculative-draft-model z/w --speculative-num-draft-tokens 16",
            {"method": "dflash", "num_speculative_tokens": 15},
        ),
    ],
)
def test_what_it_drafts_with(words: str, speculation: dict[str, Any]) -> None:
    found = read(f"sglang serve --model-path Qwen/Qwen3.8-27B-FP8 {words}").profile["speculation"]
    assert {key: value for key, value in found.items() if key != "draft"} == speculation
    assert ("draft" in found) == (" x/y" in words or " z/w" in words)


@pytest.mark.parametrize(
    ("words", "steps", "verified"),
    [("", "3", "4"), (" --speculative-num-steps 5", "5", "6"), (" --speculative-num-draft-tokens 3", "2", "3")],
)
def test_its_three_numbers_stand_together_in_todays_command(words: str, steps: str, verified: str) -> None:
    found = read(f"sglang serve --model Qwen/Qwen3.8-27B-FP8 --speculative-algorithm NEXTN{words}")
    own = {flag[0]: flag[1] for flag in found.command if flag[0].startswith("--speculative-")}
    assert own == {
        "--speculative-algorithm": "NEXTN",
        "--speculative-num-steps": steps,
        "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": verified,
    }
    assert "options" not in found.profile["speculation"]
    assert [one for one in found.changes if one.kind == "chosen" and one.what.startswith("(no --speculative-")]


def test_what_would_end_it_is_said_of_a_pasted_command() -> None:
    found = read("sglang serve --model-path openai/gpt-oss-120b --speculative-algorithm EAGLE3")
    (why,) = [one.why for one in found.changes if one.what == "--speculative-algorithm EAGLE3"]
    assert why == "it exits at its start without a separate draft: --speculative-draft-model-path"


def test_flags_that_only_older_ones_had_become_those_of_today() -> None:
    found = read(
        "sglang serve --model-path Qwen/Qwen3-8B --cuda-graph-max-bs 8 --cuda-graph-bs 1 2 --stream-output"
        " --disable-piecewise-cuda-graph --enable-flashmla --enable-ep-moe --prefill-round-robin-balance"
    )
    words = [word for flag in found.command for word in flag]
    today = ["--cuda-graph-max-bs-decode 8", "--cuda-graph-bs-decode 1 2", "--incremental-streaming-output"]
    today += ["--cuda-graph-backend-prefill disabled", "--attention-backend flashmla"]
    assert [one for one in today if one not in " ".join(words)] == []
    assert found.left_out == []  # all that remained is in the list of today's flags
    gone = {change.what for change in found.changes if change.kind == "removed"}
    assert gone == {"--enable-ep-moe", "--prefill-round-robin-balance"}


def test_a_flag_that_it_would_ignore_is_named() -> None:
    found = read("SGLANG_ENABLE_SPEC_V2=1 sglang serve --model-path Qwen/Qwen3-8B --disable-cuda-graph")
    assert found.profile["serve"]["extra"] == ["--disable-cuda-graph"]
    assert [change.what for change in found.changes if change.kind == "removed"] == ["SGLANG_ENABLE_SPEC_V2=1"]
