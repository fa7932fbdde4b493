"""The real luggage: its size, and a server built from it without a network, for the CPU, that serves and drafts."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.gpu import luggage, models
from tests.gpu.llama_build import Built
from tests.support.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.alone]


def test_it_is_small_enough_to_be_lent(packed: Path) -> None:
    assert packed.stat().st_size < luggage.MOST_BYTES == 55 << 20


def test_it_builds_and_serves_from_an_empty_folder(built: Built, tmp_path: Path) -> None:
    files = models.make(tmp_path / "models", models.SMALL, "F16")
    port = free_port()
    words = [str(built.program), "-m", str(files["target"]), "--port", str(port), "-np", "1", "-c", "2048"]
    words += ["--spec-type", "draft-simple", "--spec-draft-model", str(files["draft"]), "--spec-draft-n-max", "4"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        try:
            answer = _asked(port, server)
        finally:
            server.terminate()
            server.wait(30)
    timings = answer["timings"]
    assert timings["predicted_n"] == 32
    # The same function as its draft: what is drafted is accepted.
    assert timings["draft_n_accepted"] > 0.8 * timings["draft_n"] > 0


def _asked(port: int, server: subprocess.Popen[bytes]) -> dict[str, dict[str, float]]:
    body = {"messages": [{"role": "user", "content": "copy this"}], "max_tokens": 32, "temperature": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    while True:
        assert server.poll() is None
        try:
            with urllib.request.urlopen(request, timeout=300) as reply:
                answer: dict[str, dict[str, float]] = json.load(reply)
                return answer
        except OSError:  # it still loads
            time.sleep(0.5)
