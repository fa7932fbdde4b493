"""The real luggage: its size, and a server built from it without a network, for the CPU, that serves and drafts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.gpu import luggage, models
from tests.gpu.llama_build import build
from tests.support.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.processes, pytest.mark.alone]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("luggage")
    path = folder / "gpu-luggage.tar.xz"
    size = luggage.pack(path, PYTHON, folder / "work")
    print(f"packed: {size / 2**20:.1f} MiB")
    return path


def test_it_is_small_enough_to_be_lent(packed: Path) -> None:
    assert packed.stat().st_size < luggage.MOST_BYTES == 55 << 20


def test_it_builds_and_serves_from_an_empty_folder(packed: Path, tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("no g++")
    # pip gets --no-index; the compilers need no network.
    began = time.monotonic()
    folder = tmp_path / "luggage"
    luggage.unpack(packed, folder)
    programs = luggage.tools(folder, tmp_path / "tools")
    built = build(folder / "llama.cpp", tmp_path / "build", None, programs)
    print(f"unpacked and built in {time.monotonic() - began:.0f} s, of which the build {built.seconds:.0f} s")
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
