"""drafthouse bench with a ladder, as a person uses it: in a process of its own, stopped, killed, and gone on with."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.fakes.clock_server import Running, clock_server
from tests.unit.cli.test_bench import BENCH
from tests.unit.cli.test_bench import program as bench

QUICK = {"ttft_ms": 5, "interval_ms": 2, "tokens": 30, "metrics": "vllm"}
KEY = "sk-very-secret"
TRIES = 3


def words(server: Running, *more: str) -> list[str]:
    return ["--base-url", server.base_url, "--model", "clock", "--kind", "chat", "--num-prompts", "4", *more]


def started(server: Running, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(BENCH), *words(server, *more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def steps_of(path: Path) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads(path.read_text())["steps"] if path.exists() else []
    return steps


def wait_for(path: Path, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until so many steps are kept."""
    until = time.monotonic() + 120
    while len(steps_of(path)) < number:
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)


def test_levels_and_their_table(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(**QUICK, drafted=4, key=KEY) as server:
        done = bench(
            *words(server, "--ladder", "1,3", "--time", "0.5", "--limit-ttft", "1000", "--result", str(out)),
            OPENAI_API_KEY=KEY,
        )  # fmt: skip
        assert server.most_running() == 3
    assert done.returncode == 0, done.stderr
    ladder = json.loads(out.read_text())
    assert (ladder["schema"], ladder["load"], ladder["levels"]) == ("drafthouse.ladder/1", "closed", [1, 3])
    assert [(step["level"], step["arm"], step["status"]) for step in ladder["steps"]] == [
        (1, "single", "ok"), (3, "single", "ok"),
    ]  # fmt: skip
    table = done.stdout.splitlines()
    assert table[0].split()[:3] == ["at", "once", "requests"]
    assert [line.split()[0] for line in table[1:3]] == ["1", "3"]
    assert "50.0 %" in table[1]
    # Not a terminal: a line for each step, and nothing that moves a cursor.
    lines = [line for line in done.stderr.splitlines() if "concurrent requests" in line]
    assert len(lines) == 2
    assert "\x1b" not in done.stderr
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert KEY not in done.stdout + done.stderr
    assert not any(KEY.encode() in data for data in kept)


def test_an_open_loop_and_a_single_level() -> None:
    with clock_server(**QUICK) as server:
        opened = bench(*words(server, "--rate", "20", "--time", "0.5"))
        single = bench(*words(server, "--time", "0.5", "--max-concurrency", "2"))
        assert server.most_running() >= 2
    assert (opened.returncode, single.returncode) == (0, 0), opened.stderr + single.stderr
    assert opened.stdout.startswith("a second")
    assert single.stdout.splitlines()[1].split()[0] == "2"


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with clock_server(**QUICK) as server:
        for number in range(TRIES):
            out = tmp_path / f"{number}.json"
            options = ["--ladder", "1,2,3", "--time", "1.5", "--narrow", "0.0001", "--result", str(out)]
            process = started(server, *options)
            wait_for(out, 1, process)
            first = steps_of(out)[0]
            server.reset()
            until = time.monotonic() + 120
            while sum("[1.2." in str(one["request"]) for one in server.record()) < 4:
                assert time.monotonic() < until
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            said, told = process.communicate(timeout=120)
            if process.returncode == 130 and steps_of(out)[1]["status"] != "ok":
                break
            # It came after the step of a second and a half: this machine stood still meanwhile.
        assert process.returncode == 130
        assert "Traceback" not in told
        assert told.splitlines()[-1].startswith("stopped; what was measured is above; the same command measures")
        kept = steps_of(out)
        assert kept[0] == first
        assert [(step["level"], step["status"], step["ended_by"]) for step in kept[1:]] == [
            (2, "incomplete", "stopped")
        ]
        # The requests that had ended are in it, and in the table.
        assert kept[1]["completed"] > 0
        assert said.splitlines()[2].endswith("stopped")
        server.reset()
        again = bench(*words(server, *options))
        assert not any("[1.1." in str(one["request"]) for one in server.record())
    assert again.returncode == 0, again.stderr
    assert [(step["level"], step["status"]) for step in steps_of(out)] == [(1, "ok"), (2, "ok"), (3, "ok")]
    assert steps_of(out)[0] == first


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(**QUICK) as server:
        options = ["--ladder", "1,2", "--time", "1", "--narrow", "0.0001", "--result", str(out)]
        process = started(server, *options)
        wait_for(out, 1, process)
        process.kill()
        process.communicate(timeout=120)
        first = steps_of(out)
        again = bench(*words(server, *options))
        other = bench(*words(server, *options, "--temperature", "0.5"))
    assert again.returncode == 0, again.stderr
    assert steps_of(out)[: len(first)] == first
    assert [step["level"] for step in steps_of(out)] == [1, 2]
    # Other settings are another ladder: the file is not mixed, and not written over.
    assert other.returncode == 2
    assert "code: ladder-of-other-settings" in other.stderr


def test_bad_steps_are_measured_again_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    with clock_server(**QUICK) as server:
        options = ["--ladder", "1,2,3", "--time", "0.4", "--result", str(out)]
        assert bench(*words(server, *options)).returncode == 0
        first = json.loads(out.read_text())
        for step, status in zip(first["steps"], ("polluted", "ok", "broken"), strict=True):
            step["status"] = status
        out.write_text(json.dumps(first))
        server.reset()
        assert bench(*words(server, *options)).returncode == 0
        assert server.record() == []
        done = bench(*words(server, *options, "--again"))
    assert done.returncode == 0, done.stderr
    steps = {step["level"]: step for step in steps_of(out)}
    assert {level: step["status"] for level, step in steps.items()} == {1: "ok", 2: "ok", 3: "ok"}
    assert steps[2] == first["steps"][1]
    assert steps[1]["started_unix_s"] > first["steps"][0]["started_unix_s"]


def test_the_table_grows_in_a_terminal() -> None:
    master, terminal = pty.openpty()
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                return
            seen.extend(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with clock_server(**QUICK) as server:
        command = [sys.executable, str(BENCH), *words(server, "--ladder", "1,2", "--time", "1.2")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.read()
    os.close(terminal)
    reader.join(120)
    os.close(master)
    assert process.returncode == 0
    text = seen.decode()
    assert "steps, about" in text
    assert "s left" in text
    assert "now: 2, chat, single, round 1" in text or "now: 2, mixed, single, round 1" in text
    # Drawn over itself, and taken away at the end: the table that stays is on standard output.
    assert text.count("\x1b[J") >= 2
    assert text.rstrip().endswith("\x1b[J")
    assert said.startswith("at once")
