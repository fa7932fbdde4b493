"""What refusals say, in full: `refusals.txt` is their one snapshot, so that a change of words shows in one diff.

`WRITE_GOLDEN=1 pytest tests/unit/repository/test_refusal_texts.py` writes it anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import bench, main, profile_arguments, tune
from drafthouse.cloud.vast.client import key_of_environment
from drafthouse.cloud.vast.http import checked_url
from drafthouse.core import run_lease
from drafthouse.core.errors import DrafthouseError, Problem, describe
from drafthouse.host.docker.daemon_json import parse
from drafthouse.host.env_recipe import EnvRecipe, require_pins
from drafthouse.host.firewall import means, rules
from drafthouse.host.port_holder import port_taken
from drafthouse.operate.checks.registry import preflight_problems
from drafthouse.operate.failure_summary import gate_problems
from drafthouse.operate.tunnel import way_to
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.loader import load_suite
from drafthouse.prompts.suites import only_kinds
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import translate
from drafthouse.weights import hub_client

SNAPSHOT = Path(__file__).with_name("refusals.txt")
PROFILE = "rtx6000-qwen-eagle3"
NO_NAME: Any = {}
LEASE = run_lease.Lease(4711, "1", "another boot", "laptop", "make demo", "measuring", 0.0)
HTTP_SERVER: Any = {"pid": 7, "command": "python3 -m http.server", "ours": False}


def profile(name: str = PROFILE, *, inventory: str = "workstation", **overrides: Any) -> object:
    return resolved_profile(name, site_of_inventory(inventory), overrides)


def preflight(**changes: Any) -> list[Problem]:
    box: Any = {
        "hostname": "here", "system": "Linux", "machine": "x86_64", "python": "3.11.7",
        "python_executable": "/usr/bin/python3", "can_make_environments": True, "memory_available": 64 << 30,
        "gpus": [], "nvidia_pci_devices": [], "disk": {}, "writable": {}, "ports": {"8000": None}, "present": [],
        "is_root": False, "has_apt": True, "has_docker": True, "glibc": "2.36", **changes,
    }  # fmt: skip
    resolved: Any = resolved_profile(PROFILE, site_of_inventory("workstation"))
    places = (resolved["site"]["home"], resolved["site"]["models_dir"])
    full: Any = {"disk": dict.fromkeys(places, 1 << 30), "writable": dict.fromkeys(places, False)}
    return preflight_problems(resolved, box | full)


def suite() -> Any:
    return load_suite("mixed", ROOT / "benchmarks")


def pasted(text: str) -> object:
    return translate(text, load_catalog(ROOT), load_flags(ROOT), lambda name: None)


def judged() -> list[Problem]:
    report: Any = {
        "directory": "reports/small/1", "invalid": True, "reasons": ["the seeds differ: 0 and 5"],
        "verdict": "cannot say", "sentence": "cannot say: too few prompts",
        "gates": [{"word": "fails", "said": "tool calls: 3 of 20 answers are worse"}],
    }  # fmt: skip
    return gate_problems(report, "small", "auto")


NFTABLES = means.FirewallMeans(False, ("iptables",), docker_backend="nftables")
CASES: dict[str, Callable[[], object]] = {
    "a verb": lambda: main.main(["tne"]),
    "an option": lambda: tune.options().parse_args(["small", "--no-such"]),
    "a missing option": lambda: tune.options().parse_args([]),
    "a value of an option": lambda: profile_arguments.overrides(["speculation"]),
    "a time": lambda: tune.seconds_of("later"),
    "bench without an address": lambda: bench.main(["--base-url", "127.0.0.1:1", "--model", "m"]),
    "a profile's name": lambda: profile("rtx6000-qwen-eagle"),
    "an inventory": lambda: site_of_inventory("laptop"),
    "an unknown key": lambda: profile(serve={"dtyp": "auto"}),
    "a wrong type": lambda: profile(speculation={"num_speculative_tokens": "three"}),
    "a number out of range": lambda: profile(speculation={"num_speculative_tokens": 0}),
    "an unknown target": lambda: profile(target="qwen3-32c"),
    "a method": lambda: profile(speculation={"method": "eagl3"}),
    "a method without its draft": lambda: profile(speculation={"draft": None}),
    "an engine's version": lambda: profile(engine_version="0.1.0"),
    "a context too long": lambda: profile(serve={"max_model_len": 10_000_000}),
    "a box that has nothing": preflight,
    "musl and no Docker": lambda: preflight(glibc="", has_docker=False, can_make_environments=False),
    "another run": lambda: [run_lease.refused(LEASE, "/opt/drafthouse")],
    "a port in use": lambda: [port_taken(8000, HTTP_SERVER, "127.0.0.1")],
    "several hosts": lambda: way_to({"one": NO_NAME, "two": NO_NAME}, "", "inventory/vastai"),
    "a host": lambda: way_to({"one": NO_NAME}, "tow", "inventory/vastai"),
    "the firewall's wishes": lambda: rules.wishes([22, 70000], ["10.0.0.0/8x"], ["a b"], [22]),
    "the firewall's means": lambda: means.refusals(NFTABLES),
    "daemon.json": lambda: parse(b'{"log-driver": "a", "log-driver": "b"}'),
    "an environment": lambda: require_pins(EnvRecipe("/opt/env", ["vllm"])),
    "no key of vast.ai": lambda: key_of_environment({}, Path("/home/none")),
    "vast.ai's address": lambda: checked_url("http://example.org"),
    "no answer of the hub": lambda: [hub_client.out_of_reach("org/model", "https://hub", "HTTP 503", 3)],
    "a suite": lambda: load_suite("mixd", ROOT / "benchmarks"),
    "a category": lambda: only_kinds(suite(), ["chats"]),
    "a pasted command": lambda: pasted("vllm serve x -tp two"),
    "nothing pasted": lambda: pasted("echo hello"),
    "a measured change": judged,
}  # fmt: skip


def told() -> Iterator[str]:
    """Yield what each case says, under its name."""
    for name, case in CASES.items():
        try:
            answer = case()
        except DrafthouseError as error:
            answer = error.problems
        assert isinstance(answer, list) and answer, f"{name} is not refused: {answer!r:.80}"
        yield f"# {name}\n\n{describe(answer)}\n"


def test_what_refusals_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    text = "\n".join(told()).replace(str(ROOT), "ROOT")
    if "WRITE_GOLDEN" in os.environ:
        SNAPSHOT.write_text(text, "utf-8")
    assert text == SNAPSHOT.read_text("utf-8")
