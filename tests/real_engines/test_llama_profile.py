"""The GPU profile of llama.cpp, its very serve.sh, on the CPU build with small files in the models' places."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.engines import PROGRAMS, ask, engine_home, packaged_weights
from tests.support.ports import free_port
from tests.support.smoke import answer_of, smoke

PROFILE = "rtx4090-llama32-llamacpp-draft1b"
KEY = "a-key-of-the-tests"


@pytest.fixture(scope="module")
def resolved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("gpu-profile")
    site = {**site_of_inventory("workstation"), "home": str(home), "models_dir": str(home / "models")}
    return resolved_profile(PROFILE, {**site, "port": free_port()})


@pytest.fixture(scope="module")
def server(resolved: dict[str, Any]) -> Iterator[str]:
    home = Path(resolved["site"]["home"])
    for model in (resolved["target"], resolved["draft"]):
        Path(model["path"]).parent.mkdir(parents=True)
        Path(model["path"]).symlink_to(packaged_weights("smollm2-135m-q4"))
    key_file = Path(resolved["key_file"])
    key_file.parent.mkdir()
    key_file.write_text(KEY + "\n")
    programs = home / "bin"
    programs.mkdir()
    launcher = programs / "llama-server"
    launcher.write_text(f'#!/bin/sh\nexec {engine_home("llamacpp")}/bin/python {PROGRAMS}/llama-server "$@"\n')
    launcher.chmod(0o755)
    (script,) = resolved["arms"]["speculative"]["files"]
    path = home / script["path"]
    path.write_text(script["content"])
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            ["bash", str(path)], env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}, stdout=log, stderr=log
        )
        base = f"http://127.0.0.1:{resolved['site']['port']}"
        try:
            for _ in range(4800):
                if ask(f"{base}/health")[0] == 200:
                    break
                assert process.poll() is None, (home / "log").read_text()
                time.sleep(0.1)
            yield base
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def test_its_flags_are_accepted_and_its_draft_drafts(resolved: dict[str, Any], server: str, tmp_path: Path) -> None:
    done = smoke(resolved, tmp_path, server, KEY)
    assert answer_of(done)
    metrics = ask(f"{server}/metrics", key=KEY)[1]
    drafted = [line for line in metrics.splitlines() if line.startswith("llamacpp:spec_decode_num_draft_tokens_total")]
    assert float(drafted[0].split()[-1]) > 0


def test_what_smoke_says_when_something_is_wrong(resolved: dict[str, Any], server: str, tmp_path: Path) -> None:
    without = smoke(resolved, tmp_path, server, None)
    assert without.returncode == 2
    assert "found: no key" in without.stderr
    refused = smoke(resolved, tmp_path, server, "another")
    assert refused.returncode == 1
    assert "Invalid API Key" in refused.stderr
    assert "needed: an answer from" in refused.stderr
    absent = smoke(resolved, tmp_path, f"http://127.0.0.1:{free_port()}", KEY)
    assert absent.returncode == 1
    assert "found: " in absent.stderr
    for done in (without, refused, absent):
        assert KEY not in done.stdout + done.stderr
