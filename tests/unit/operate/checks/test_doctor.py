"""Each of the doctor's checks: ok on a well box; warn or fail, with what to do, for each thing that may be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.first_process import facts as first_process_facts
from drafthouse.core.versions import as_version
from drafthouse.operate.checks.finding import FAIL, NOT_HERE, OK, STATUSES, WARN, Finding, exit_code, report
from drafthouse.operate.checks.ports import doors
from drafthouse.operate.checks.registry import CHECKS, PARTS, check_parts, diagnose, preflight_problems
from drafthouse.operate.doctor.expected import ASK_TOKENS, ASKS, asks_of
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.loader import load_suite
from tests.support.doctors import (
    COUNTERS,
    CPU_PROFILE,
    DRIVER,
    NOW,
    WITHOUT_COUNTERS,
    asked,
    chat,
    ill,
    rules,
    wanted,
    well,
)

pytestmark = pytest.mark.processes

GPU_BOX = wanted()
CPU_BOX = wanted(CPU_PROFILE, "local")
BEHIND_GATEWAY = wanted(gateway=True, gateway_name="llm.example.org")
TWO_CARDS = wanted("rtx5090x2-muse-dflash")
OPENED = wanted(allow_cidrs=["192.0.2.0/24"])
WATCHED = wanted(
    allow_cidrs=["192.0.2.0/24"], monitoring={"enabled": True, "listen": "0.0.0.0"}, watchdog={"mode": "restart"}
)
PROMETHEUS, NODE = 9490, 9491

MISMATCH = {
    "status": 18,
    "output": "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126\n",
    "error": "",
}
NO_SMI = {"status": None, "output": "", "error": ""}
HANGS = {"status": None, "error": "timed out"}
REFUSED = {"status": None, "error": "[Errno 111] Connection refused"}
STILL = COUNTERS.format(drafts=100, tokens=300, accepted=120)
PROBLEM = {"where": "/opt/drafthouse/secrets/api_key", "found": "mode 0644", "needed": "0600", "do": "chmod 600 it"}


def checks(resolved: Any, facts: Any, *parts: str) -> dict[str, Finding]:
    found = diagnose(resolved, facts, parts)
    assert len({check.name for check in found}) == len(found)
    return {check.name: check for check in found}


def with_gateway(facts: Any) -> Any:
    """The same box, whose firewall and neighbour see the gateway's port too."""
    family = rules([443], closed=[8000])
    return ill(facts, {"firewall/families/4": family, "firewall/families/6": family})


def watched(facts: Any) -> Any:
    """The same box, whose firewall lets some into Prometheus and Grafana; the neighbour is one of them."""
    seen = [
        {"address": "192.0.2.7", "port": port, "is": port, "answers": port != NODE, "source": "192.0.2.9"}
        for port in (8000, PROMETHEUS, NODE)
    ]
    family, every = rules([8000, PROMETHEUS, 9494]), ["0.0.0.0"]
    return ill(
        facts,
        {
            "firewall/families/4": family, "firewall/families/6": family, "outside/doors": seen,
            "listening": {"8000": every, str(PROMETHEUS): every, str(NODE): ["127.0.0.1"]},
        },
    )  # fmt: skip


def on_two_cards(facts: Any) -> Any:
    """The same box with two GPUs, of which each container sees both."""
    gpu = {"name": "NVIDIA GeForce RTX 5090", "memory_mib": 32607, "driver": DRIVER, "compute_capability": "12.0"}
    gpus = [{**gpu, "uuid": f"GPU-{number}"} for number in (1, 2)]
    seen = "".join(f"GPU {place}: NVIDIA GeForce RTX 5090 (UUID: {one['uuid']})\n" for place, one in enumerate(gpus))
    smi = f"{gpu['name']}, {DRIVER}\n" * 2
    return ill(facts, {"box/gpus": gpus, "docker/inside/output": seen, "driver/smi/output": smi})


WELL = {
    "workstation": (GPU_BOX, well(GPU_BOX)),
    "this machine": (CPU_BOX, ill(well(CPU_BOX), {"firewall/not_here": "a rental is its provider's to filter"})),
    "gateway": (BEHIND_GATEWAY, with_gateway(well(BEHIND_GATEWAY))),
    "watched": (WATCHED, watched(well(WATCHED))),
    "two cards": (TWO_CARDS, on_two_cards(well(TWO_CARDS))),
}


@pytest.mark.parametrize("box", WELL)
def test_nothing_is_found_on_a_well_box(box: str) -> None:
    resolved, facts = WELL[box]
    found = diagnose(resolved, facts)
    assert [check for check in found if check.status not in (OK, NOT_HERE)] == []
    assert exit_code(found) == 0
    assert sum(check.status == OK for check in found) >= 10
    # What does not apply says why, and is not counted as ok.
    assert all(len(check.found) > 10 for check in found if check.status == NOT_HERE)


def test_every_check_is_ok_somewhere() -> None:
    found = [check for resolved, facts in WELL.values() for check in diagnose(resolved, facts)]
    ever = {check.name for check in found if check.status == OK}
    fallible = {name for _, _, name, *_ in FAULTS} - {"as it was served"}
    assert fallible <= ever | {name for name in fallible if name.startswith("weights")}


def test_the_list() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert {check.part for check in CHECKS} == set(PARTS)
    # Each is asked at some time, and whatever is asked before a run needs the box's facts alone.
    assert all(check.before or check.after for check in CHECKS)
    assert all(bool(check.after) == bool(check.reads) for check in CHECKS)
    resolved, facts = WELL["workstation"]
    assert {check.id for check in diagnose(resolved, facts)} <= set(ids)
    assert preflight_problems(resolved, facts["box"], prepared=True) == []
    page = (ROOT / "docs/doctor.md").read_text()
    assert [one for one in ids if f"`{one}`" not in page] == []


TWO = [{"name": "NVIDIA RTX PRO 6000 Blackwell", "memory_mib": 97887, "uuid": f"GPU-{number}"} for number in (1, 2)]
INVOCATIONS = {"path": "/invocations", "gives": "work", "status": 405}
HEALTH = {"path": "/health", "gives": "nothing", "status": 405}
GPU, CPU, GATE, OPEN, WATCH = "workstation", "this machine", "gateway", "opened", "watched"
# box, what is ill, the check, its status, what it must have found, what it must advise
FAULTS: list[tuple[str, dict[str, Any], str, str, str, str]] = [
    (GPU, {"box/gpus": [], "driver/smi": NO_SMI}, "GPU", FAIL, "no working driver", "nvidia-smi"),
    (GPU, {"box/gpus": [], "box/nvidia_pci_devices": []}, "GPU", FAIL, "no NVIDIA GPU", "make profiles"),
    ("two cards", {"box/translated_pci_devices": ["0000:01:00.0", "0000:02:00.0"]}, "GPUs together", WARN,
     "an IOMMU translates", "iommu=pt"),
    (GPU, {"driver/smi": NO_SMI, "driver/loaded": {}}, "driver", FAIL, "the driver does not respond",
     "site.yml --tags host"),
    (GPU, {"driver/smi/output": "NVIDIA made, 570.211.01\n", "driver/loaded/version": "570.211.01"},
     "driver", FAIL, "570.211.01", "site.yml --tags host"),
    (GPU, {"driver/smi/output": "NVIDIA made, 580.10.01\n"}, "driver", WARN, "580.10.01", "site.yml --tags host"),
    (GPU, {"driver/smi": MISMATCH}, "driver and library", FAIL, "library 580.126", "reboot"),
    (GPU, {"driver/module_on_disk": "580.126.20"}, "driver and library", WARN, "580.126.20 is installed", "reboot"),
    (GPU, {"environment/versions/nvidia-cuda-runtime": "13.0.88", "driver/smi/output": "NVIDIA made, 570.1.1\n"},
     "CUDA libraries", FAIL, "driver branch 570", "site.yml --tags host"),
    (GPU, {"environment/versions/nvidia-cuda-runtime": "15.0.1"}, "CUDA libraries", WARN, "CUDA 15.0.1",
     "release notes"),
    (GPU, {"driver/packages/nvidia-open/held": False}, "updates held", WARN, "1 driver package not held",
     "apt-mark hold"),
    (GPU, {"kernel_log": ["NVRM: Xid (PCI:0000:31:00): 79, pid=1"]}, "kernel's log", WARN, "fallen off", "power"),
    (GPU, {"docker/error": "a container engine that does not answer"}, "Docker", FAIL, "does not answer", "systemctl"),
    (GPU, {"docker/toolkit": ""}, "NVIDIA toolkit", FAIL, "no nvidia-ctk", "site.yml --tags host"),
    (GPU, {"docker/runtimes": ["runc"]}, "NVIDIA toolkit", FAIL, "runtimes: runc", "site.yml --tags host"),
    (GPU, {"docker/cdi": {"/etc/cdi/nvidia.yaml": "570.1.1"}}, "CDI", FAIL, "names driver 570.1.1", "nvidia-ctk cdi"),
    (GPU, {"docker/inside/output": "Failed to initialize NVML: Unknown Error"}, "GPU in the container", FAIL,
     "Unknown Error", "docker restart drafthouse-speculative"),
    (GPU, {"box/gpus": TWO}, "GPU in the container", FAIL,
     "drafthouse-speculative sees GPU-1, but not GPU-2", "docker restart drafthouse-speculative"),
    (GPU, {"docker/image": None}, "image", FAIL, "is not on the box", "make with"),
    (GPU, {"docker/containers/0/image_id": "sha256:0000"}, "image", WARN, "drafthouse-speculative runs", "make with"),
    (GPU, {"docker/containers/0/log": {"Type": "json-file", "Config": {}}}, "log rotation", FAIL,
     "without max-size", "make with"),
    (CPU, {"environment/made": False}, "engine's environment", FAIL, "incomplete", "site.yml --tags host"),
    (CPU, {"environment/python": False, "environment/error": "no such file"}, "engine's environment", FAIL,
     "does not start: no such file", "site.yml --tags host"),
    (CPU, {"environment/versions/xllamacpp": "2026.4.8929"}, "engine's environment", FAIL, "2026.4.8929", "remove"),
    (CPU, {"logs/bounds": {"speculative": "0"}}, "log rotation", FAIL, "no size limit for speculative", "make with"),
    (GPU, {"weights/qwen3-32b/there": False}, "weights qwen3-32b", FAIL, "nothing at", "make weights"),
    (GPU, {"weights/qwen3-32b/files": 0}, "weights qwen3-32b", FAIL, "never verified", "make verify"),
    (GPU, {"weights/qwen3-32b/changed": ["model-00003-of-00017.safetensors"]}, "weights qwen3-32b", FAIL,
     "1 file of 20 missing or changed since verification: model-00003", "make verify"),
    (GPU, {"weights/qwen3-32b/complete": False}, "weights qwen3-32b", FAIL, "unfinished", "make weights"),
    (GPU, {"weights/qwen3-32b/asked": "main", "weights/qwen3-32b/commit": "beef"}, "weights qwen3-32b", FAIL,
     "at beef", "make weights"),
    (GPU, {"disk|/models/original|free": 2 * GB}, "disk", WARN, "2.0 GB free at /models/original", "make prune"),
    (GPU, {"disk|/models/original|free": GB // 2}, "disk", FAIL, "0.5 GB free", "make prune"),
    (GPU, {"disk|/models/original|inodes": 0}, "disk", FAIL, "no free inodes", "make prune"),
    (GPU, {"clock/time": NOW - 61}, "clock", WARN, "60 s behind", "timedatectl"),
    (GPU, {"clock/time": NOW + 4000}, "clock", FAIL, "3,997 s ahead", "timedatectl"),
    (CPU, {"clock/controller": None, "clock/synchronised": False}, "clock", WARN, "not synchronised", "timedatectl"),
    (GPU, {"firewall/families/6/saved": "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"}, "firewall", FAIL, "IPv6:",
     "--tags host"),
    (GPU, {"firewall/families/4/kept": []}, "firewall", FAIL, "IPv4: our rules were never", "--tags host"),
    (GPU, {"firewall/families/4/error": "iptables-save is not there"}, "firewall", FAIL, "not there", "--tags host"),
    (GPU, {"firewall/enabled": False}, "firewall", FAIL, "not enabled", "--tags host"),
    (GPU, {"firewall/pending": True}, "firewall", FAIL, "trial period", "--tags host"),
    (GPU, {"firewall/families/4": rules([9000])}, "firewall", FAIL, "port 8000 is not protected", "--tags host"),
    (GPU, {"box/ports/8000": {"pid": 7, "command": "python3 -m http.server", "ours": False}}, "ports from inside", FAIL,
     "port 8000 is taken (pid 7: python3 -m http.server)", "drafthouse_port"),
    (GPU, {"listening/8000": ["0.0.0.0", "127.0.0.1"]}, "ports from inside", FAIL, "listens on 0.0.0.0", "make with"),
    (GPU, {"served": []}, "served", FAIL, "nothing of ours", "make logs"),
    (GPU, {"served/0/running": False, "served/0/why": "exit status 1"}, "served", FAIL, "exit status 1", "make logs"),
    (GPU, {"served/0/profile": "rtx6000-gptoss-ngram"}, "served", FAIL, "of rtx6000-gptoss-ngram",
     "make doctor PROFILE=rtx6000-gptoss-ngram"),
    (GPU, {"drift": "serve.sh differs from the release's"}, "as it was served", FAIL, "serve.sh", "make rollback"),
    (GPU, {"key/problem": PROBLEM}, "API key", FAIL, "mode 0644", "chmod 600"),
    (GPU, {"asked/without_key/status": 400}, "key required", FAIL, "400 to a chat request without", "make with"),
    (GPU, {"asked/health": REFUSED}, "engine answers", FAIL, "Connection refused", "make logs"),
    (GPU, {"asked/health": REFUSED, "served/0/since": NOW - 30}, "engine answers", WARN, "30 s after its start",
     "wait"),
    # One that hangs does not load, however young it is.
    (GPU, {"asked/health": HANGS, "served/0/since": NOW - 30}, "engine answers", FAIL, "timed out", "make logs"),
    # llama.cpp shows its models to everybody, and refuses the request.
    (GPU, {"asked/chats": [chat(0, status=401, error="Invalid API Key")]}, "engine answers", FAIL, "401 with the key",
     "different key"),
    (GPU, {"measured": True}, "served", WARN, "a measurement or change", "when it has finished"),
    (GPU, {"asked/with_key/status": 401, "asked/with_key/models": []}, "engine answers", FAIL, "401 with the key",
     "make"),
    (GPU, {"asked/with_key/models": ["another"]}, "engine answers", FAIL, "it serves another", "port 8000"),
    (GPU, {"asked/chats": [chat(0, status=500, error="CUDA error")]}, "engine answers", FAIL, "500: CUDA error",
     "logs"),
    (GPU, {"asked/after": STILL}, "speculation", FAIL, "did not change", "make render"),
    (GPU, {"asked/after": WITHOUT_COUNTERS, "asked/before": WITHOUT_COUNTERS}, "speculation", FAIL, "runs without",
     "serve"),
    (GPU, {"asked/after": "", "asked/before": "", "asked/counters_error": "404"}, "speculation", WARN, "404",
     "counters"),
    (GPU, {"served/0/arm": "baseline"}, "speculation", FAIL, "baseline arm drafted 48", "make with"),
    (CPU, {"asked/after": STILL}, "speculation", WARN, "nothing drafted", "lookup"),
    (CPU, {"asked/after": STILL, "asked/speculates": True}, "speculation", WARN, "nothing drafted", "lookup"),
    (CPU, {"asked/after": STILL, "asked/speculates": False}, "speculation", FAIL, "runs without", "make render"),
    (GATE, {"gateway/problem": PROBLEM}, "gateway", FAIL, "mode 0644", "chmod"),
    (GATE, {"gateway/paths/open": [INVOCATIONS]}, "gateway", FAIL, "lets through /invocations", "--tags gateway"),
    (GPU, {"asked/paths/error": "no answer to /load"}, "open paths", WARN, "no answer to /load", "make logs"),
    (OPEN, {"asked/paths/open": [HEALTH, INVOCATIONS]}, "open paths", FAIL, "drafthouse_allow_cidrs can ask for"
     " /invocations (make it compute)", "drafthouse_gateway: true"),
    (OPEN, {"asked/paths/open": [{**INVOCATIONS, "path": "/new", "gives": ""}]}, "open paths", FAIL, "/new", "gateway"),
    (GATE, {"gateway/not_after": None, "gateway/tls_error": "certificate has expired"}, "certificate", FAIL, "expired",
     "site.yml --tags gateway"),
    (GATE, {"gateway/not_after": NOW + 3 * 86400}, "certificate", WARN, "ends in 3.0 days", "llm.example.org"),
    (GPU, {"outside/doors/0/answers": True}, "ports from outside", FAIL, "8000 is open, not closed", "--tags host"),
    (OPEN, {"outside/doors/0/answers": False}, "ports from outside", FAIL, "8000 is closed, not open", "--tags host"),
    (GPU, {"outside/problem": PROBLEM}, "ports from outside", WARN, "mode 0644", "chmod"),
    (WATCH, {"firewall/families/4": rules([8000, 9494])}, "firewall", FAIL, "port 9490 is not protected",
     "--tags host"),
    (WATCH, {"listening/9491": ["0.0.0.0"]}, "ports from inside", FAIL, "9491 (node) listens on 0.0.0.0",
     "site.yml --tags monitoring"),
    (WATCH, {"outside/doors/1/source": "198.51.100.1", "outside/doors/0/answers": False}, "ports from outside", FAIL,
     "9490 is open, not closed", "--tags host"),
    (WATCH, {"outside/doors/2/answers": True}, "ports from outside", FAIL, "9491 is open, not closed", "--tags host"),
    (WATCH, {"monitoring/problem": PROBLEM}, "monitoring", FAIL, "mode 0644", "chmod"),
    (WATCH, {"watchdog/runs": False}, "watchdog", FAIL, "does not run", "make logs ONLY=watchdog"),
    (WATCH, {"watchdog/written": NOW - 900}, "watchdog", FAIL, "900 s ago", "site.yml --tags watchdog"),
    (WATCH, {"watchdog/written": None}, "watchdog", WARN, "has not checked yet", "run make doctor again"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("box", "changes", "name", "status", "found", "do"), FAULTS, ids=[f"{fault[2]}: {fault[4]}" for fault in FAULTS]
)
def test_each_fault_is_found_and_named(box: str, changes: Any, name: str, status: str, found: str, do: str) -> None:
    if box == OPEN:
        resolved, facts = OPENED, ill(well(OPENED), {"listening/8000": ["0.0.0.0"], "outside/doors/0/answers": True})
        assert checks(resolved, facts)["ports from outside"].status == OK
    else:
        resolved, facts = WELL[box]
    check = checks(resolved, ill(facts, changes))[name]
    assert (check.status, found in check.found) == (status, True), check
    assert do in check.do
    assert check.needed
    assert exit_code([check]) == {WARN: 1, FAIL: 2}[status]
    # One line each, whatever the words.
    (line,) = check.line.splitlines()
    assert line.startswith({WARN: "warning", FAIL: "failed"}[status])
    assert name in line
    assert f"do: {check.do.split()[0]}" in line


def test_docker_limits_the_files_of_its_local_driver_itself() -> None:
    resolved, facts = WELL[GPU]
    check = checks(resolved, ill(facts, {"docker/containers/0/log": {"Type": "local", "Config": {}}}))["log rotation"]
    assert (check.status, check.found) == (OK, "local, 20m x 5")


def test_every_fallible_check_has_a_fault_here() -> None:
    names = {check.name for resolved, facts in WELL.values() for check in diagnose(resolved, facts)}
    tried = {name for _, _, name, *_ in FAULTS}
    assert {name for name in names - tried if not name.startswith("weights")} == set()


def test_what_cannot_be_asked_is_not_called_well() -> None:
    resolved, facts = WELL["workstation"]
    nothing = checks(resolved, ill(facts, {"served": []}), "server")
    for name in ("key required", "open paths", "engine answers", "speculation"):
        assert nothing[name].status == NOT_HERE
    watched_box, unread = WELL["watched"][0], {"served": [], "monitoring/problem": PROBLEM}
    assert checks(watched_box, ill(WELL["watched"][1], unread), "server")["monitoring"].status == NOT_HERE
    without_key = checks(resolved, ill(facts, {"key/problem": PROBLEM, "asked/chats": []}), "server")
    assert without_key["engine answers"].status == NOT_HERE
    loading = {"asked/health": {"status": 503, "error": ""}, "asked/without_key/status": 503, "asked/chats": []}
    assert checks(resolved, ill(facts, loading), "server")["key required"].status == NOT_HERE
    # Nothing of it was read: a request of ours would be measured.
    measured = checks(resolved, {**facts, "measured": True, "served": None, "asked": None, "gateway": None}, "server")
    assert {check.status for name, check in measured.items() if name not in ("served", "API key")} == {NOT_HERE}
    baseline = checks(resolved, ill(facts, {"served/0/arm": "baseline", "asked/after": STILL}), "server")
    assert baseline["speculation"].status == NOT_HERE
    assert "the verdict" in baseline["speculation"].found


def test_what_is_open_on_loopback_alone_is_said_and_well() -> None:
    resolved, facts = WELL["workstation"]
    check = checks(resolved, ill(facts, {"asked/paths/open": [HEALTH, INVOCATIONS]}), "server")["open paths"]
    assert (check.status, "open on loopback only: /invocations (make it compute)" in check.found) == (OK, True), check
    opened = checks(OPENED, ill(well(OPENED), {"asked/paths/open": [HEALTH]}), "server")["open paths"]
    assert (opened.status, "30 paths requested" in opened.found) == (OK, True), opened
    loading = checks(resolved, ill(facts, {"asked/paths": None}), "server")["open paths"]
    assert loading.status == NOT_HERE


def test_an_engine_that_asks_nobody_for_a_key_warns_unless_a_gateway_does() -> None:
    resolved, facts = WELL["workstation"]
    open_engine = {**resolved, "engine": {**resolved["engine"], "has_key": False}}
    alone = checks(open_engine, ill(facts, {"asked/without_key/status": 200}), "server")["key required"]
    assert alone.status == WARN
    assert "drafthouse_gateway" in alone.do
    behind = {**BEHIND_GATEWAY, "engine": {**BEHIND_GATEWAY["engine"], "has_key": False}}
    assert checks(behind, WELL["gateway"][1], "server")["key required"].status == NOT_HERE


@pytest.mark.parametrize(
    ("chats", "status", "found"),
    [
        ([chat(draft_n=32)], OK, "32 tokens drafted"),
        ([chat(draft_n=0)], FAIL, "runs without"),
        ([chat(per_iteration=2.4)], OK, "several tokens per step"),
        ([chat(per_iteration=1.0)], WARN, "no drafts visible in"),
    ],
)
def test_where_there_are_no_counters_the_answers_tell(chats: list[Any], status: str, found: str) -> None:
    resolved, facts = WELL["workstation"]
    check = checks(resolved, ill(facts, {"asked/chats": chats, "asked/before": "", "asked/after": ""}))["speculation"]
    assert (check.status, found in check.found) == (status, True), check


def test_drafts_are_called_so_where_their_tokens_are_not_counted() -> None:
    resolved, facts = WELL["workstation"]
    page = "sglang:num_requests_total {}\nsglang:generation_tokens_total {}\nsglang:spec_verify_calls_total {}\n"
    moved = {"asked/before": page.format(1, 11, 5), "asked/after": page.format(2, 42, 15)}
    check = checks(resolved, ill(facts, {"asked/chats": [chat()], **moved}))["speculation"]
    assert (check.status, check.found) == (OK, "10 drafts, 20 tokens accepted in 1 request")


def test_a_part_that_cannot_be_read_is_a_failed_check_with_the_reason() -> None:
    resolved, facts = WELL["workstation"]
    unread = {"runtime": {**PROBLEM, "found": "PermissionError: /var/run/docker.sock"}}
    found = checks(resolved, {**facts, "unread": unread, "docker": None})
    assert found["runtime"].status == FAIL
    assert "PermissionError" in found["runtime"].found
    assert found["engine answers"].status == OK


def test_only_the_parts_that_are_asked_for() -> None:
    resolved, facts = WELL["workstation"]
    assert {name.split()[0] for name in checks(resolved, facts, "weights")} == {"weights"}
    assert set(PARTS) == {"gpu", "runtime", "weights", "box", "server", "outside"}
    with pytest.raises(DrafthouseError, match="write 'weights'"):
        check_parts(["wheights"])


def test_a_profile_for_the_cpu_says_so_once() -> None:
    found = checks(*WELL["this machine"], "gpu")
    assert [(name, check.status) for name, check in found.items()] == [("GPU", NOT_HERE)]


# --- from outside -----------------------------------------------------------------------------------


def test_doors_are_our_own_alone() -> None:
    assert doors(GPU_BOX, ["192.0.2.7", "2001:db8::7"], None) == [
        {"address": "192.0.2.7", "port": 8000, "is": 8000}, {"address": "2001:db8::7", "port": 8000, "is": 8000},
    ]  # fmt: skip
    given = {"PUBLIC_IPADDR": "198.51.100.1", "VAST_TCP_PORT_8443": "41234", "VAST_TCP_PORT_22": "40022"}
    rented = first_process_facts(given)
    # Behind the address that many boxes share, other ports are other people's.
    assert doors(GPU_BOX, ["198.51.100.1"], rented) == []
    behind = wanted("h100-llama33-draft3b", "vastai", gateway=True)
    assert doors(behind, ["ssh5.example.org"], rented) == [{"address": "198.51.100.1", "port": 41234, "is": 8443}]
    # One that tells nothing is knocked on nowhere, a whole rented machine either.
    assert doors(behind, ["198.51.100.1"], first_process_facts({})) == []
    vm: Any = {**GPU_BOX, "rented_vm": True}
    assert doors(vm, ["198.51.100.1"], None) == []
    # Also what must not be reached: the exporters.
    assert [door["port"] for door in doors(WATCHED, ["192.0.2.7"], None)] == [8000, 9490, 9492, 9491, 9493, 9494]


def test_a_second_address_that_is_out_of_reach_proves_nothing() -> None:
    seen = [
        {"address": address, "port": 8000, "is": 8000, "answers": answers, "source": source}
        for address, answers, source in (("192.0.2.7", True, "192.0.2.9"), ("2001:db8::7", False, ""))
    ]
    facts = ill(well(OPENED), {"outside/doors": seen, "listening/8000": ["0.0.0.0"]})
    assert checks(OPENED, facts, "outside")["ports from outside"].status == OK
    # But one that answers to somebody who is not allowed counts, wherever it is.
    seen[1] |= {"answers": True}
    found = checks(OPENED, ill(facts, {"outside/doors": seen}), "outside")["ports from outside"]
    assert found.status == FAIL
    assert "2001:db8::7 port 8000 is open" in found.found


def test_nobody_to_knock() -> None:
    nobody: Any = {"from": "", "why": "the box is this machine", "problem": None, "doors": []}
    assert checks(GPU_BOX, {**well(GPU_BOX), "outside": nobody}, "outside")["ports from outside"].status == NOT_HERE


# --- what is asked, and how it is said --------------------------------------------------------------


@pytest.mark.parametrize("kinds", [[], ["summarise-long"]], ids=["the profile's", "none that the suite has"])
def test_no_experiments_prompt_is_asked(kinds: list[str]) -> None:
    for name in (CPU_PROFILE, "rtx6000-qwen-eagle3"):
        resolved: Any = resolved_profile(name, {**site_of_inventory("workstation"), "runtime": "process"})
        own = json.dumps(resolved["suites"])
        experiment = {**resolved["experiment"], "kinds": kinds or resolved["experiment"]["kinds"]}
        other: Any = {**resolved, "experiment": experiment}
        bodies = asks_of(other, load_suite("tune", ROOT / "benchmarks"))
        assert 1 <= len(bodies) <= ASKS
        for body in bodies:
            assert body["max_tokens"] <= ASK_TOKENS
            assert "stream" not in body
            assert json.dumps(body["messages"])[1:-1] not in own


def test_the_whole_is_plain_data() -> None:
    told = asked(GPU_BOX)
    assert json.loads(json.dumps(told)) == told
    assert len(json.dumps(told)) < 20_000


def test_exit_codes_and_lines() -> None:
    def one(status: str) -> Finding:
        return Finding(status, "found it\nthere", "something", "do it", "id", "name")

    assert [exit_code([one(status)]) for status in STATUSES] == [0, 1, 2, 0]
    assert exit_code([one(OK), one(WARN), one(FAIL)]) == 2
    # Nothing looked at is nothing proven.
    assert exit_code([]) == 2
    assert exit_code([one(WARN).as_dict()]) == 1
    *lines, total = report("lab", [one(FAIL), one(WARN), one(OK), one(NOT_HERE), one(WARN)])
    assert total == "lab: 1 ok, 2 warnings, 1 failed, 1 skipped"
    assert report("lab", [one(OK)])[-1] == "lab: 1 ok"
    assert lines[0].split() == ["failed", "name", "found", "it", "there;", "needed:", "something;", "do:", "do", "it"]
    assert "do:" not in lines[2]
    assert set(one(OK).as_dict()) == {"id", "name", "status", "found", "needed", "do"}


def test_the_driver_that_is_needed_comes_from_the_catalogue() -> None:
    need = GPU_BOX["rental"]
    assert (need["cuda"], need["driver"]) == ("13.0", "580.65.06")
    assert as_version(need["driver"]) < as_version(DRIVER)
    assert (ROOT / "playbooks" / "tasks" / "doctor.yml").is_file()
