"""drafthouse bench as a person uses it, against a real server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from drafthouse.core.exit_codes import FAILED, WARNED
from tests.fakes.clock_server import clock_server
from tests.support.verb import called

pytestmark = pytest.mark.processes

BENCH = Path(__file__).resolve().parents[3] / "scripts" / "bench.py"
QUICK = {"ttft_ms": 5, "interval_ms": 2, "tokens": 60}
KEY = "sk-very-secret"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}


def program(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH), *argv]
    return subprocess.run(command, capture_output=True, text=True, env=environment() | env, timeout=180, check=False)


def bench(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    with mock.patch.dict(os.environ, environment() | env, clear=True):
        return called("bench", *argv)


def test_the_example_of_its_help(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(ttft_ms=50, interval_ms=10, tokens=120, metrics="vllm", drafted=4) as server:
        done = program(
            "--base-url", server.base_url, "--model", "clock", "--num-prompts", "10",
            "--max-concurrency", "4", "--output-tokens", "120", "--result", str(out),
        )  # fmt: skip
        assert server.most_running() == 4
        asked = [entry["request"] for entry in server.record()]
    assert done.returncode == 0, done.stderr
    assert len(asked) == 14  # one warm-up a stream
    assert {request["max_tokens"] for request in asked[4:]} == {120}
    assert len({json.dumps(request["messages"]) for request in asked}) == 14
    result = json.loads(out.read_text())
    assert (result["num_prompts"], result["completed"], result["max_concurrency"]) == (10, 10, 4)
    assert result["total_output_tokens"] == 1200
    assert result["median_tpot_ms"] == pytest.approx(39 * 10 / 119, rel=0.2)
    assert result["spec_decode_acceptance_rate"] == 50.0
    assert len(result["requests"]) == 10
    assert done.stdout.splitlines()[0].startswith("clock: 10 requests measured, 4 at a time")
    assert "50.0 %" in done.stdout
    # Not a terminal: a line now and then, and no control characters.
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("measure: 10/10")
    assert len(lines) <= 4
    assert "\x1b" not in done.stderr


def test_each_kind_is_measured_by_itself_without_a_number() -> None:
    with clock_server(**QUICK) as server:
        done = bench("--base-url", server.base_url, "--model", "clock", "--kind", "chat", "--kind", "code")
        assert server.most_running() == 1
        temperatures = {entry["request"]["temperature"] for entry in server.record()}
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if "8/8" in line or "16/16" in line]
    assert rows == [["chat", "8/8"], ["code", "8/8"], ["all", "16/16"]]
    assert temperatures == {0}


def test_a_program_gets_json_alone() -> None:
    with clock_server(**QUICK) as server:
        words = ("--base-url", server.base_url, "--model", "clock", "--kind", "chat", "--num-prompts", "2", "--json")
        done = bench(*words)
        ladder = bench(*words, "--ladder", "1", "--time", "1")
    assert (done.returncode, ladder.returncode) == (0, 0)
    assert json.loads(done.stdout)["completed"] == 2
    assert "2 requests measured" in done.stderr
    assert json.loads(ladder.stdout)["schema"] == "drafthouse.ladder/1"


def test_ones_own_prompts(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps({"messages": [{"role": "user", "content": text}]}) + "\n" for text in "ab"))
    with clock_server(**QUICK) as server:
        done = bench(
            "--base-url", server.base_url, "--model", "clock", "--suite", str(own), "--num-warmups", "0",
            "--temperature", "0.7", "--ignore-eos", "--seed", "5", "--rounds", "2",
        )  # fmt: skip
        asked = [entry["request"] for entry in server.record()]
    assert done.returncode == 0, done.stderr
    assert [request["messages"][0]["content"] for request in asked] == ["a", "b", "a", "b"]
    assert {(request["temperature"], request["ignore_eos"], request["max_tokens"]) for request in asked} == {
        (0.7, True, 256)
    }
    assert "own@0.7" in done.stdout


def test_more_prompts_than_a_suite_has_are_synthetic_and_that_is_said(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(ttft_ms=1, interval_ms=0.1, tokens=6) as server:
        done = bench(
            "--base-url", server.base_url, "--model", "clock", "--num-prompts", "512", "--max-concurrency", "32",
            "--num-warmups", "0", "--seed", "7", "--result", str(out),
        )  # fmt: skip
        asked = [entry["request"] for entry in server.record()]
    assert done.returncode == 0, done.stderr
    assert len({json.dumps(request["messages"]) for request in asked}) == len(asked) == 512
    result = json.loads(out.read_text())
    (note,) = result["notes"]
    assert note.startswith(
        "212 of the 512 prompts are synthetic (seed 7), since the suite 'mixed' has 300: copy-edit 43"
    )
    assert (result["num_prompts"], list(result["groups"])) == (512, ["mixed"])
    assert f"Note: {note}." in done.stdout.splitlines()


def test_a_file_of_another_tool_and_its_notes(tmp_path: Path) -> None:
    file, out = tmp_path / "data.txt", tmp_path / "out.json"
    questions = [{"question_id": n, "category": ("math", "qa")[n % 2], "turns": [f"q{n}", "and?"]} for n in range(4)]
    file.write_text("".join(json.dumps(question) + "\n" for question in questions))
    with clock_server(**QUICK) as server:
        common = ["--base-url", server.base_url, "--model", "clock", "--suite", str(file), "--num-warmups", "0"]
        done = bench(*common, "--result", str(out))
        text = bench(*common, "--dataset-format", "text", "--num-prompts", "1")
        few = bench(*common, "--num-prompts", "5")
        asked = [entry["request"]["messages"][0]["content"] for entry in server.record()]
    assert (done.returncode, text.returncode, few.returncode) == (0, 0, FAILED), done.stderr
    assert asked == ["q0", "q2", "q1", "q3", json.dumps(questions[0])]
    assert list(json.loads(out.read_text())["groups"]) == ["math", "qa"]
    assert "4 questions have further turns: only the first one is sent." in done.stdout
    assert "needed: 4 or fewer, as many as the suite has" in few.stderr


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many"])
def test_a_number_of_prompts_is_1_or_more(number: str) -> None:
    done = bench("--base-url", "http://127.0.0.1:1", "--model", "m", "--num-prompts", number)
    assert done.returncode == 2
    assert "found: --num-prompts" in done.stderr


def test_some_failures_are_said_first_and_are_a_warning() -> None:
    with clock_server(**QUICK, fail_every=3) as server:
        done = bench("--base-url", server.base_url, "--model", "clock", "--num-prompts", "9", "--num-warmups", "0")
    assert done.returncode == WARNED
    assert done.stdout.splitlines()[:2] == [
        "3 of 9 requests did not succeed: 3 failed.",
        "  first failed: chat-sleep: HTTP 500: the server made this up",
    ]


@pytest.mark.parametrize("clock", [{"fail_every": 1}, {"usage": "never"}, {"quiet_cut_every": 1}])
def test_nothing_measured_is_an_error(clock: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(**QUICK | clock) as server:
        done = bench(
            "--base-url", server.base_url, "--model", "clock", "--num-prompts", "2", "--num-warmups", "0",
            "--result", str(out),
        )  # fmt: skip
    assert done.returncode == FAILED
    assert done.stdout.startswith("2 of 2 requests did not succeed: 2 ")
    assert json.loads(out.read_text())["completed"] == 0


def test_the_key_comes_from_the_environment_or_a_file_and_goes_nowhere(tmp_path: Path) -> None:
    file, out = tmp_path / "key", tmp_path / "out.json"
    file.write_text(f"{KEY}\n")
    with clock_server(**QUICK, key=KEY, metrics="llamacpp", metrics_key=KEY, drafted=3) as server:
        common = ("--base-url", f"{server.base_url}/v1", "--model", "clock", "--num-prompts", "2", "--result", str(out))
        from_env = program(*common, OPENAI_API_KEY=KEY)
        from_file = bench(*common, "--api-key-file", str(file))
        without = bench(*common)
        wrong = bench(*common, OPENAI_API_KEY="sk-wrong")
        no_file = bench(*common, "--api-key-file", str(tmp_path / "none"))
    for done in (from_env, from_file):
        assert done.returncode == 0, done.stderr
        assert KEY not in done.stdout + done.stderr + out.read_text()
        assert json.loads(out.read_text())["spec_decode_source"] == "metrics"
    assert [done.returncode for done in (without, wrong, no_file)] == [FAILED] * 3
    assert "found: HTTP 401" in without.stderr
    assert "sk-wrong" not in wrong.stdout + wrong.stderr


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["--base-url", "127.0.0.1:1"], "where: --base-url"),
        (["--base-url", "http://127.0.0.1:1"], "Cannot connect to host 127.0.0.1:1"),
        (["--base-url", "http://127.0.0.1:1", "--suite", "mixd"], "do: write 'mixed'"),
        (["--base-url", "http://127.0.0.1:1", "--suite", "none.jsonl"], "found: no such file"),
        (["--base-url", "http://127.0.0.1:1", "--kind", "chats"], "do: write 'chat'"),
        (["--base-url", "http://127.0.0.1:1", "--result", "no/such/folder/x.json"], "where: --result"),
    ],
)
def test_problems_are_found_needed_do(argv: list[str], found: str) -> None:
    done = bench("--model", "clock", *argv)
    assert done.returncode == FAILED
    assert found in done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()][-4:] == ["found", "needed", "do", "code"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("at_a_time", ["1", "3"])
def test_ctrl_c_shows_and_writes_what_is_done(tmp_path: Path, at_a_time: str) -> None:
    out = tmp_path / "out.json"
    # Into the second kind: the first one, of eight prompts, is whole.
    first = 8 + 2 * int(at_a_time) + 3
    with clock_server(ttft_ms=60, interval_ms=10, tokens=60, metrics="vllm", drafted=3, holds_from=first) as server:
        words = ["--base-url", server.base_url, "--model", "clock", "--kind", "chat", "--kind", "code"]
        command = [sys.executable, str(BENCH), *words, "--max-concurrency", at_a_time, "--result", str(out)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 120
        while len(server.record()) < first + int(at_a_time) - 1:
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert told.splitlines()[-1] == "stopped; what had ended by then is above, marked as incomplete"
    assert said.startswith("Incomplete: the run was stopped early.")
    result = json.loads(out.read_text())
    assert result["incomplete"] is True
    assert 8 < result["completed"] == len(result["requests"]) < 16
    assert result["groups"]["chat"]["completed"] == 8
    assert {request["status"] for request in result["requests"]} == {"ok"}
    assert result["output_throughput"] > 0


def test_ctrl_c_before_the_first_answer_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(ttft_ms=20_000) as server:
        command = [sys.executable, str(BENCH), "--base-url", server.base_url, "--model", "clock", "--result", str(out)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 120
        while not server.record():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=120)
    assert (process.returncode, said, out.exists()) == (130, "", False)
    assert told.splitlines()[-1] == "stopped before the first request had ended; nothing was written"


def test_a_wrong_option_is_code_2() -> None:
    done = bench("--base-url", "http://127.0.0.1:1", "--model", "m", "--max-concurrency", "0")
    assert done.returncode == 2
    assert "0 is not 1 or more" in done.stderr
