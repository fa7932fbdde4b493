"""Exports as the tools themselves read them, and broken ones, which the tools' parsers refuse.

Each parser has an environment of its own from a lock with hashes, kept in .cache/parsers, and runs once for all files.
Nothing is applied to a cloud or a cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.requirement_lines import read_lock
from drafthouse.export.targets import TARGETS, exported
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT
from tests.support import exports
from tests.support.hostile_exports import HOSTILE, order_with

HERE = Path(__file__).parent
KEPT = ROOT / ".cache" / "parsers"
PARSERS = {"skypilot": "skypilot-0.14.1", "dstack": "dstack-0.22.5", "kubernetes": "kubernetes-validate-1.37.0"}
CHART_SCHEMA = "DRAFTHOUSE_CHART_SCHEMA"
QUADLET = next((path for path in ("/usr/libexec/podman/quadlet", "/usr/lib/podman/quadlet") if Path(path).exists()), "")


@dataclass(frozen=True)
class Broken:
    """A change to the export of one profile that the tool's own parser refuses."""

    target: str
    old: str
    new: str

    @property
    def text(self) -> str:
        whole = exports.text(exports.QWEN, self.target)
        assert self.old in whole, self.old
        return whole.replace(self.old, self.new, 1)

    @property
    def name(self) -> str:
        return f"{self.target}: {self.old.strip()[:40]} -> {self.new.strip()[:40] or 'nothing'}"


BROKEN = [
    Broken("skypilot", "replica_policy:", "replica_polcy:"),
    Broken("skypilot", "load_balancing_policy: least_load", "load_balancing_policy: fastest"),
    Broken("skypilot", "initial_delay_seconds: 2400", "initial_delay_seconds: soon"),
    Broken("dstack", "metric: rps", "metric: tps"),
    Broken("dstack", "port: 8000\n", ""),
    Broken("dstack", "replicas: 1..4", "replicass: 1..4"),
    Broken("kubernetes", "containerPort: 8000", "containerPort: http"),
    Broken("kubernetes", "readinessProbe:", "readynessProbe:"),
]


def environment_of(tool: str) -> Path:
    """The Python of a parser's environment, made unless it is there."""
    lock = HERE / "locks" / f"{PARSERS[tool]}.txt"
    home = KEPT / PARSERS[tool]
    recipe = EnvRecipe(str(home), no_deps_packages=read_lock(lock.read_text("utf-8")))
    ensure_env(recipe, str(Path(sys.executable).with_name("uv")))
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str | None]]:
    """What a tool's parser says of every file that is meant for it, by name; None where it takes it."""
    known: dict[str, dict[str, str | None]] = {}

    def answers(tool: str, *words: str, target: str = "") -> dict[str, str | None]:
        if tool not in known:
            files = {
                f"{profile} {arm}": exports.text(profile, target or tool, arm)
                for profile in exports.profiles_for(target or tool)
                for arm in exports.ARMS
            }
            files |= {
                f"hostile {n}": exported(TARGETS[target or tool], order_with(text, target or tool))
                for n, text in enumerate(HOSTILE)
            }
            files |= {one.name: one.text for one in BROKEN if one.target == (target or tool)}
            home = tmp_path_factory.mktemp(tool)
            own = {"PATH": os.environ["PATH"], "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
            python = environment_of(tool) if tool in PARSERS else sys.executable
            done = subprocess.run(
                [str(python), str(HERE / "export_parsers.py"), tool, *words],
                input=json.dumps(files),
                capture_output=True,
                text=True,
                check=False,
                env=own,
            )
            assert done.returncode == 0, done.stderr[-2000:]
            known[tool] = json.loads(done.stdout.splitlines()[-1])
        return known[tool]

    return answers


@pytest.mark.parametrize("tool", PARSERS)
def test_the_tools_own_parser_takes_every_export(tool: str, parsed: Callable[[str], Any]) -> None:
    answers = parsed(tool)
    whole = [f"{profile} {arm}" for profile in exports.profiles_for(tool) for arm in exports.ARMS]
    whole += [f"hostile {n}" for n in range(len(HOSTILE))]
    assert len(whole) >= 10
    assert {name: answers[name] for name in whole if answers[name]} == {}


@pytest.mark.parametrize("one", BROKEN, ids=lambda one: one.name)
def test_the_tools_own_parser_refuses_a_broken_export(one: Broken, parsed: Callable[[str], Any]) -> None:
    assert parsed(one.target)[one.name]


@pytest.mark.skipif(
    not os.environ.get(CHART_SCHEMA), reason=f"production-stack's own schema: {CHART_SCHEMA} names none"
)
def test_the_charts_own_schema_takes_every_export(parsed: Callable[..., Any]) -> None:
    answers = parsed("chart", os.environ[CHART_SCHEMA], target="production-stack")
    whole = [f"{profile} {arm}" for profile in exports.VLLM for arm in exports.ARMS]
    assert {name: answers[name] for name in whole if answers[name]} == {}


def _compose() -> bool:
    asked = ["docker", "compose", "version"]
    return bool(shutil.which("docker")) and not subprocess.run(asked, capture_output=True, check=False).returncode


@pytest.mark.skipif(not _compose(), reason="docker compose config: there is no Compose v2 here")
@pytest.mark.parametrize("profile", exports.profiles_for("compose"))
def test_compose_reads_every_export(profile: str, tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text("a" * 32)
    for arm in exports.ARMS:
        (tmp_path / "compose.yaml").write_text(exports.text(profile, "compose", arm))
        command = ["docker", "compose", "-f", "compose.yaml", "config", "--format", "json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        order = exports.order(profile, "compose", arm)
        engine = json.loads(done.stdout)["services"]["engine"]
        # Compose prints what it would read again.
        assert [word.replace("$$", "$") for word in engine["command"]][-3:] == order.argv[-3:]


@pytest.mark.skipif(not QUADLET, reason="Quadlet's own generator: there is no Podman 5 here")
@pytest.mark.parametrize("profile", exports.profiles_for("quadlet"))
def test_podmans_generator_reads_every_export(profile: str, tmp_path: Path) -> None:
    for arm in exports.ARMS:
        (tmp_path / f"{arm}.container").write_text(exports.text(profile, "quadlet", arm))
    own = {**os.environ, "QUADLET_UNIT_DIRS": str(tmp_path)}
    done = subprocess.run([QUADLET, "--dryrun"], capture_output=True, text=True, check=False, env=own)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ExecStart=") == 2
