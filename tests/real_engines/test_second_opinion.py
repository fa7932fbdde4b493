"""Our client beside other people's, against the same server: throughput and TPOT within 3 %.

vLLM's comes with the engine and wants pandas beside it. GuideLLM and AIPerf are installed from the package index,
each in an environment of its own, and so run in the long series alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.cli import bench
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT
from tests.fakes.clock_server import clock_server
from tests.load.client_figures import READERS, Figures
from tests.load.other_clients import TOOLS, run_tool, work_of
from tests.support.engines import FIND_LINKS, KEPT, engine_home

pytestmark = pytest.mark.alone

PROMPTS, TOKENS, STREAMS = 16, 120, 4
KEY = "sk-second-opinion"
CLOCK = {"ttft_ms": 200, "interval_ms": 40, "tokens_per_chunk": 3, "tokens": TOKENS, "key": KEY}
# What vLLM's client reads its prompts with; numpy comes from the engine's environment.
PANDAS = ["pandas==2.3.3", "python-dateutil==2.9.0.post0", "pytz==2025.2", "tzdata==2025.2", "six==1.17.0"]
# AIPerf's clock runs from before its first request to after its last record: half a second of such a short run.
TRIES = 3
THROUGHPUT = {"vllm-bench": 0.03, "guidellm": 0.03, "aiperf": 0.08}


def made(name: str, packages: list[str], alone: list[str]) -> Path:
    """Make an environment of the tests, kept for the next run."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else shutil.which("uv")
    home = KEPT / f"client-{name}"
    # GuideLLM asks for torch: its small build will do.
    ensure_env(EnvRecipe(str(home), packages, alone, torch_backend="cpu"), uv, FIND_LINKS)
    return home


def vllm_home() -> Path:
    """An environment with the engine's packages and pandas: the engine's own stays as the catalogue says."""
    home, engine = made("vllm", [], PANDAS), engine_home("vllm")
    (packages,) = engine.glob("lib/python3*/site-packages")
    (own,) = home.glob("lib/python3*/site-packages")
    (own / "engine.pth").write_text(f"{packages}\n")
    program = home / "bin" / "vllm"
    program.write_text(f"#!{home}/bin/python\nfrom vllm.entrypoints.cli.main import main\n\nmain()\n")
    program.chmod(0o755)
    return home


def both(client: str, home: Path, folder: Path, figure: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our result and the other client's own file, once their numbers agree.

    They ask one after the other: a busy neighbour meets one of them. A client that reads a clock wrongly does so every
    time.
    """
    for attempt in range(TRIES):
        ours, theirs, document = measured(client, home, folder / str(attempt), figure)
        same = {
            "median_tpot_ms": pytest.approx(theirs["median_tpot_ms"], rel=0.03),
            "output_throughput": pytest.approx(theirs["output_throughput"], rel=THROUGHPUT[client]),
        }
        own = {name: ours[name] for name in same}
        if own == same:
            break
    assert own == same
    return ours, document


def measured(
    client: str, home: Path, folder: Path, figure: Callable[[str], None]
) -> tuple[dict[str, Any], Figures, dict[str, Any]]:
    """Our result, the other client's numbers and its own file, of the same requests one after the other."""
    folder.mkdir()
    with clock_server(**CLOCK) as server:
        words = [
            "--base-url", server.base_url, "--model", "clock",
            "--kind", "code", "--kind", "summarise", "--num-prompts", str(PROMPTS), "--num-warmups", "0",
            "--max-concurrency", str(STREAMS), "--output-tokens", str(TOKENS), "--result", str(folder / "ours.json"),
        ]  # fmt: skip
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench", *words],
            capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "OPENAI_API_KEY": KEY},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        given = bench.options().parse_args(words)
        endpoint, suite = bench.what_is_sent(given)
        work = work_of(suite, bench.step_from(given))
        asked = replace(endpoint, api_key=KEY)
        theirs, document = run_tool(client, home / "bin" / TOOLS[client].program, work, asked, folder / "other")
        bodies = [entry["request"] for entry in server.record()]
    ours: dict[str, Any] = json.loads((folder / "ours.json").read_text())
    for side in (ours, theirs):
        assert (side["completed"], side["total_output_tokens"]) == (PROMPTS, PROMPTS * TOKENS)
    # The same prompts, lengths and temperature from both.
    assert sorted(map(sent, bodies[:PROMPTS])) == sorted(map(sent, bodies[PROMPTS:]))
    for name in ("output_throughput", "median_tpot_ms", "median_ttft_ms", "median_e2el_ms"):
        figure(f"{name}: ours {ours[name]:.2f}, {client} {theirs[name]:.2f}")
    assert "TPOT ms" in done.stdout
    return ours, theirs, document


def sent(body: Any) -> tuple[str, int, float]:
    """What a request asks for: its text, its length and its temperature."""
    (message,) = body["messages"]
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return text, body.get("max_tokens") or body["max_completion_tokens"], body["temperature"]


def test_vllms_own_client(tmp_path: Path, figure: Callable[[str], None]) -> None:
    result, other = both("vllm-bench", vllm_home(), tmp_path, figure)
    # The field names are theirs, so that what reads their files reads ours.
    shared = {
        name
        for name in other
        if name.startswith(("mean_", "median_", "std_", "p99_", "total_", "output_", "request_t"))
    }
    assert shared <= set(result), shared - set(result)


@pytest.mark.parametrize("name", list(TOOLS))
def test_the_key_is_in_no_argument(name: str, tmp_path: Path) -> None:
    prompts = [{"id": "p", "messages": [{"role": "user", "content": "Tell me"}]}]
    suite = {"name": "s", "description": "s", "kinds": {"chat": {"output_tokens": 90, "prompts": prompts}}}
    endpoint = Endpoint("single", "http://127.0.0.1:1", "clock", KEY)
    call = TOOLS[name].call(work_of(suite, StepOptions()), endpoint, tmp_path)
    assert not [word for word in call.words if KEY in word]
    assert KEY not in repr(call)


def test_every_tool_has_a_reader() -> None:
    assert set(READERS) == set(TOOLS)


@pytest.mark.soak
@pytest.mark.parametrize("client", ["guidellm", "aiperf"])
def test_other_peoples_clients(client: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    both(client, made(client, [TOOLS[client].package], []), tmp_path, figure)
