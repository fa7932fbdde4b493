"""One model over several hosts: what each host is told, and what is refused before anything starts."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.several_hosts import Member, differences, follow_script, replicas, spans
from drafthouse.profiles.workspace import resolved_profile, site_from, site_of_inventory
from drafthouse.report.data.setup import setup

PROFILE = "h100-llama33-eagle3"
SPLIT = {"serve": {"tensor_parallel_size": 2}}
COPIES = {"serve": {"data_parallel_size": 2}}
ADDRESSES = ["10.77.0.1", "10.77.0.2"]


def site(rank: int | None = None, **more: Any) -> Any:
    found: dict[str, Any] = {
        **site_of_inventory("workstation"),
        "runtime": "process",
        "hosts_per_replica": 2,
        "private_subnet": "10.77.0.0/24",
        **more,
    }
    if rank is not None:
        found["span"] = {
            "replica": "one",
            "rank": rank,
            "names": ["one", "two"],
            "addresses": ADDRESSES,
            "interface": "ens3",
            "infiniband": ["mlx5_0", "mlx5_1"],
        }
    return {key: value for key, value in found.items() if value is not None}


def script(rank: int, overrides: dict[str, Any], arm: str = "speculative", **more: Any) -> str:
    resolved = resolved_profile(PROFILE, site(rank, **more), overrides)
    (text,) = (file["content"] for file in resolved["arms"][arm]["files"] if file["path"] == "serve.sh")
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    return text


def refused(profile: str = PROFILE, overrides: dict[str, Any] | None = None, **more: Any) -> list[Problem]:
    with pytest.raises(DrafthouseError) as error:
        resolved_profile(profile, site(**more), overrides or SPLIT)
    return error.value.problems


def flags(text: str) -> list[list[str]]:
    lines = text.split("exec ", 1)[1].splitlines()[1:-1]
    return [line.strip().removesuffix(" \\").split(" ", 1) for line in lines]


@pytest.mark.processes
def test_a_split_model_is_vllms_own_nnodes() -> None:
    head, follower = script(0, SPLIT), script(1, SPLIT)
    for rank, text in enumerate((head, follower)):
        for wanted in (
            ["--tensor-parallel-size", "2"],
            ["--nnodes", "2"],
            ["--node-rank", str(rank)],
            ["--master-addr", "10.77.0.1"],
            ["--master-port", "29501"],
            ["--distributed-executor-backend", "mp"],
        ):
            assert wanted in flags(text), wanted
        assert f"export VLLM_HOST_IP={ADDRESSES[rank]}\n" in text
        assert "export NCCL_SOCKET_IFNAME=ens3\nexport GLOO_SOCKET_IFNAME=ens3\n" in text
        assert "export NCCL_IB_HCA==mlx5_0,mlx5_1\n" in text.replace("'", "")
        assert "--speculative-config" in text
    assert ["--headless"] in flags(follower)
    assert ["--headless"] not in flags(head)
    assert ["--host", "127.0.0.1"] in flags(head)
    assert "--host" not in [flag[0] for flag in flags(follower)]
    assert "api_key" not in follower
    assert "api_key" in head


@pytest.mark.processes
def test_copies_are_vllms_own_data_parallel() -> None:
    head, follower = script(0, COPIES), script(1, COPIES)
    for text in (head, follower):
        for wanted in (
            ["--data-parallel-size", "2"],
            ["--data-parallel-size-local", "1"],
            ["--data-parallel-address", "10.77.0.1"],
            ["--data-parallel-rpc-port", "29502"],
        ):
            assert wanted in flags(text), wanted
        assert "--nnodes" not in text
    # A head with a first rank would be one of several servers behind somebody else's balancer.
    assert "--data-parallel-start-rank" not in head
    assert ["--data-parallel-start-rank", "1"] in flags(follower)


@pytest.mark.processes
def test_the_head_runs_behind_the_program_that_keeps_them_together() -> None:
    head = script(0, SPLIT, arm="baseline", replica_port=31000)
    (line,) = (line for line in head.splitlines() if line.startswith("exec "))
    assert "together-1.py lead --address 10.77.0.1 --port 31000 --members 10.77.0.1,10.77.0.2" in line
    assert line.endswith(' "$0" -- vllm serve \\')
    # The arms differ in speculation alone: so do not these words.
    assert line in script(0, SPLIT, replica_port=31000).splitlines()
    (digest,) = (mark.removeprefix("# together: ") for mark in head.splitlines() if mark.startswith("# together: "))
    assert f"# together: {digest}\n" in script(1, SPLIT, arm="baseline", replica_port=31000)
    # Not with where a host has its files, and with whatever changes the server.
    assert f"# together: {digest}\n" in script(1, SPLIT, arm="baseline", replica_port=31000, models_dir="/else")
    assert digest not in script(1, SPLIT, replica_port=31000)
    longer = {"serve": {**SPLIT["serve"], "max_model_len": 2048}}
    assert digest not in script(1, longer, arm="baseline", replica_port=31000)


def test_a_follower_starts_anew_when_a_script_of_its_changes() -> None:
    one = follow_script(site(1), {"baseline": "a", "speculative": "b"})
    assert "follow --address 10.77.0.2 --port 29500 --head 10.77.0.1 --scripts" in one
    assert one == follow_script(site(1), {"speculative": "b", "baseline": "a"})
    assert one != follow_script(site(1), {"baseline": "a", "speculative": "c"})


def test_without_several_hosts_nothing_changes() -> None:
    plain = resolved_profile(PROFILE, site(hosts_per_replica=None, private_subnet=None))
    assert "together" not in plain["arms"]["baseline"]
    assert plain == {**resolved_profile(PROFILE, site(hosts_per_replica=1, private_subnet=None)), "site": plain["site"]}


def test_the_memory_counts_the_split_over_all_hosts() -> None:
    whole = resolved_profile(PROFILE, site(hosts_per_replica=None, private_subnet=None))
    half = resolved_profile(PROFILE, site(), SPLIT)
    copies = resolved_profile(PROFILE, site(), COPIES)
    fit = {name: one["arms"]["baseline"]["fit"] for name, one in (("whole", whole), ("half", half), ("dp", copies))}
    assert fit["half"]["weights"] == pytest.approx(fit["whole"]["weights"] / 2, abs=1)
    assert fit["half"]["kv_per_token"] == pytest.approx(fit["whole"]["kv_per_token"] / 2, abs=1)
    assert fit["dp"] == fit["whole"]
    assert (whole["shared_memory"], half["shared_memory"]) == (0, 1 << 30)
    assert half["experiment"]["schedule"] == "alternated"


def test_the_report_says_hosts_and_devices() -> None:
    resolved: Any = resolved_profile(PROFILE, site(0), SPLIT)
    rows = {row["what"]: row["which"] for row in setup(resolved)}
    assert rows["Hardware"].startswith("2 hosts x 1 GPU: NVIDIA H100")


@pytest.mark.parametrize(
    ("more", "code", "where"),
    [
        ({"fleet": {}}, "invalid-setting", "site.hosts_per_replica"),
        ({"private_subnet": None}, "invalid-setting", "site.private_subnet"),
        ({"private_subnet": "10.77.0.1/24"}, "invalid-setting", "site.private_subnet"),
        ({"private_subnet": "fd00::/64"}, "invalid-setting", "site.private_subnet"),
        ({"runtime": "docker"}, "several-hosts-unsupported", "runtimes"),
        ({"hosts_per_replica": 3}, "several-hosts-uneven", "serve.tensor_parallel_size"),
        ({"overrides": {"serve": {"tensor_parallel_size": 4}}}, "too-many-gpus", "serve.tensor_parallel_size"),
        ({"overrides": {"serve": {}}}, "several-hosts-uneven", "serve.tensor_parallel_size"),
        ({"overrides": {**SPLIT, "engine_version": "0.9.2"}}, "several-hosts-unsupported", "engine_version"),
        ({"overrides": {**SPLIT, "experiment": {"schedule": "interleaved"}}}, "conflicting-keys", "schedule"),
        ({"profile": "h100-llama33-sglang-eagle3", "overrides": {"serve": {}}}, "several-hosts-unsupported", "engine"),
        ({"profile": "cpu-smollm2-ngram", "overrides": {"serve": {}}}, "several-hosts-unsupported", "engine"),
    ],
)
def test_what_is_refused(more: dict[str, Any], code: str, where: str) -> None:
    found = refused(**more)
    assert any(problem.code == code and where in problem.where for problem in found), found


def test_a_pipeline_with_speculation_stays_refused() -> None:
    found = refused(overrides={"serve": {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}})
    assert any("pipeline_parallel_size" in problem.where and "30436" in problem.needed for problem in found), found


@pytest.mark.parametrize("flag", ["--nnodes", "--node-rank", "--master-addr", "--data-parallel-address", "-n"])
def test_nobody_places_hosts_past_the_inventory(flag: str) -> None:
    found = refused(overrides={"serve": {**SPLIT["serve"], "extra": [flag, "2"]}})
    assert [problem.code for problem in found] == ["reserved-flag"]


def test_the_words_of_an_inventory() -> None:
    given = {"hosts_per_replica": "2", "replica_port": "31000", "replica": "a", "private_subnet": "10.77.0.0/24"}
    found = site_from({f"drafthouse_{key}": value for key, value in given.items()})
    assert {key: dict(found)[key] for key in given} == {**given, "hosts_per_replica": 2, "replica_port": 31000}


def test_hosts_go_together_by_name_or_as_they_follow_each_other() -> None:
    names = [Member(name) for name in ("a", "b", "c", "d")]
    assert replicas(names, 2) == {"a": ["a", "b"], "c": ["c", "d"]}
    named = [Member("a", "x"), Member("b"), Member("c", "x"), Member("d")]
    assert replicas(named, 2) == {"x": ["a", "c"], "b": ["b", "d"]}


@pytest.mark.parametrize("members", [[Member("a")], [Member("a", "x"), Member("b")], [Member(n, "x") for n in "abc"]])
def test_a_replica_with_other_than_its_hosts_is_refused(members: list[Member]) -> None:
    with pytest.raises(DrafthouseError) as error:
        replicas(members, 2)
    assert {problem.code for problem in error.value.problems} == {"replica-incomplete"}


def test_each_difference_is_a_problem_with_both_values() -> None:
    head = {"engine": "vLLM 0.32.0", "torch": "2.9.1", "Python": "3.12.3", "weights of x": "abc", "driver": "580.65.06"}
    other = {**head, "torch": "2.9.0", "driver": "580.82.07"}
    del other["weights of x"]
    found = differences({"one": head, "two": head, "three": other}, "one")
    assert [problem.found for problem in found] == [
        "torch: 2.9.1 on one, 2.9.0 on three",
        "weights of x: abc on one, nothing on three",
        "driver: 580.65.06 on one, 580.82.07 on three",
    ]
    assert {problem.code for problem in found} == {"hosts-differ"}
    # What only a follower has is a difference, too.
    assert differences({"one": {}, "two": {"ray": "2.60.0"}}, "one")[0].found == "ray: nothing on one, 2.60.0 on two"


def test_a_place_has_the_one_address_inside_the_subnet() -> None:
    found = {"one": ["a", "b"]}
    there = {"a": {"10.77.0.1": "ens3"}, "b": {"10.77.0.2": "eth1"}}
    places = spans(found, there, {"a": [], "b": ["mlx5_0"]})
    assert places["b"] == {
        "replica": "one",
        "rank": 1,
        "names": ["a", "b"],
        "addresses": ADDRESSES,
        "interface": "eth1",
        "infiniband": ["mlx5_0"],
    }
    for wrong in ({}, {"10.77.0.2": "eth1", "10.77.0.9": "eth2"}):
        with pytest.raises(DrafthouseError) as error:
            spans(found, {**there, "b": wrong}, {"a": [], "b": []})
        assert [problem.code for problem in error.value.problems] == ["no-private-address"]
