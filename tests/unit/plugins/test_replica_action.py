"""Which hosts are a replica, and what is refused before anything of theirs starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action import replica as replica_action

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory

PROFILE = "h100-llama33-eagle3"
GPU = {"name": "NVIDIA H100 NVL", "memory_mib": 95830, "driver": "580.65.06"}
FOUND = {"Python": "3.12.3", "vllm": "0.32.0", "torch": "2.9.1", "weights of Llama": "0123456789abcdef"}


def host(
    name: str, place: int, *, replica: str | None = None, more: dict[str, Any] | None = None, **box: Any
) -> dict[str, Any]:
    site: dict[str, Any] = {
        **site_of_inventory("workstation"),
        "runtime": "process",
        "hosts_per_replica": 2,
        "private_subnet": "10.77.0.0/24",
        **(more or {}),
    }
    if replica:
        site["replica"] = replica
    private = {"addresses": {f"10.77.0.{place}": "ens3"}, "infiniband": []}
    return {
        "inventory_hostname": name,
        "drafthouse_profile": resolved_profile(PROFILE, site, {"serve": {"tensor_parallel_size": 2}}),
        "drafthouse_box": {"machine": "x86_64", "gpus": [GPU], "private": private, **box},
    }


def asked(hostvars: dict[str, dict[str, Any]], name: str, **arguments: Any) -> dict[str, Any]:
    action = object.__new__(replica_action.ActionModule)
    action._task = SimpleNamespace(args=arguments, check_mode=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        variables = {**hostvars[name], "hostvars": hostvars, "ansible_play_hosts_all": list(hostvars)}
        found: dict[str, Any] = action.run(task_vars=variables)
    return found


def codes(found: dict[str, Any]) -> list[tuple[str, str]]:
    assert found["failed"]
    return [(problem["code"], problem["found"]) for problem in found["problems"]]


def test_each_host_has_its_place() -> None:
    hosts = {name: host(name, place) for place, name in enumerate("abcd", start=1)}
    places = {name: asked(hosts, name, part="places")["ansible_facts"]["drafthouse_span"] for name in hosts}
    assert [(span["replica"], span["rank"]) for span in places.values()] == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    assert places["d"]["addresses"] == ["10.77.0.3", "10.77.0.4"]
    named = {name: host(name, place, replica="xyxy"[place - 1]) for place, name in enumerate("abcd", start=1)}
    assert asked(named, "c", part="places")["ansible_facts"]["drafthouse_span"]["names"] == ["a", "c"]


@pytest.mark.parametrize(
    ("box", "found"),
    [
        ({"gpus": [{**GPU, "driver": "570.26"}]}, "driver: 580.65.06 on a, 570.26 on b"),
        ({"gpus": [GPU, GPU]}, "GPUs: 1 x NVIDIA H100 NVL (95,830 MiB) on a, 2 x NVIDIA H100 NVL (95,830 MiB) on b"),
        ({"gpus": []}, "GPUs: 1 x NVIDIA H100 NVL (95,830 MiB) on a, nothing on b"),
        ({"machine": "aarch64"}, "processor: x86_64 on a, aarch64 on b"),
    ],
)
def test_boxes_that_are_not_alike_are_refused_on_all_of_them(box: dict[str, Any], found: str) -> None:
    hosts = {"a": host("a", 1), "b": host("b", 2, **box)}
    for name in hosts:
        assert ("hosts-differ", found) in codes(asked(hosts, name, part="places"))


def test_weights_lie_where_the_head_has_them_only_if_ray_tells_the_workers_its_paths() -> None:
    apart = {"a": {"models_dir": "/models"}, "b": {"models_dir": "/mnt/models"}}
    plain = {name: host(name, place, more=apart[name]) for place, name in enumerate("ab", start=1)}
    assert asked(plain, "b", part="places")["ansible_facts"]["drafthouse_span"]["rank"] == 1
    ray = {name: host(name, place, more={**apart[name], "executor": "ray"}) for place, name in enumerate("ab", start=1)}
    ((code, found),) = codes(asked(ray, "b", part="places"))
    assert code == "hosts-differ"
    assert found.startswith("weights: /models/")
    assert "/mnt/models/" in found


def test_a_host_outside_the_subnet_or_missing_is_refused() -> None:
    outside = {"a": host("a", 1), "b": host("b", 2, private={"addresses": {}, "infiniband": []})}
    assert codes(asked(outside, "a", part="places")) == [("no-private-address", "no address on b")]
    alone = {"a": host("a", 1), "b": {"inventory_hostname": "b"}}
    assert codes(asked(alone, "a", part="places")) == [("replica-incomplete", "replica a has a")]


def engine(values: dict[str, Any], **more: Any) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Two hosts with their places and what was found of the engine, and what each is told."""
    hosts = {"a": host("a", 1, more=more), "b": host("b", 2, more=more)}
    for name, one in hosts.items():
        span = asked(hosts, name, part="places")["ansible_facts"]["drafthouse_span"]
        one["drafthouse_profile"] = resolved_profile(
            PROFILE, {**one["drafthouse_profile"]["site"], "span": span}, {"serve": {"tensor_parallel_size": 2}}
        )
        if values[name] is not None:
            one["found"] = {"values": values[name]}
    return hosts, {name: asked(hosts, name, part="engine", facts="found") for name in hosts}


def test_in_a_cluster_that_is_there_a_follower_gets_nothing_to_run() -> None:
    _, told = engine({"a": FOUND, "b": FOUND}, executor="ray", ray_address="10.77.0.1:6379")
    for found in told.values():
        assert [entry["path"].rpartition("/")[2] for entry in found["entries"]] == ["together-1.py"]


def test_hosts_that_are_alike_get_what_keeps_them_together() -> None:
    hosts, told = engine({"a": FOUND, "b": FOUND})
    home = hosts["a"]["drafthouse_profile"]["site"]["home"]
    assert [entry["path"] for entry in told["a"]["entries"]] == [f"{home}/together-1.py"]
    files = {entry["path"]: entry for entry in told["b"]["entries"]}
    follow = files[f"{home}/serve/{PROFILE}/follower/serve.sh"]["content"]
    assert "together-1.py follow --address 10.77.0.2 --port 29500 --head 10.77.0.1" in follow
    for arm in ("baseline", "speculative"):
        assert "--headless" in files[f"{home}/serve/{PROFILE}/{arm}/serve.sh"]["content"]


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({**FOUND, "torch": "2.9.0"}, "hosts-differ"),
        ({**FOUND, "weights of Llama": "fedcba9876543210"}, "hosts-differ"),
        ({**FOUND, "Python": "3.12.4"}, "hosts-differ"),
        (None, "replica-incomplete"),
    ],
)
def test_engines_and_weights_that_differ_are_refused_on_all_hosts(other: dict[str, str] | None, code: str) -> None:
    _, told = engine({"a": FOUND, "b": other})
    for found in told.values():
        assert [what for what, _ in codes(found)] == [code]
