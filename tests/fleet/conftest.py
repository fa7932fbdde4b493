"""A clone with profiles of the tests' own, hosts that are namespaces, and `site.yml` on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import Ended, play, play_in
from tests.fleet.namespaces import SUBNET, Host, hosts
from tests.support.engines import engine_home, packaged_weights

PORT = 8431
_COPIED = ("benchmarks", "collections", "inventory", "playbooks", "profiles", "roles", "src", "templates")
_LANE = ROOT / ".cache"
_MADE_ONCE = ("engines", "uv", "venv")
_FILES = ("ansible.cfg", "site.yml")
_TARGET = "smollm2-135m-12h"


def _profile(name: str, **serve: Any) -> dict[str, Any]:
    """A profile over two hosts: as little as a verdict needs."""
    return {
        "title": f"SmolLM2-135M over two hosts, {name}",
        "hardware": "cpu-small",
        "engine": "vllm",
        "runtimes": ["process"],
        "target": _TARGET,
        "speculation": {
            "method": "ngram",
            "num_speculative_tokens": 8,
            "options": {"prompt_lookup_min": 2, "prompt_lookup_max": 4},
        },
        "serve": {"max_model_len": 2048, "max_num_seqs": 8, "dtype": "bfloat16", "enforce_eager": True, **serve},
        "experiment": {
            "suites": ["mixed"],
            "kinds": ["copy-edit"],
            "prompts_per_kind": {"declared": 6, "others": 1},
            "max_output_tokens": 48,
            "rounds": 2,
            "budget": 0,
        },
    }


PROFILES = {
    "two-hosts-tp": _profile("split", tensor_parallel_size=2),
    "two-hosts-dp": _profile("a copy on each", data_parallel_size=2),
    # vLLM for CPU refuses Ray: this one has the platform of a shim (`ray_on_cpu/`).
    "two-hosts-ray-shim": {
        **_profile("split, on Ray through a shim", tensor_parallel_size=2),
        "environment": {"PYTHONPATH": str(ROOT / "tests" / "fleet" / "ray_on_cpu")},
    },
}


@pytest.fixture(scope="session")
def widened() -> Path:
    """The small model with 12 heads over 4, which two hosts can share; its own logits are the same."""
    engine = engine_home("vllm")
    plain, wider = (ROOT / ".cache" / "engines" / f"smollm2-135m-{name}" for name in ("hf", "12h"))
    if not (wider / "done").exists():
        for folder in (plain, wider):
            shutil.rmtree(folder, ignore_errors=True)
        python = str(engine / "bin" / "python")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        convert = [python, str(engine / "bin" / "gguf-to-hf"), str(packaged_weights("smollm2-135m-q4")), str(plain)]
        widen = [python, str(ROOT / "tests" / "fleet" / "widen_heads.py"), str(plain), str(wider)]
        for words in (convert, widen):
            subprocess.run(words, check=True, env=environment, timeout=1800)
        (wider / "done").touch()
    return wider


@dataclass(frozen=True)
class Pair:
    """Two hosts, the head first, the clone that works on them, and the folder below which each has its home."""

    hosts: list[Host]
    clone: Path
    folder: Path

    def home(self, host: Host) -> Path:
        return self.folder / host.name / "home"

    def play(self, playbook: str, *words: str, **variables: Any) -> Ended:
        """Run a playbook of the clone on both."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ANSIBLE_CONNECTION_PLUGINS", str(ROOT / "tests" / "fleet" / "connection"))
            return play_in(self.clone, "inventory/pair", playbook, words, variables)


@pytest.fixture(scope="session")
def pair(widened: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Make two hosts, which reach nobody else: what they would install is linked from the lane's own home."""
    ready = play(
        "site.yml",
        "--tags",
        "host",
        profile="cpu-smollm2-vllm-ngram",
        drafthouse_home=str(_LANE),
        drafthouse_models_dir=str(_LANE / "models"),
    )
    assert ready.status == 0, ready.output[-3000:]
    folder = tmp_path_factory.mktemp("fleet")
    clone = folder / "clone"
    for name in _COPIED:
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(ROOT / name, clone / name)
    model = {
        **yaml.safe_load((ROOT / "profiles" / "catalog" / "models.yml").read_text("utf-8"))["smollm2-135m-hf"],
        "name": "SmolLM2-135M-Instruct, with one KV group of zeros more",
        "source": {"path": str(widened)},
        "weight_bytes": (widened / "model.safetensors").stat().st_size,
        "heads": 12,
        "kv_heads": 4,
    }
    (clone / "profiles" / "catalog" / "local").mkdir(exist_ok=True)
    (clone / "profiles" / "catalog" / "local" / f"{_TARGET}.yml").write_text(yaml.safe_dump({_TARGET: model}), "utf-8")
    for name, profile in PROFILES.items():
        (clone / "profiles" / f"{name}.yml").write_text(yaml.safe_dump(profile, sort_keys=False), "utf-8")
    with hosts(2) as found:
        made = Pair(found, clone, folder)
        for host in found:
            made.home(host).mkdir(parents=True)
            for name in _MADE_ONCE:
                (made.home(host) / name).symlink_to(_LANE / name)
        _write_inventory(made)
        yield made
        made.play("playbooks/stop.yml", profile="two-hosts-tp")


def _write_inventory(pair: Pair) -> None:
    """Write the inventory: as a person's, but for the way into the hosts."""
    entries = {}
    for core, host in enumerate(pair.hosts):
        # Each has a core of its own; both would take the first otherwise.
        enter = host.enter(VLLM_CPU_OMP_THREADS_BIND=str(core), VLLM_CPU_NUM_OF_RESERVED_CPU="0")
        entries[host.name] = {
            "ansible_connection": "netns",
            "netns_enter": enter,
            "ansible_python_interpreter": str(Path(sys.executable).resolve()),
            "drafthouse_home": str(pair.home(host)),
            "drafthouse_models_dir": str(pair.home(host) / "models"),
        }
    settings = {
        "drafthouse_manage_host": False,
        "drafthouse_runtime": "process",
        "drafthouse_host": "127.0.0.1",
        "drafthouse_port": PORT,
        "drafthouse_hosts_per_replica": 2,
        "drafthouse_private_subnet": SUBNET,
    }
    folder = pair.clone / "inventory" / "pair"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": entries}}, sort_keys=False), "utf-8")
    (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(settings), "utf-8")
