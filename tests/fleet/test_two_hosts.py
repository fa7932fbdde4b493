"""One model over two hosts: the real vLLM on two sets of namespaces, both arms, from `site.yml` to the report.

What this proves is the way, not the speed: gloo over a bridge, and one core a host.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.procfs import commands
from tests.fleet.conftest import PORT, Pair
from tests.support.loosely import read_history

pytestmark = [pytest.mark.alone, pytest.mark.soak]

GONE_S = 15.0
PROFILES = ("two-hosts-tp", "two-hosts-dp")


def engines(pair: Pair, place: int) -> list[int]:
    """The processes of the engine on a host, its workers too, as this machine counts them."""
    namespace = Path(f"/proc/{pair.hosts[place].pid}/ns/pid").stat().st_ino
    found = []
    for pid, words in commands():
        try:
            there = Path(f"/proc/{pid}/ns/pid").stat().st_ino == namespace
        except OSError:
            continue
        text = " ".join(words).lower()
        if there and "vllm" in text and "together-" not in text:
            found.append(pid)
    return found


@pytest.fixture(scope="module", params=PROFILES)
def served(request: pytest.FixtureRequest, pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Any:
    reports = tmp_path_factory.mktemp("reports")
    ended = pair.play("site.yml", profile=request.param, report_folder=str(reports))
    assert ended.status == 0, ended.output[-4000:]
    (folder,) = (path for path in (reports / request.param).iterdir() if path.is_dir())
    return request.param, reports, ended, folder


def test_both_arms_are_measured_on_both_hosts(served: Any, pair: Pair, figure: Callable[[str], None]) -> None:
    profile, _, ended, folder = served
    report = json.loads((folder / "report.json").read_text())
    results = {arm: json.loads((folder / f"{arm}.json").read_text()) for arm in ("baseline", "speculative")}
    figure(f"{profile}: {report['verdict']['sentence']}; {ended.seconds:.0f} s from start to report")
    for arm in results.values():
        assert arm["failed"] == 0
    assert results["baseline"]["spec_decode_draft_tokens"] == 0
    assert results["speculative"]["spec_decode_draft_tokens"] > 50
    assert results["speculative"]["spec_decode_accepted_tokens"] > 0
    rows = {row["what"]: row["which"] for row in report["setup"]}
    assert rows["Hardware"].startswith("2 hosts x 1 device: ")
    assert engines(pair, 0)
    assert engines(pair, 1)


def test_a_second_run_changes_nothing(served: Any, pair: Pair) -> None:
    profile, reports, _, _ = served
    before = engines(pair, 0) + engines(pair, 1)
    again = pair.play("site.yml", profile=profile, report_folder=str(reports))
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    assert engines(pair, 0) + engines(pair, 1) == before


def test_when_the_head_goes_the_followers_engine_is_gone(
    served: Any, pair: Pair, figure: Callable[[str], None]
) -> None:
    """The head's supervisor is ended, so that nobody starts it again."""
    profile, reports, _, _ = served
    head, follower = pair.hosts
    pid = (pair.home(head) / "supervisor" / "supervisord.pid").read_text().strip()
    (lead,) = head.run("pgrep", "-f", "together-1.py lead").stdout.split()
    begun = time.monotonic()
    head.run("kill", "-KILL", pid, lead)
    while engines(pair, 1):
        assert time.monotonic() - begun < 120, "the follower's engine stays"
        time.sleep(0.1)
    gone_s = time.monotonic() - begun
    figure(f"{profile}: head killed, the follower's engine gone after {gone_s:.1f} s")
    assert gone_s < GONE_S
    assert "ending the engine" in (pair.home(follower) / "logs" / "follower.log").read_text()
    again = pair.play("site.yml", profile=profile, report_folder=str(reports))
    assert again.status == 0, again.output[-3000:]
    # By this run, or by the guard that the last one has left on the box and that was quicker.
    (*_, last) = read_history(pair.home(head))
    assert re.match("found away: |no sign of life from its run", last["why"])
    assert engines(pair, 0)
    assert engines(pair, 1)
    key = (pair.home(head) / "secrets" / "api_key").read_text().strip()
    body = {"model": "smollm2-135m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]}
    asked = head.run(
        "curl", "-sS", "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json",
        "-d", json.dumps(body), f"http://127.0.0.1:{PORT}/v1/chat/completions",
    )  # fmt: skip
    assert json.loads(asked.stdout)["usage"]["completion_tokens"] == 4
    # The API is on the head's loopback: not even its follower reaches it.
    assert follower.run("curl", "-sS", "-m", "5", f"http://{head.address}:{PORT}/health", check=False).returncode != 0
