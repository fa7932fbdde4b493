"""A well box as the doctor's readers see it, for tests that make one thing of it ill."""

from __future__ import annotations

import copy
from typing import Any

from drafthouse.host.firewall import rules as firewall
from drafthouse.operate.doctor.expected import monitoring_of, order_of
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.loader import load_suite

NOW = 1_800_000_000.0
DRIVER = "580.95.05"
IMAGE_ID = f"sha256:{'4f' * 32}"
GPU_PROFILE, CPU_PROFILE = "rtx6000-qwen-eagle3", "cpu-smollm2-ngram"
COUNTERS = """\
vllm:num_requests_running{{model_name="m"}} 0.0
vllm:spec_decode_num_drafts_total{{model_name="m"}} {drafts}.0
vllm:spec_decode_num_draft_tokens_total{{model_name="m"}} {tokens}.0
vllm:spec_decode_num_accepted_tokens_total{{model_name="m"}} {accepted}.0
"""
WITHOUT_COUNTERS = 'vllm:num_requests_running{model_name="m"} 0.0\n'


def wanted(profile: str = GPU_PROFILE, inventory: str = "workstation", **site: Any) -> Any:
    """A profile on an inventory's box, as it travels."""
    resolved: Any = resolved_profile(profile, {**site_of_inventory(inventory), **site})
    return {**resolved, "rented_vm": False}


def asked(resolved: Any) -> Any:
    """What a box is asked for the profile."""
    return order_of(resolved, load_suite("tune", ROOT / "benchmarks"))


def rules(ports: list[int], closed: list[int] | None = None) -> Any:
    """One family's rules as the role confirmed them, and as iptables-save prints them where they are in force."""
    wished = firewall.wishes(ports, [], ["docker0"], [22], closed or [])
    kept = firewall.rules(wished, 4)
    saved = [
        "*filter", ":INPUT ACCEPT [0:0]", ":DOCKER-USER - [0:0]", *(f":{chain} - [0:0]" for chain in firewall.OURS),
        f"-A INPUT -j {firewall.INPUT}", f"-A DOCKER-USER -j {firewall.DOCKER}", *kept, "COMMIT",
    ]  # fmt: skip
    return {"saved": "\n".join(saved) + "\n", "error": "", "kept": kept}


def chat(tokens: int = 48, **more: Any) -> Any:
    return {
        "status": 200,
        "error": "",
        "tokens": tokens,
        "seconds": 0.5,
        "draft_n": None,
        "per_iteration": None,
        **more,
    }


def well(resolved: Any) -> Any:
    """What is read of a box on which everything is as ``resolved`` has it."""
    site = resolved["site"]
    gpu = {
        "name": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "memory_mib": 97887, "driver": DRIVER,
        "compute_capability": "12.0", "uuid": "GPU-1",
    }  # fmt: skip
    packages = {name: {"version": f"{DRIVER}-1", "held": True} for name in ("nvidia-open", "libnvidia-compute")}
    container = {
        "name": "drafthouse-speculative", "arm": "speculative", "profile": resolved["profile"], "port": site["port"],
        "running": True, "status": "running", "image": resolved["engine"]["image"], "image_id": IMAGE_ID,
        "log": {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "3"}},
    }  # fmt: skip
    facts: Any = {
        "unread": {},
        "clock": {"time": NOW, "synchronised": True, "controller": [NOW - 1, NOW + 3]},
        "box": {
            "hostname": "box", "gpus": [gpu], "nvidia_pci_devices": ["0000:01:00.0"], "is_root": True, "has_apt": True,
            "ports": {str(port): None for port in resolved["ports"]},
        },
        "driver": {
            "smi": {"status": 0, "output": f"{gpu['name']}, {DRIVER}\n", "error": ""},
            "loaded": {"version": DRIVER, "open": True}, "module_on_disk": DRIVER, "packages": packages,
        },
        "unattended_upgrades": True,
        "kernel_log": [],
        "environment": {"made": True, "python": True, "error": "", "image": "", "versions": {}},
        "docker": {
            "error": "", "version": "28.5.1", "runtimes": ["io.containerd.runc.v2", "nvidia", "runc"],
            "root": "/var/lib/docker", "image": {"id": IMAGE_ID}, "containers": [container], "toolkit": "1.20.0",
            "cdi": {"/var/run/cdi/nvidia.yaml": DRIVER},
            "inside": {"container": container["name"], "output": "GPU 0: NVIDIA RTX PRO 6000 (UUID: GPU-1)\n"},
        },
        "logs": {"bounds": {"speculative": "20MB"}, "bytes": 3_000_000},
        "weights": {
            item["id"]: {
                "there": True, "link": "", "files": 20, "changed": [], "complete": True,
                "repo": item["details"].get("repo", ""), "asked": item["details"].get("revision", ""),
                "commit": "c0ffee",
            }
            for item in resolved["weights"]
        },
        "disk": {
            site["home"]: {"free": 200 * GB, "inodes": 10**6},
            site["models_dir"]: {"free": 90 * GB, "inodes": 10**6},
        },
        "firewall": {"not_here": "", "families": {"4": rules([site["port"]]), "6": rules([site["port"]])},
                     "pending": False, "enabled": True},
        "listening": {str(site["port"]): ["127.0.0.1"]},
        "served": [
            {"arm": "speculative", "profile": resolved["profile"], "port": site["port"], "running": True,
             "since": NOW - 90_000, "why": ""},
        ],
        "measured": False,
        "drift": "",
        "log_signs": {},
        "key": {"problem": None},
        "asked": {
            "health": {"status": 200, "error": ""},
            "without_key": {"status": 401, "error": "unauthorized"},
            "with_key": {"status": 200, "error": "", "models": [resolved["target"]["served_name"]]},
            "chats": [chat()], "counters_error": "", "speculates": None,
            "paths": {"asked": 30, "open": [], "error": ""},
            "before": COUNTERS.format(drafts=100, tokens=300, accepted=120),
            "after": COUNTERS.format(drafts=116, tokens=348, accepted=150),
        },
        "gateway": {"problem": None, "not_after": NOW + 3000 * 86400, "tls_error": "",
                    "paths": {"asked": 30, "open": [], "error": ""}} if resolved["gateway"] else {},
        "monitoring": {"problem": None, "rules": 30} if monitoring_of(resolved)["prometheus"] else {},
        "watchdog": {"runs": True, "written": NOW - 20} if "watchdog" in site else {},
        "outside": {
            "from": "neighbour", "why": "", "problem": None,
            "doors": [{"address": "192.0.2.7", "port": port, "is": port, "answers": False, "source": "192.0.2.9"}
                      for port in resolved["ports"]],
        },
    }  # fmt: skip
    if resolved["hardware"]["kind"] == "gpu":
        facts["environment"]["versions"]["nvidia-cuda-runtime"] = "13.0.88"
    install = resolved["engine"]["install"]
    for package in install["python_packages"] if install else []:
        name, _, version = package.partition("==")
        facts["environment"]["versions"][name] = version
    return facts


def ill(facts: Any, changes: Any) -> Any:
    """Facts with some values replaced; a key is the path to one: ``driver/loaded``, ``disk|/models|free``."""
    changed = copy.deepcopy(facts)
    for path, value in changes.items():
        place: Any = changed
        *parents, last = path.split("|" if "|" in path else "/")
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        place[int(last) if isinstance(place, list) else last] = value
    return changed
