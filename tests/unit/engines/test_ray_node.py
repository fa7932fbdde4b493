"""The program that makes a host a node of Ray's: its fixed ports, and when a cluster is as it is needed."""

from __future__ import annotations

import argparse
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

import pytest

from drafthouse.profiles.several_hosts import PORT
from drafthouse.profiles.workspace import ROOT

_LOADER = SourceFileLoader("ray_node", str(ROOT / "roles" / "engine" / "files" / "ray-node"))
_SPEC = spec_from_loader("ray_node", _LOADER)
assert _SPEC
ray_node: Any = module_from_spec(_SPEC)
_LOADER.exec_module(ray_node)


def node(address: str, gpus: float = 2, alive: bool = True) -> dict[str, Any]:
    return {"NodeManagerAddress": address, "Alive": alive, "Resources": {"CPU": 1.0, **({"GPU": gpus} if gpus else {})}}


@pytest.mark.parametrize(
    ("nodes", "free", "found"),
    [
        ([node("a"), node("b")], 4, ""),
        ([node("a"), node("b"), node("c", 0)], 4, ""),
        ([node("a")], 4, "no node b (there: a)"),
        ([node("a"), node("b", alive=False)], 4, "no node b (there: a)"),
        ([], 0, "no node a, b (there: none)"),
        ([node("a"), node("b", 0)], 2, "0 on b GPUs, needed: 2 on each"),
        ([node("a"), node("b", 8)], 10, "8 on b GPUs, needed: 2 on each"),
        ([node("a"), node("b"), node("c")], 6, "GPUs on c too, which is no host of this model"),
        ([node("a"), node("b")], 3, "3 of 4 GPUs are free"),
    ],
)
def test_a_cluster_has_these_nodes_with_their_gpus_free_and_no_others(
    nodes: list[dict[str, Any]], free: float, found: str
) -> None:
    assert ray_node.unlike(argparse.Namespace(nodes="a,b", gpus=2), nodes, free) == found


def test_every_port_is_a_fixed_one_of_those_that_the_firewall_closes() -> None:
    given = argparse.Namespace(part="head", address="10.77.0.1", port=PORT + 2, gpus=1)
    words = ray_node.start_words(given)
    ports = [int(words[place + 1]) for place, word in enumerate(words) if word.endswith("port")]
    assert len(ports) == len(set(ports)) == 10
    assert min(ports) >= PORT + 2
    # playbooks/tasks/firewall.yml
    assert max(ports) == PORT + 110
    worker = ray_node.start_words(argparse.Namespace(**{**vars(given), "part": "worker", "head": "10.77.0.9"}))
    assert worker[2:4] == ["--address", f"10.77.0.9:{PORT + 2}"]
    assert worker[worker.index("--node-ip-address") :] == words[words.index("--node-ip-address") :]
