from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.host.box_facts import read_box
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.loosely import preflight_problems

pytestmark = pytest.mark.processes

GIB = 1024**3
GPU = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "memory_mib": 97887, "driver": "580.95.05",
    "compute_capability": "12.0", "uuid": "GPU-1",
}  # fmt: skip


@pytest.fixture(scope="module")
def resolved() -> Any:
    return resolved_profile("rtx6000-qwen-eagle3", site_of_inventory("workstation"))


def box(**changes: Any) -> Any:
    return {
        "hostname": "here", "system": "Linux", "machine": "x86_64", "python": "3.11.7",
        "python_executable": "/usr/bin/python3", "can_make_environments": True, "memory_available": 64 * GIB,
        "gpus": [GPU], "nvidia_pci_devices": ["0000:01:00.0"],
        "disk": {"/opt/drafthouse": 500 * GIB, "/models/original": 500 * GIB},
        "writable": {"/opt/drafthouse": True, "/models/original": True}, "ports": {"8000": None}, "present": [],
        "is_root": True, "has_apt": True, "has_docker": True, "glibc": "2.36",
        **changes,
    }  # fmt: skip


def test_what_the_host_phase_installs_is_no_fault(resolved: Any) -> None:
    bare = box(gpus=[], can_make_environments=False, has_docker=False, is_root=True)
    assert preflight_problems(resolved, bare) == []
    # Behind the host phase the GPU must be there.
    (problem,) = preflight_problems(resolved, bare, prepared=True)
    assert problem.code == "gpu-unfit"
    for without in ({"is_root": False}, {"has_apt": False}):
        found = " ".join(problem.found for problem in preflight_problems(resolved, {**bare, **without}))
        assert "no working driver" in found
        assert "without ensurepip" in found
        assert "no Docker" in found


def test_a_card_that_is_split_is_refused(resolved: Any) -> None:
    (problem,) = preflight_problems(resolved, box(gpus=[{**GPU, "split": True}]))
    assert "split into MIG parts" in problem.found and "nvidia-smi -mig 0" in problem.do


def test_a_rental_gets_nothing_installed(resolved: Any) -> None:
    rental = {**resolved, "site": {**resolved["site"], "manage_host": False, "runtime": "docker"}}
    (problem,) = preflight_problems(rental, box(has_docker=False, is_root=True))
    assert problem.code == "no-docker"
    assert "drafthouse_runtime: process" in problem.do


@pytest.mark.parametrize(("glibc", "found"), [("", "musl"), ("2.12", "glibc 2.12")])
def test_wheels_that_this_system_cannot_load_are_refused_before_any_is_fetched(glibc: str, found: str) -> None:
    site = {**site_of_inventory("local"), "home": "/opt/drafthouse", "models_dir": "/models/original"}
    llama = resolved_profile("cpu-smollm2-ngram", site)
    here = box(gpus=[], glibc=glibc)
    problems = [problem for problem in preflight_problems(llama, here) if "glibc" in problem.found]
    assert [(found in problem.found, "2.17 or newer" in problem.needed) for problem in problems] == [(True, True)]
    assert not [one for one in preflight_problems(llama, box(gpus=[])) if "glibc" in one.found]


@pytest.mark.parametrize(("effect", "codes"), [("wrong", ["known-issue"]), ("crash", ["known-issue"]), ("oom", [])])
def test_a_known_issue_that_spoils_the_answers_is_refused(effect: str, codes: list[str]) -> None:
    whole: Any = resolved_profile("rtx6000-gptoss-trtllm-eagle3", site_of_inventory("workstation"))
    (issue,) = whole["known_issues"]
    as_it_is = [problem.code for problem in preflight_problems(whole, box())]
    refused = {**whole, "known_issues": [{**issue, "effect": effect, "accepted": None}]}
    assert "known-issue" not in as_it_is
    assert [problem.code for problem in preflight_problems(refused, box())] == [*as_it_is, *codes]


def test_a_good_box(resolved: Any) -> None:
    assert preflight_problems(resolved, box()) == []


@pytest.mark.parametrize(
    ("changes", "found", "needed", "do"),
    [
        ({"gpus": [], "nvidia_pci_devices": []}, "no NVIDIA GPU", "RTX PRO 6000", "make profiles"),
        ({"gpus": [], "has_apt": False}, "no working driver", "shown by nvidia-smi", "install NVIDIA's driver"),
        ({"gpus": [{**GPU, "name": "NVIDIA L4"}]}, "NVIDIA L4", "RTX PRO 6000", "make profiles"),
        ({"gpus": [{**GPU, "memory_mib": 48000}]}, "48,000 MiB", "97,887 MiB", "make profiles"),
        ({"machine": "aarch64"}, "aarch64", "x86_64", "such a box"),
        ({"python": "3.9.2"}, "Python 3.9.2", "3.10", "ansible_python_interpreter"),
        ({"can_make_environments": False, "has_apt": False}, "without ensurepip", "virtual environments",
         "python3-venv"),
        ({"disk": {"/opt/drafthouse": 500 * GIB, "/models/original": 50 * GIB}}, "53.7 GB free", "93.6 GB", "free"),
        ({"writable": {"/opt/drafthouse": False}}, "/opt/drafthouse cannot be written", "a folder that this user",
     "drafthouse_home"),
        (
            {"ports": {"8000": {"pid": 7, "command": "nginx", "ours": False}}},
            "port 8000 is taken (pid 7: nginx)", "port 8000 free", "drafthouse_port=",
        ),
    ],
)  # fmt: skip
def test_each_fault(resolved: Any, changes: Any, found: str, needed: str, do: str) -> None:
    (problem,) = preflight_problems(resolved, box(**changes))
    assert found in problem.found
    assert needed in problem.needed
    assert do in problem.do
    assert problem.lines()[1].startswith("found: ")


def test_weights_that_are_there_need_no_room(resolved: Any) -> None:
    small = box(
        disk={"/opt/drafthouse": 40 * GIB, "/models/original": 40 * GIB},
        present=[item["path"] for item in resolved["weights"]],
    )
    assert preflight_problems(resolved, small) == []


def test_a_gpu_that_the_box_does_not_have(resolved: Any) -> None:
    choice = {"by": "drafthouse_gpus", "ids": ["0"], "wrong": ["2", "GPU-x"], "listed": [0, 1]}
    (problem,) = preflight_problems(resolved, box(gpu_choice=choice))
    assert problem.found == "drafthouse_gpus names '2', 'GPU-x', and the box has GPU 0, 1"
    assert "nvidia-smi -L" in problem.needed
    assert "correct drafthouse_gpus" in problem.do
    (said,) = preflight_problems(resolved, box(gpu_choice=choice), prepared=True)
    assert said == problem
    # No driver yet: it comes, and then the choice is looked at.
    bare = box(gpus=[], gpu_choice={**choice, "listed": []}, is_root=True)
    assert preflight_problems(resolved, bare) == []
    assert preflight_problems(resolved, box(gpu_choice={**choice, "wrong": []})) == []


def test_fewer_are_chosen_than_the_profile_needs() -> None:
    resolved = resolved_profile("a100x4-llama3-draft8b", site_of_inventory("vastai"))
    gpu = {**GPU, "name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920}
    room = {"/workspace/drafthouse": 500 * GIB, "/workspace/models": 500 * GIB}
    choice = {"by": "CUDA_VISIBLE_DEVICES", "ids": ["0", "1"], "wrong": [], "listed": [0, 1, 2, 3]}
    two = box(gpus=[gpu] * 2, gpu_choice=choice, disk=room, writable={}, shared_memory=8 * GIB)
    (problem,) = preflight_problems(resolved, two)
    assert problem.found.endswith(", chosen by CUDA_VISIBLE_DEVICES")
    assert problem.needed.startswith("four ")


def test_what_a_link_into_the_hubs_cache_brings_needs_no_room(resolved: Any) -> None:
    first, *others = resolved["weights"]
    disk = {"/opt/drafthouse": 40 * GIB, "/models/original": 40 * GIB}
    small = box(disk=disk, present=[item["path"] for item in others])
    (problem,) = preflight_problems(resolved, small)
    assert f"({first['bytes'] / GB:.1f} GB)" in problem.needed
    assert preflight_problems(resolved, {**small, "cached": {first["path"]: first["bytes"] + 1}}) == []
    (problem,) = preflight_problems(resolved, {**small, "cached": {first["path"]: 1 * GB}})
    assert f"({first['bytes'] / GB - 1:.1f} GB)" in problem.needed


def test_shared_memory_of_several_devices() -> None:
    resolved = resolved_profile("a100x4-llama3-draft8b", site_of_inventory("vastai"))
    gpu = {**GPU, "name": "NVIDIA A100-SXM4-80GB", "memory_mib": 81920}
    room = {"/workspace/drafthouse": 500 * GIB, "/workspace/models": 500 * GIB}
    good = box(gpus=[gpu] * 4, disk=room, writable={}, shared_memory=8 * GIB)
    assert preflight_problems(resolved, good) == []
    for found, words in ((64 * 1024**2, "64 MiB in /dev/shm"), (None, "no /dev/shm")):
        (problem,) = preflight_problems(resolved, {**good, "shared_memory": found})
        assert problem.found == words
        assert "1,024 MiB" in problem.needed
        assert "rent a larger share" in problem.do
    # One device shares nothing, and our own containers get the box's memory.
    one = resolved_profile("h100-llama33-draft3b", site_of_inventory("vastai"))
    assert one["shared_memory"] == 0
    docker = {**resolved, "site": {**resolved["site"], "runtime": "docker"}}
    assert preflight_problems(docker, {**good, "shared_memory": None}) == []


def test_a_full_rental_is_told_to_rent_anew() -> None:
    resolved = resolved_profile("h100-llama33-draft3b", site_of_inventory("vastai"))
    gpu = {**GPU, "name": "NVIDIA H100 NVL", "memory_mib": 95830}
    small = {"/workspace/drafthouse": 10 * GIB, "/workspace/models": 10 * GIB}
    (problem,) = preflight_problems(resolved, box(gpus=[gpu], disk=small, writable={}))
    assert "10.7 GB free at /workspace/models" in problem.found
    assert "fixed when it is rented" in problem.do


def test_a_disk_rented_for_the_plan_is_enough_for_the_next_run() -> None:
    resolved = resolved_profile("rtx4090-llama32-draft1b", site_of_inventory("vastai"))
    gpu = {**GPU, "name": "NVIDIA GeForce RTX 4090", "memory_mib": 24564}
    used = sum(item["bytes"] for item in resolved["weights"]) + 13 * GB  # and the engine, and our own environment
    left = resolved["rental"]["disk_gb"] * GB - used
    room = dict.fromkeys(("/workspace/drafthouse", "/workspace/models"), left)
    weights = [item["path"] for item in resolved["weights"]]
    second = box(gpus=[gpu], disk=room, writable={}, present=[*weights, resolved["engine"]["home"]])
    assert preflight_problems(resolved, second) == []
    # Where the engine is still to come, all of its room is asked for.
    (problem,) = preflight_problems(resolved, {**second, "present": weights})
    assert "25.0 GB" in problem.needed


@pytest.mark.parametrize(
    ("host", "managed", "has_key", "refused"),
    [
        # vLLM's key guards a few prefixes: with it an engine is no less open (test_exposure.py).
        ("0.0.0.0", False, False, True), ("0.0.0.0", False, True, True), ("127.0.0.1", False, False, False),
        ("0.0.0.0", True, False, True), ("::", False, False, True),
    ],
)  # fmt: skip
def test_an_engine_without_a_key_is_not_opened_to_all(
    resolved: Any, host: str, managed: bool, has_key: bool, refused: bool
) -> None:
    site = {**resolved["site"], "host": host, "manage_host": managed}
    engine = {**resolved["engine"], "has_key": has_key}
    problems = preflight_problems({**resolved, "site": site, "engine": engine}, box())
    assert [problem.found.partition(",")[0] for problem in problems] == (
        [f"drafthouse_host is {host}"] if refused else []
    )


def test_a_rented_vms_driver_is_not_ours_to_install(resolved: Any) -> None:
    bare = box(gpus=[], is_root=True)
    assert preflight_problems(resolved, bare) == []
    (problem,) = preflight_problems({**resolved, "rented_vm": True}, bare)
    assert problem.code == "gpu-unfit"


def test_our_own_server_may_hold_the_port(resolved: Any) -> None:
    assert preflight_problems(resolved, box(ports={"8000": {"pid": 7, "command": "x", "ours": True}})) == []


def test_a_cpu_profile_needs_memory_for_all_arms_of_a_step() -> None:
    resolved = resolved_profile("cpu-smollm2-ngram", {**site_of_inventory("workstation"), "runtime": "process"})
    assert resolved["experiment"]["schedule"] == "interleaved"
    (problem,) = preflight_problems(resolved, box(gpus=[], memory_available=GIB // 4))
    assert "256 MiB of memory available" in problem.found
    assert "baseline and speculative (interleaved)" in problem.needed


def test_a_gpu_that_shares_the_systems_memory_needs_it_free() -> None:
    resolved = resolved_profile("dgx-spark-nemotron35-dspark", site_of_inventory("workstation"))
    spark = {"gpus": [{**GPU, "name": "NVIDIA GB10", "memory_mib": 122_572}], "machine": "aarch64"}
    assert preflight_problems(resolved, box(**spark, memory_available=110 * GIB)) == []
    (problem,) = preflight_problems(resolved, box(**spark, memory_available=60 * GIB))
    assert problem.code == "memory-too-small"


@pytest.mark.parametrize(
    ("port", "mapped", "fine"),
    [(8443, {"22": 40022, "8443": 40443}, True), (8443, {"22": 40022}, False), (8443, {}, True), (22, {"22": 1}, True)],
)
def test_a_gateway_whose_port_the_platform_does_not_map(port: int, mapped: dict[str, int], fine: bool) -> None:
    site = {**site_of_inventory("vastai"), "gateway": True, "gateway_port": port}
    rented = resolved_profile("h100-llama33-draft3b", site)
    facts = box(
        disk={"/workspace/drafthouse": 900 * GB, "/workspace/models": 900 * GB},
        writable={}, ports={}, first_process={"ports": mapped},
    )  # fmt: skip
    told = [problem for problem in preflight_problems(rented, facts) if problem.code == "port-not-mapped"]
    assert [problem.found for problem in told] == (
        [] if fine else ["the gateway's port 8443 is not mapped; the platform maps 22"]
    )


def test_reading_this_very_box(tmp_path: Path) -> None:
    facts = read_box([str(tmp_path / "not" / "there")], [], str(tmp_path / "none.pid"))
    assert facts["system"] == "Linux"
    assert facts["cores"] >= 1
    assert 0 < facts["memory_available"] <= facts["memory_total"]
    assert facts["disk"][str(tmp_path / "not" / "there")] > 0
    assert facts["writable"][str(tmp_path / "not" / "there")] is True


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_listens(tmp_path: Path, address: str) -> None:
    family = "AF_INET6" if ":" in address else "AF_INET"
    program = (
        f"import socket; server = socket.create_server(({address!r}, 0), family=socket.{family}); "
        "print(server.getsockname()[1], flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        port = int(listener.stdout.readline())
        found: Any = read_box([], [port], str(tmp_path / "none.pid"))["ports"][str(port)]
        assert found["pid"] == listener.pid
        assert found["ours"] is False
        (tmp_path / "supervisor.pid").write_text(str(os.getpid()))
        ours: Any = read_box([], [port], str(tmp_path / "supervisor.pid"))["ports"][str(port)]
        assert ours["ours"] is True
        listener.communicate("\n")
    assert read_box([], [port], str(tmp_path / "none.pid"))["ports"][str(port)] is None


def test_a_child_of_the_supervisor_is_ours(tmp_path: Path) -> None:
    program = (
        "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdin
        port = int(child.stdout.readline())
        (tmp_path / "pid").write_text(str(os.getpid()))
        found: Any = read_box([], [port], str(tmp_path / "pid"))["ports"][str(port)]
        child.stdin.close()
    assert found["pid"] == child.pid
    assert found["ours"] is True


def test_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'NVIDIA RTX PRO 6000 Blackwell Workstation Edition, 97887, 580.95.05, 12.0, GPU-1, [N/A]'\n"
        "echo 'NVIDIA H100 NVL, [N/A], 580.95.05, 9.0, GPU-2, [N/A]'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # A line without a size (a MIG parent, a broken board) is no GPU that can be planned with.
    assert read_box([], [], "none")["gpus"] == [GPU]
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'; exit 18\n")
    assert read_box([], [], "none")["gpus"] == []


@pytest.mark.parametrize("name", sorted(load_catalog(ROOT).profiles))
def test_every_shipped_profile_passes_on_its_own_card(name: str) -> None:
    """The facts of a box as the hardware's entry describes it: its processor, its cards, memory enough beside them."""
    catalog = load_catalog(ROOT)
    hardware = catalog.hardware[catalog.profiles[name]["hardware"]]
    if hardware["kind"] == "amd":
        return  # refused when it is resolved: no engine here is installed for AMD
    resolved = resolved_profile(name, site_of_inventory(hardware["inventory"]))
    card = {
        **GPU,
        "name": next(iter(hardware.get("gpu_names", [""]))),
        "memory_mib": hardware["memory_mib"],
        "compute_capability": hardware.get("compute_capability", ""),
    }
    cards = [card | {"uuid": f"GPU-{number}"} for number in range(hardware["devices"])]
    site = resolved["site"]
    places = (site["home"], site["models_dir"])
    own = box(
        machine=hardware.get("machine", "x86_64"),
        gpus=cards if hardware["kind"] == "gpu" else [],
        disk=dict.fromkeys(places, 4000 * GIB),
        writable=dict.fromkeys(places, True),
        ports={str(port): None for port in resolved["ports"]},
        memory_available=(hardware["memory_mib"] - hardware.get("system_mib", 0)) * 1024**2,
        shared_memory=64 * GIB,
    )
    assert [(one.found, one.code) for one in preflight_problems(resolved, own)] == []
    other = "x86_64" if own["machine"] == "aarch64" else "aarch64"
    assert "unsupported-system" in [one.code for one in preflight_problems(resolved, {**own, "machine": other})]


def test_root_is_demanded_with_the_way_where_the_host_is_managed(resolved: Any) -> None:
    (problem,) = preflight_problems(resolved, box(is_root=False))
    assert problem.code == "root-required" and "-b" in problem.do and "-K" in problem.do
    own = {**resolved, "site": {**resolved["site"], "manage_host": False}}
    assert preflight_problems(own, box(is_root=False)) == []


@pytest.mark.parametrize(
    ("free", "found"),
    [
        ((60, 2000, 200), []),
        ((60, 20, 200), ["/models/original"]),
        ((3, 2000, 200), ["/opt/drafthouse"]),
        ((60, 2000, 10), ["/var/lib/docker"]),
        ((3, 20, 10), ["/models/original", "/opt/drafthouse", "/var/lib/docker"]),
    ],
)
def test_each_file_system_is_asked_for_what_comes_to_it(resolved: Any, free: Any, found: list[str]) -> None:
    places = ("/opt/drafthouse", "/models/original", "/var/lib/docker")
    disk = {place: size * GB for place, size in zip(places, free, strict=True)}
    apart = box(disk=disk, file_systems={place: number for number, place in enumerate(places)}, docker_root=places[2])
    told = preflight_problems(resolved, apart)
    assert [one.found.rpartition(" ")[2] for one in told] == found
    assert all(one.code == "disk-full" for one in told)
    variables = ("drafthouse_home", "drafthouse_models_dir", "container_engine_data_root")
    for one in told:
        variable = variables[places.index(one.found.rpartition(" ")[2])]
        assert f"set {variable} to" in one.do
    # On one file system the sum counts, and Docker's root is no exception.
    one = {**apart, "disk": dict.fromkeys(places, 60 * GB), "file_systems": dict.fromkeys(places, 7)}
    (problem,) = preflight_problems(resolved, one)
    assert "the engine's image" in problem.needed and "missing weights" in problem.needed
