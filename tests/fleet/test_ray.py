"""One model over two hosts on Ray: a real cluster of two nodes, and the real vLLM on it through a shim for CPU.

vLLM refuses Ray on a CPU. The shim (`ray_on_cpu/`) lets Ray place vLLM's workers on GPUs that are numbers. So this
proves commands, token, placement, order and ends; it proves nothing about real GPUs, NCCL and InfiniBand.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.resolved_types import ResolvedProfile
from drafthouse.profiles.several_hosts import PORT as REPLICA_PORT
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.e2e.conftest import Ended
from tests.fleet.conftest import PORT, Pair
from tests.fleet.lab import until
from tests.fleet.namespaces import SUBNET, Host
from tests.fleet.test_two_hosts import GONE_S, engines
from tests.support.engines import KEPT, environment_of

pytestmark = [pytest.mark.alone, pytest.mark.soak]

PROFILE = "two-hosts-ray-shim"
RAY_PORT = REPLICA_PORT + 2
# What the head runs where the cluster alone is looked at.
_ENGINE = "echo the engine begins; exec sleep infinity"


def rays(host: Host) -> list[str]:
    """Ray's own processes on a host; what has ended counts for nothing, though its first process reaps none."""
    found = [line.split() for line in host.run("ps", "-eo", "stat,comm", "--no-headers").stdout.splitlines()]
    return [comm for state, comm, *_ in found if comm in ("raylet", "gcs_server") and not state.startswith("Z")]


def resolved(pair: Pair, home: Path, **more: Any) -> ResolvedProfile:
    """The profile as it is resolved for these hosts, with Ray."""
    site: dict[str, Any] = {
        **site_of_inventory("local"),
        "home": str(home),
        "hosts_per_replica": 2,
        "private_subnet": SUBNET,
        "executor": "ray",
    }
    return resolved_profile(PROFILE, {**site, **more}, root=pair.clone)


@pytest.fixture(scope="module")
def environment(pair: Pair) -> Path:
    """The engine's environment with Ray in it, made where the hosts' own is linked from."""
    return environment_of(resolved(pair, KEPT.parent))


@pytest.fixture(scope="module")
def served(pair: Pair, environment: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    reports = tmp_path_factory.mktemp("reports")
    ended = pair.play("site.yml", profile=PROFILE, drafthouse_executor="ray", report_folder=str(reports))
    assert ended.status == 0, ended.output[-4000:]
    return reports, ended


@contextmanager
def cluster(pair: Pair, environment: Path, home: Path) -> Iterator[list[str]]:
    """A cluster as the scripts of both hosts start it; yield the words before a program of the environment there."""
    (home / "secrets").mkdir()
    (home / "secrets" / "ray_token").write_text("0123456789abcdef" * 4)
    span = {
        "replica": "pair",
        "names": [host.name for host in pair.hosts],
        "addresses": [host.address for host in pair.hosts],
        "interface": "eth0",
        "infiniband": [],
    }
    arms = [resolved(pair, home, span={**span, "rank": rank})["arms"]["speculative"] for rank in (0, 1)]
    variables = [f"{name}={value}" for name, value in arms[0]["environment"].items() if name.startswith("RAY_")]
    inside = ["env", *variables, f"PATH={environment / 'bin'}:/usr/bin:/bin"]
    python = [*inside, str(environment / "bin" / "python"), str(environment / "bin" / "ray-node")]
    parts = [[*python, *arm["together"]["words"][1:]] for arm in arms]
    parts[0] += ["sh", "-c", _ENGINE]
    logs = [home / "head.log", home / "worker.log"]
    started = [host.start(*words, log=log) for host, words, log in zip(pair.hosts, parts, logs, strict=True)]
    try:
        until(lambda: "the engine begins" in logs[0].read_text(), 240)
        yield inside
    finally:
        for host in pair.hosts:
            host.run("pkill", "-TERM", "-f", "bin/ray(-node| start)", check=False)
        for process in started:
            process.wait(60)


def test_a_real_cluster_of_two_nodes_that_can_be_joined_with_its_token(
    pair: Pair, environment: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    head, follower = pair.hosts
    begun = time.monotonic()
    with cluster(pair, environment, tmp_path) as inside:
        figure(f"a Ray cluster of two nodes, whole after {time.monotonic() - begun:.0f} s")
        address = f"{head.address}:{RAY_PORT}"
        join = [str(environment / "bin" / name) for name in ("python", "ray-node")]
        join += ["join", "--cluster", address, "--nodes", f"{head.address},{follower.address}", "--gpus", "1"]
        joined = head.run(*inside, *join, "sh", "-c", "echo joined $RAY_ADDRESS")
        assert joined.stdout.endswith(f"joined {address}\n"), joined.stderr
        status = ["ray", "status", f"--address={address}"]
        # Its summary is some seconds old.
        until(lambda: "0.0/2.0 GPU" in head.run(*inside, *status).stdout, 60)
        for other in (["RAY_AUTH_MODE=disabled"], ["RAY_AUTH_TOKEN_PATH=", f"RAY_AUTH_TOKEN={'0' * 64}"]):
            stranger = follower.run(*inside, *other, *status, check=False)
            assert stranger.returncode != 0
            assert "InvalidAuthToken" in stranger.stdout + stranger.stderr
    # Whoever ends what started a node ends all of it.
    until(lambda: not any(map(rays, pair.hosts)), 30)


def test_both_arms_are_measured_on_ray_through_a_shim_for_cpu(
    served: tuple[Path, Ended], pair: Pair, figure: Callable[[str], None]
) -> None:
    reports, ended = served
    (folder,) = (path for path in (reports / PROFILE).iterdir() if path.is_dir())
    report = json.loads((folder / "report.json").read_text())
    results = {arm: json.loads((folder / f"{arm}.json").read_text()) for arm in ("baseline", "speculative")}
    figure(f"{PROFILE}: {report['verdict']['sentence']}; {ended.seconds:.0f} s from start to report")
    assert [arm["failed"] for arm in results.values()] == [0, 0]
    assert results["baseline"]["spec_decode_draft_tokens"] == 0
    assert results["speculative"]["spec_decode_draft_tokens"] > 50
    assert results["speculative"]["spec_decode_accepted_tokens"] > 0
    for host in pair.hosts:
        assert "raylet" in rays(host)
        assert "ray::RayWorkerProc" in host.run("ps", "-eo", "args", "--no-headers").stdout


def test_a_stream_on_ray_through_a_shim_for_cpu_ends_well(served: tuple[Path, Ended], pair: Pair) -> None:
    head = pair.hosts[0]
    key = (pair.home(head) / "secrets" / "api_key").read_text().strip()
    words = "Repeat: one two three four five six seven, one two three four five six seven, one two three"
    body = {"model": "smollm2-135m", "max_tokens": 24, "stream": True, "messages": [{"role": "user", "content": words}]}
    asked = head.run(
        "curl", "-sS", "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json",
        "-d", json.dumps(body), f"http://127.0.0.1:{PORT}/v1/chat/completions",
    )  # fmt: skip
    assert asked.stdout.rstrip().endswith("data: [DONE]")


def test_neither_the_token_nor_the_key_is_where_others_see_it(served: tuple[Path, Ended], pair: Pair) -> None:
    tokens = [(pair.home(host) / "secrets" / "ray_token") for host in pair.hosts]
    assert {path.stat().st_mode & 0o777 for path in tokens} == {0o600}
    (token,) = {path.read_text().strip() for path in tokens}
    assert len(token) == 64
    key = (pair.home(pair.hosts[0]) / "secrets" / "api_key").read_text().strip()
    assert token not in served[1].output
    for host in pair.hosts:
        assert token not in host.run("ps", "-eo", "args", "--no-headers").stdout
        logs = [str(pair.home(host) / "logs"), "/tmp/ray"]
        for secret in (token, key):
            assert host.run("grep", "-rlsF", "--devices=skip", secret, *logs, check=False).stdout == ""


def test_the_workers_get_the_heads_variables_but_not_its_key(served: tuple[Path, Ended], environment: Path) -> None:
    """By vLLM's own function, with the folder that `ray-node` has written and names to it."""
    ask = "from vllm.v1.executor.ray_env_utils import get_driver_env_vars; print(*get_driver_env_vars(set()))"
    variables = {
        "PATH": os.environ["PATH"],
        "VLLM_API_KEY": "sesame",
        "VLLM_CONFIG_ROOT": str(environment / "vllm-config"),
    }
    words = [str(environment / "bin" / "python"), "-c", ask]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=True, timeout=240)
    names = done.stdout.split("\n")[-2].split()
    assert "VLLM_CONFIG_ROOT" in names
    assert "VLLM_API_KEY" not in names


def test_a_second_run_changes_nothing(served: tuple[Path, Ended], pair: Pair) -> None:
    before = engines(pair, 0) + engines(pair, 1)
    again = pair.play("site.yml", profile=PROFILE, drafthouse_executor="ray", report_folder=str(served[0]))
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    assert engines(pair, 0) + engines(pair, 1) == before


def test_when_the_head_goes_the_followers_node_is_gone(
    served: tuple[Path, Ended], pair: Pair, figure: Callable[[str], None]
) -> None:
    """The head's supervisor is ended, so that nobody starts it again."""
    head, follower = pair.hosts
    pid = (pair.home(head) / "supervisor" / "supervisord.pid").read_text().strip()
    (lead,) = head.run("pgrep", "-f", "together-1.py lead").stdout.split()
    begun = time.monotonic()
    head.run("kill", "-KILL", pid, lead)
    until(lambda: not rays(follower), GONE_S)
    figure(f"{PROFILE}: head killed, the follower's Ray gone after {time.monotonic() - begun:.1f} s")
    until(lambda: not rays(head), 30)
    assert "ending the engine" in (pair.home(follower) / "logs" / "follower.log").read_text()
