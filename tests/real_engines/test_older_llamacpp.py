"""llama.cpp before its --spec-* flags: the same profile, the flags of that build, a draft that drafts."""

from __future__ import annotations

from typing import Any

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.engines import engine_home, llama_server, packaged_weights

VERSION = "2026.4.8929"


def test_the_flags_of_that_build_draft() -> None:
    site = {**site_of_inventory("local"), "host": "127.0.0.1"}
    resolved: Any = resolved_profile("cpu-smollm2-draft", site, {"engine_version": VERSION})
    weights = str(packaged_weights("smollm2-135m-q4"))
    flags = [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]
    assert flags[0] == "--model-draft"
    words = [weights if word == resolved["draft"]["path"] else word for word in flags]
    with llama_server(engine_home("llamacpp", VERSION), "-m", weights, "-c", "2048", *words) as server:
        timings = server.greedy("Say hello to the river.", 24)["timings"]
    # This build has no counters at /metrics yet; its answers tell.
    assert timings["draft_n"] > 0
    assert timings["draft_n_accepted"] > 0
