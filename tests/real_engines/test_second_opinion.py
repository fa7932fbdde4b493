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
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.external.formats import TOOLS
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT
from tests.fakes.clock_server import clock_server
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
    """Return an environment with the engine's packages and pandas: the engine's own stays as the catalogue says."""
    home, engine = made("vllm", [], PANDAS), engine_home("vllm")
    (packages,) = engine.glob("lib/python3*/site-packages")
    (own,) = home.glob("lib/python3*/site-packages")
    (own / "engine.pth").write_text(f"{packages}\n")
    program = home / "bin" / "vllm"
    program.write_text(f"#!{home}/bin/python\nfrom vllm.entrypoints.cli.main import main\n\nmain()\n")
    program.chmod(0o755)
    return home


def opinion(client: str, home: Path, folder: Path, figure: Callable[[str], None]) -> dict[str, Any]:
    """Run drafthouse bench with another client, hold the two against each other, and return the result.

    They ask one after the other: a busy neighbour meets one of them. Who reads a clock wrongly does so every time.
    """
    for _ in range(TRIES):
        result, sides = asked_twice(client, home, folder, figure)
        ours, theirs = sides["ours"], sides[client]
        same = {
            "median_tpot_ms": pytest.approx(theirs["median_tpot_ms"], rel=0.03),
            "output_throughput": pytest.approx(theirs["output_throughput"], rel=THROUGHPUT[client]),
        }
        own = {name: ours[name] for name in same}
        if own == same:
            break
    assert own == same
    return result


def asked_twice(
    client: str, home: Path, folder: Path, figure: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run it once, and return the result with the numbers of both sides."""
    for kept in folder.iterdir():
        kept.unlink()
    with clock_server(**CLOCK) as server:
        done = subprocess.run(
            [
                sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench",
                "--base-url", server.base_url, "--model", "clock",
                "--kind", "code", "--kind", "summarise", "--num-prompts", str(PROMPTS), "--num-warmups", "0",
                "--max-concurrency", str(STREAMS), "--output-tokens", str(TOKENS),
                "--result", str(folder / "ours.json"),
                "--client", client, "--client-home", str(home), "--client-keep", str(folder),
            ],
            capture_output=True, text=True, timeout=1800, check=False, env={**os.environ, "OPENAI_API_KEY": KEY},
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result: dict[str, Any] = json.loads((folder / "ours.json").read_text())
    (sides,) = result["second_opinion"]["groups"].values()
    assert {side["completed"] for side in sides.values()} == {PROMPTS}
    assert {side["total_output_tokens"] for side in sides.values()} == {PROMPTS * TOKENS}
    for name in ("output_throughput", "median_tpot_ms", "median_ttft_ms", "median_e2el_ms"):
        figure(f"{name}: " + ", ".join(f"{side} {numbers[name]:.2f}" for side, numbers in sides.items()))
    assert KEY not in done.stdout + done.stderr + json.dumps(result)
    assert "TPOT ms, median" in done.stdout
    return result, sides


def test_vllms_own_client(tmp_path: Path, figure: Callable[[str], None]) -> None:
    result = opinion("vllm-bench", vllm_home(), tmp_path, figure)
    # The field names are theirs, so that what reads their files reads ours.
    (file,) = tmp_path.glob("vllm-bench-*.json")
    other = json.loads(file.read_text())
    shared = {
        name
        for name in other
        if name.startswith(("mean_", "median_", "std_", "p99_", "total_", "output_", "request_t"))
    }
    assert shared <= set(result), shared - set(result)


@pytest.mark.soak
@pytest.mark.parametrize("client", ["guidellm", "aiperf"])
def test_other_peoples_clients(client: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    opinion(client, made(client, [TOOLS[client].package], []), tmp_path, figure)
