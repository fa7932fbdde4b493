"""What vLLM answers without its key: the routes of three versions against the catalogue, and a whole answer."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drafthouse.operate.doctor.paths import ask_paths
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.exposure import NAMED, exposed, open_paths
from drafthouse.profiles.workspace import ROOT
from drafthouse.weights.demo.recipes import gguf_to_hf
from tests.real_engines.vllm_servers import vllm_server
from tests.support.engines import READY_S, ask, check_home, engine_home, packaged_weights
from tests.support.ports import free_port

KEY = "key-of-the-test-0123456789"
PROGRAM = Path(__file__).with_name("routes_server.py")
VLLM = load_catalog(ROOT).engines["vllm"]


@contextmanager
def routes(version: str, **environment: str) -> Iterator[str]:
    """Serve the routes of that vLLM with its own key in front of them."""
    port = free_port()
    words = [str(check_home(version) / "bin" / "python"), str(PROGRAM), str(port)]
    given = {**os.environ, "VLLM_API_KEY": KEY, "VLLM_NO_USAGE_STATS": "1", **environment}
    with subprocess.Popen(words, env=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + READY_S
            while not ask(f"http://127.0.0.1:{port}/openapi.json")[0]:
                assert process.poll() is None, process.communicate()[1][-2000:]
                assert time.monotonic() < end
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


OLDER = [pytest.param(version, marks=pytest.mark.soak) for version in ("0.15.1", "0.9.2")]


@pytest.mark.parametrize("version", ["0.32.0", *OLDER])
def test_the_catalogue_has_what_each_version_leaves_open(version: str) -> None:
    facts = open_paths(VLLM, version)
    with routes(version) as url:
        found = ask_paths(facts, url, KEY)
        # Its guard does not look at the method: what PATCH tells holds for POST.
        assert ask(f"{url}/v1/chat/completions", {})[0] == 401
        assert ask(f"{url}/invocations", {})[0] not in (401, 403, 404)
    assert found["error"] == ""
    assert {one["path"] for one in found["open"]} == {one["path"] for one in facts["routes"] if one["open"]}
    assert {one["status"] for one in exposed(found["open"], NAMED)} <= {200, 405}
    assert "" not in {one["gives"] for one in found["open"]}


@pytest.mark.soak
def test_what_development_mode_opens_is_found_by_its_list() -> None:
    with routes("0.32.0", VLLM_SERVER_DEV_MODE="1") as url:
        found = ask_paths(open_paths(VLLM, "0.32.0"), url, KEY)
    more = {one["path"] for one in exposed(found["open"], NAMED) if not one["gives"]}
    assert {"/sleep", "/collective_rpc", "/reset_prefix_cache", "/server_info"} <= more


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "smollm2-135m-hf"
    gguf_to_hf(str(packaged_weights("smollm2-135m-q4")), str(folder), str(engine_home("vllm") / "bin" / "python"))
    return folder


@pytest.mark.soak
def test_without_the_key_it_computes(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hole itself, with the real engine; and the doctor's questions leave it as it was."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    body = {"model": "smol", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
    with vllm_server(target) as url:
        assert ask(f"{url}/v1/chat/completions", body)[0] == 401
        status, text = ask(f"{url}/invocations", body)
        assert status == 200
        assert json.loads(text)["usage"]["completion_tokens"] == 8

        def generated() -> str:
            lines = ask(f"{url}/metrics")[1].splitlines()
            return next(line for line in lines if line.startswith("vllm:generation_tokens_total"))

        before = generated()
        found = ask_paths(open_paths(VLLM, "0.32.0"), url, KEY)
        assert {"/invocations", "/tokenize", "/metrics"} <= {one["path"] for one in exposed(found["open"], NAMED)}
        assert generated() == before
        assert ask(f"{url}/v1/chat/completions", body, KEY)[0] == 200
