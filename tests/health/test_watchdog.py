"""The watchdog with the real llama.cpp behind the real gateway: text that drafts well, text that does not, and back.

Every client request goes through the gateway and is counted: not one may fail, whatever serves.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.gateway_door import certificate_file
from drafthouse.core.box_archive import archive_file
from tests.e2e.conftest import Ended, Play
from tests.support.gateway import real_caddy
from tests.support.loosely import read_history
from tests.support.ports import free_port
from tests.support.tales import TALES
from tests.support.watchdog import read_journal

# The box is measured first: what a draft costs decides, and beside other tests it may seem to cost nothing.
pytestmark = pytest.mark.alone

PROFILE = "cpu-smollm2-ngram"
#: Times of a test: a look a second, and a dwell time of a few starts of the engine.
DWELL_S, TRIAL_S = 20, 15
WATCHDOG = {
    "mode": "restart", "every_s": 1, "look_s": 10, "patience_s": 3, "dwell_s": DWELL_S, "least_drafted": 60,
    "trial_after_s": TRIAL_S, "trial_at_most_s": TRIAL_S, "drain_s": 60,
}  # fmt: skip
#: Enough to know what a drafted token costs here; the verdict is not what is looked at.
OVERRIDES = {"experiment": TALES}
PATIENCE_S = 600.0
PARAGRAPH = (
    "The ferry leaves the north pier at seven in the morning, and it carries bread, letters and two bicycles "
    "over to the island, where the harbour master writes every name into his book."
)
# Two words in a random order: three of them have stood there before almost always, and what followed then is no help.
GRAMMAR = 'root ::= (" red" | " blue")+'


def copying(number: int) -> dict[str, Any]:
    """A request whose answer stands in its prompt."""
    text = f"Repeat this text word by word, nothing else ({number}):\n{PARAGRAPH}\n{PARAGRAPH}"
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 64}


def tossing(number: int) -> dict[str, Any]:
    """A request whose answer is a coin that is tossed."""
    sampling = {"temperature": 4.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": number}
    messages = [{"role": "user", "content": f"Say red or blue, again and again ({number})."}]
    return {"messages": messages, "max_tokens": 96, "grammar": GRAMMAR, **sampling}


@dataclass
class Clients:
    """Two clients that ask one request after the other through the gateway, until they are told to stop."""

    port: int
    trust: ssl.SSLContext
    key: str
    kind: Callable[[int], dict[str, Any]] = copying
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self, number: int) -> None:
        for count in itertools.count(number, 2):
            if self.ended.is_set():
                return
            began = time.monotonic()
            try:
                said = self.ask(self.kind(count))
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                said = repr(error)
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            if said:
                self.failed.append(said)
            self.answered += not said
            # As people do: there are moments in which nobody asks.
            time.sleep(random.Random(count).uniform(0.0, 0.3))

    def ask(self, body: dict[str, Any]) -> str:
        """What went wrong with one request, '' where nothing did."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=300, context=self.trust)
        try:
            headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
            connection.request("POST", "/v1/chat/completions", json.dumps({"model": "smollm2-135m", **body}), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status != 200:
                return f"{answer.status}: {text[:200]}"
            return "" if json.loads(text)["usage"]["completion_tokens"] else "nothing was said"
        finally:
            connection.close()


@dataclass
class Watched:
    """The box under watch, and its clients."""

    home: Path
    clients: Clients

    @property
    def folder(self) -> Path:
        return self.home / "watchdog"

    def lines(self, *codes: str) -> list[Any]:
        return [line for line in read_journal(self.folder) if not codes or line["code"] in codes]

    def changes(self) -> list[Any]:
        """Return when the server was changed, by the history of the box."""
        return [event for event in read_history(self.home) if event["event"] == "switched"]

    def until(self, true: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < end, json.dumps(self.lines()[-6:], indent=1)
            time.sleep(0.5)

    def await_changes(self, number: int) -> list[Any]:
        self.until(lambda: len(self.changes()) >= number)
        return self.changes()


@pytest.fixture(scope="module")
def given(run: Play, home: Path) -> Callable[..., Ended]:
    variables = {
        "profile": PROFILE, "serve_arm": "speculative", "overrides": OVERRIDES, "drafthouse_gateway": True,
        "drafthouse_gateway_port": free_port(), "gateway_binary": real_caddy(), "drafthouse_watchdog": WATCHDOG,
        "report_folder": str(home / "watchdog-reports"),
    }  # fmt: skip
    start = lambda playbook, **more: run(playbook, **{**variables, **more})  # noqa: E731
    start.port = variables["drafthouse_gateway_port"]  # type: ignore[attr-defined]
    return start


@pytest.fixture(scope="module")
def watched(given: Any, home: Path) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTHOUSE_STATE", str(home / "state"))
        done = given("site.yml")
        assert done.status == 0, done.output[-3000:]
        assert "speculation pays here while the acceptance rate is above" in done.output
        box = home / "home"
        trust = ssl.create_default_context(cafile=certificate_file(str(box)))
        clients = Clients(given.port, trust, (box / "secrets/api_key").read_text().strip())
        threads = [threading.Thread(target=clients.run, args=(number,), daemon=True) for number in (0, 1)]
        for thread in threads:
            thread.start()
        yield Watched(box, clients)
        clients.ended.set()
        for thread in threads:
            thread.join(120)
        given("playbooks/stop.yml")


def test_text_that_drafts_well_is_left_alone(watched: Watched) -> None:
    (watching,) = watched.lines("watching")
    # From then on it could have changed something.
    time.sleep(max(0.0, watching["at"] + DWELL_S + 5 - time.time()))
    watched.until(lambda: watched.clients.answered > 3 and watched.lines("pays"))
    assert watched.changes() == []
    assert watched.clients.failed == []


def test_text_that_does_not_is_switched_off_once_and_nobody_notices(
    watched: Watched, figure: Callable[[str], None]
) -> None:
    watched.clients.longest_s = 0.0
    watched.clients.kind, began = tossing, time.time()
    (change,) = watched.await_changes(1)
    assert change["arm"] == "baseline"
    (decided,) = watched.lines("does_not_pay")
    # The engine counts a request's drafts when it ends: the last that copies, and the first that tosses.
    assert decided["at"] - began < DWELL_S + 2 * watched.clients.longest_s
    numbers = decided["numbers"]
    assert numbers["acceptance"] < numbers["break_even"]
    assert numbers["gain"] < 1
    before = watched.clients.answered
    time.sleep(5)
    watched.until(lambda: watched.clients.answered > before)
    assert len(watched.changes()) == 1
    assert watched.clients.failed == []
    figure(
        f"watchdog: {numbers['acceptance']:.0%} accepted, break-even {numbers['break_even']:.0%}, gain "
        f"{numbers['gain']:.2f}: switched off after {decided['at'] - began:.0f} s; {watched.clients.answered} "
        f"requests, 0 failed, the longest waited {watched.clients.longest_s:.1f} s"
    )


def test_when_the_text_drafts_well_again_a_trial_brings_it_back(watched: Watched) -> None:
    watched.clients.kind = copying
    changes = watched.await_changes(2)
    assert changes[-1]["arm"] == "speculative"
    assert changes[-1]["at"] - changes[0]["at"] >= DWELL_S
    watched.until(lambda: any(line["decision"] == "on" for line in watched.lines("pays")))
    assert len(watched.changes()) == 2
    assert watched.clients.failed == []


@pytest.mark.soak
def test_a_killed_watchdog_goes_on_where_it_was(watched: Watched) -> None:
    before = json.loads((watched.folder / "state.json").read_text())
    watching = len(watched.lines("watching"))
    os.kill(pid_of(watched), signal.SIGKILL)
    end = time.monotonic() + 120
    while len(watched.lines("watching")) == watching:
        assert time.monotonic() < end
        time.sleep(0.2)
    after = json.loads((watched.folder / "state.json").read_text())
    assert after["memory"]["phase"] == before["memory"]["phase"]
    assert after["memory"]["changed_s"] == before["memory"]["changed_s"]


def pid_of(watched: Watched) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if words[1:4] == [archive_file(watched.home).encode(), b"watchdog", str(watched.home).encode()]:
            return int(path.parent.name)
    raise AssertionError("no watchdog runs")


@pytest.mark.soak
def test_alternating_text_changes_the_server_at_most_once_in_a_dwell_time(
    watched: Watched, figure: Callable[[str], None]
) -> None:
    """Faster than it looks back, as long as that, and as slowly as it may change the server."""
    before = len(watched.changes())
    for period_s, times in ((DWELL_S / 5, 8), (DWELL_S / 2, 6), (DWELL_S, 6)):
        for kind in (tossing, copying) * (times // 2):
            watched.clients.kind = kind
            time.sleep(period_s)
    moments = [change["at"] for change in watched.changes()]
    assert all(later - at >= DWELL_S for at, later in itertools.pairwise(moments)), moments
    assert watched.clients.failed == []
    figure(f"watchdog, alternating text: {len(moments) - before} changes in 13 dwell times, 0 requests failed")


# Daily on a host: tests/hosts/test_watchdog.py.
@pytest.mark.soak
def test_a_second_run_changes_nothing_of_it(watched: Watched, given: Any) -> None:
    pid = pid_of(watched)
    done = given("site.yml --tags watchdog")
    assert (done.status, done.changed) == (0, 0), done.output
    assert pid_of(watched) == pid


@pytest.mark.soak
def test_it_goes_when_it_is_asked_for_no_more(watched: Watched, given: Any) -> None:
    done = given("site.yml --tags watchdog", drafthouse_watchdog=None)
    assert done.status == 0, done.output
    assert not watched.folder.exists()
    with pytest.raises(AssertionError, match="no watchdog runs"):
        pid_of(watched)
    assert watched.clients.failed == []
