"""Ray as the executor of one model over several hosts: what each host runs, and what is refused before that."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.profiles.workspace import resolved_profile
from tests.unit.profiles.test_several_hosts import ADDRESSES, COPIES, PROFILE, SPLIT, flags, refused, script, site

RAY = {"executor": "ray"}
NODES = ",".join(ADDRESSES)


def words(text: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith("exec "))
    return line


@pytest.mark.processes
@pytest.mark.parametrize("arm", ["baseline", "speculative"])
def test_the_head_starts_ray_and_the_engine_behind_what_keeps_them_together(arm: str) -> None:
    head = script(0, SPLIT, arm, **RAY, replica_port=31000)
    node = f"ray-node head --address 10.77.0.1 --port 31002 --gpus 1 --nodes {NODES}"
    assert words(head).endswith(f'--members {NODES} "$0" -- {node} vllm serve \\')
    assert ["--distributed-executor-backend", "ray"] in flags(head)
    assert ["--tensor-parallel-size", "2"] in flags(head)
    assert not {"--nnodes", "--node-rank", "--master-addr", "--headless"} & {flag[0] for flag in flags(head)}


def test_the_firewall_keeps_the_groups_ports() -> None:
    """Those of vLLM's own meeting points; Ray's node has a hundred and more."""
    any_port = "32768:60999"
    wanted = {(): [], ("mp",): ["29500:29502", any_port], ("ray",): ["29500:29610", any_port]}
    for executor, ports in wanted.items():
        more = {"executor": executor[0]} if executor else {"hosts_per_replica": None, "private_subnet": None}
        assert resolved_profile(PROFILE, site(**more), SPLIT if executor else {})["group_ports"] == ports
    moved = resolved_profile(PROFILE, site(replica_port=31000), SPLIT)
    assert moved["group_ports"] == ["31000:31002", any_port]


@pytest.mark.processes
def test_a_follower_is_a_node_of_rays_and_nothing_else() -> None:
    follower = script(1, SPLIT, **RAY)
    last = "exec ray-node worker --address 10.77.0.2 --port 29502 --gpus 1 --head 10.77.0.1\n"
    assert follower.endswith(f"\n\n{last}")
    assert "vllm serve" not in follower
    assert "api_key" not in follower
    # Ray's node and the engine go by the same address.
    assert "export VLLM_HOST_IP=10.77.0.2\n" in follower


@pytest.mark.processes
def test_the_token_is_in_a_file_and_both_hosts_mean_the_same_cluster() -> None:
    head, follower = (script(rank, SPLIT, **RAY) for rank in (0, 1))
    for text in (head, follower):
        assert "export RAY_AUTH_MODE=token\n" in text
        assert "/secrets/ray_token\n" in text.split("export RAY_AUTH_TOKEN_PATH=")[1]
        assert "RAY_AUTH_TOKEN=" not in text
    marks = {next(line for line in text.splitlines() if line.startswith("# together: ")) for text in (head, follower)}
    assert len(marks) == 1
    assert marks.isdisjoint(script(0, SPLIT).splitlines())
    assert marks.isdisjoint(script(0, SPLIT, **RAY, ray_address="10.77.0.1:6379").splitlines())


@pytest.mark.processes
def test_a_cluster_that_is_there_is_joined() -> None:
    head = script(0, SPLIT, **RAY, ray_address="ray.example:6379")
    node = f"ray-node join --cluster ray.example:6379 --nodes {NODES} --gpus 1"
    assert words(head).endswith(f'"$0" -- {node} vllm serve \\')


@pytest.mark.processes
def test_each_host_has_as_many_devices_as_the_model_takes_of_it() -> None:
    found = resolved_profile(
        "a100x4-llama3-draft8b", site(0, **RAY), {"engine_version": "0.32.0", "serve": {"tensor_parallel_size": 8}}
    )
    assert "--gpus 4 --nodes" in " ".join(found["arms"]["baseline"]["together"]["words"])


def test_ray_is_added_to_the_environment_with_hashes_where_it_is_the_executor() -> None:
    plain, ray = (resolved_profile(PROFILE, site(0, **more), SPLIT) for more in ({}, RAY))
    install = ray["engine"]["install"]
    assert install
    assert install["no_deps_packages"] == ["msgpack==1.2.4", "ray==2.60.0"]
    assert install["tools"] == ["ray-node"]
    assert all(ray["hashes"][pin] for pin in install["no_deps_packages"])
    assert plain["engine"]["install"] == {
        key: value for key, value in install.items() if key not in ("no_deps_packages", "tools")
    }
    # Changing the executor leaves the other environment whole.
    assert ray["engine"]["home"] == f"{plain['engine']['home']}-ray"


@pytest.mark.parametrize(
    ("more", "code", "where"),
    [
        ({"executor": "dask"}, "unknown-value", "site: executor"),
        ({**RAY, "hosts_per_replica": None}, "invalid-setting", "site.executor"),
        ({"ray_address": "10.77.0.1:6379"}, "invalid-setting", "site.ray_address"),
        ({**RAY, "ray_address": "10.77.0.1"}, "wrong-format", "site: ray_address"),
        ({**RAY, "ray_address": "auto"}, "wrong-format", "site: ray_address"),
        ({**RAY, "replica_port": 65500}, "out-of-range", "site: replica_port"),
        ({**RAY, "overrides": COPIES}, "several-hosts-unsupported", "serve.data_parallel_size"),
        ({**RAY, "overrides": {**SPLIT, "engine_version": "0.31.0"}}, "several-hosts-unsupported", "engine_version"),
        ({**RAY, "engine_program": "/opt/vllm/bin/vllm"}, "several-hosts-unsupported", "site.engine_program"),
        ({**RAY, "runtime": "docker"}, "several-hosts-unsupported", "runtimes"),
        ({**RAY, "profile": "cpu-smollm2-ngram", "overrides": {"serve": {}}}, "several-hosts-unsupported", "engine"),
    ],
)
def test_what_is_refused(more: dict[str, Any], code: str, where: str) -> None:
    found = refused(**more)
    assert any(problem.code == code and where in problem.where for problem in found), found
