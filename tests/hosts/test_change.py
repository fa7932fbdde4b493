"""Changes that break, on a real host with the real engine: after each the server before it answers again.

Most are images: the engine's own with another `llama-server` in front of it, which breaks what it is told to break.
They are changes as an operator makes them, by naming another image in the inventory.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import Ended, Host, Lab
from tests.hosts.test_kills import PATIENCE_S, SETTINGS, Job, descendants, end, holder
from tests.support.tales import TALES
from tests.support.waiting import until

# A box of its own, measured whole; every day the same code runs with little servers (tests/unit/test_put_back.py).
pytestmark = pytest.mark.soak

PROFILE = "cpu-smollm2-ngram"
PORT, OTHER_PORT = 8000, 8100
# What an old server may take beyond its own start.
GRACE_S = 30.0
BACK = re.compile(r"the last good server runs again: release (\d+) .*; it answers again after ([\d.]+) s")
# Asks the server on the box's own loopback; prints the number of tokens.
ASK = """
import json, sys, urllib.request
key = open(sys.argv[1] + "/secrets/api_key").read().strip()
body = {"model": "smollm2-135m", "max_tokens": 8, "messages": [{"role": "user", "content": "Say yes."}]}
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
request = urllib.request.Request("http://127.0.0.1:8000/v1/chat/completions", json.dumps(body).encode(), headers)
print(json.load(urllib.request.urlopen(request, timeout=60))["usage"]["completion_tokens"])
"""
# The image's own `llama-server`, with its arguments in `argv` as a list that may be changed.
REAL = """#!/opt/engine/bin/python
import os, subprocess, sys, time
argv = sys.argv[1:]
own = ["/opt/engine/bin/python", "/opt/engine/bin/llama-server"]
{breaks}
os.execv(own[0], own + argv)
"""
# Says that it is healthy, names the model, and answers no request.
MUTE = """#!/opt/engine/bin/python
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, {"data": [{"id": "smollm2-135m"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(500, {"error": "CUDA error: an illegal memory access was encountered"})
http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def real(*lines: str) -> str:
    return REAL.format(breaks="\n".join(lines))


@dataclass(frozen=True)
class Broken:
    """A change that must not serve. ``reason``: a pattern that the run's own words must match.

    ``server`` is the `llama-server` of its image. ``away`` tells whether the server before it is ended for it at all.
    """

    reason: str
    server: str = ""
    away: bool = True
    playbook: str = "site.yml"
    given: dict[str, Any] = field(default_factory=dict)
    overrides: dict[str, Any] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    mend: tuple[str, ...] = ()


BROKEN = {
    "a flag that the engine does not know": Broken(
        "invalid argument: --no-such-flag", real('argv.append("--no-such-flag")')
    ),
    "an engine that starts and dies after 20 s": Broken(
        # While it is measured, or when it is looked at before it replaces the other.
        "died|an invalid comparison",
        real(
            "engine = subprocess.Popen(own + argv)",
            "time.sleep(20)",
            "engine.kill()",
            'sys.exit("CUDA out of memory")',
        ),
    ),
    "an engine that answers health but no request": Broken(
        "does not answer a request: status 500: .*illegal memory access", MUTE
    ),
    "an engine that never gets ready": Broken(
        "was not ready after 15 s",
        real('print("loading for ever", flush=True)', "time.sleep(3600)"),
        given={"serve_ready_timeout_s": 15},
    ),
    "an engine that takes another key": Broken(
        "answered 401",
        real(
            'open("/tmp/key", "w").write("another")',
            'argv[argv.index("--api-key-file") + 1] = "/tmp/key"',
        ),
    ),
    "an engine that serves another model": Broken(
        r"a server that serves \['another'\]", real('argv[argv.index("--alias") + 1] = "another"')
    ),
    "a gate that fails": Broken(
        "a gate fails: ",
        # The draft's arm answers otherwise, and yet drafts: it takes every word of the context for farther away.
        real('argv += ["--rope-freq-base", "2000"] if "--spec-type" in argv else []'),
    ),
    "a baseline that drafts": Broken(
        "an invalid comparison: .*drafted",
        real(
            'words = "--spec-type ngram-simple --spec-ngram-simple-size-m 8 --spec-ngram-simple-size-n 3"',
            'argv += [] if "--spec-type" in argv else words.split()',
        ),
    ),
    "a port that is taken": Broken(
        f"port {OTHER_PORT} is taken",
        away=False,
        given={"drafthouse_port": OTHER_PORT},
        prepare=("sh", "-c", f"setsid python3 -m http.server {OTHER_PORT} >/dev/null 2>&1 </dev/null & sleep 1"),
        mend=("pkill", "-f", f"http.server {OTHER_PORT}"),
    ),
    "weights that are missing": Broken(
        "BF16.gguf: No such file",
        playbook="site.yml --tags experiment",
        overrides={"target": "smollm2-135m-bf16"},
    ),
    "a disk that is full": Broken(
        "No space left on device",
        playbook="site.yml --tags experiment",
        overrides={"serve": {"context": 2048}},
        prepare=(
            *("sh", "-c"),
            "mount -t tmpfs -o size=256k tmpfs /opt/drafthouse/results && "
            "{ head -c 1M /dev/zero >/opt/drafthouse/results/full; true; } 2>/dev/null",
        ),
        mend=("umount", "/opt/drafthouse/results"),
    ),
    "an image that is nowhere": Broken(
        "drafthouse-test/nowhere",
        away=False,
        given={"drafthouse_engine_image": "127.0.0.1:1/drafthouse-test/nowhere:1"},
    ),
}  # fmt: skip


class Served:
    """A box that serves its first release, and what is asked of it."""

    def __init__(self, job: Job, lab: Lab) -> None:
        self.job, self.lab, self.box, self.home = job, lab, job.box, job.setting.home
        ready = json.loads(self.box.exec("cat", f"{self.home}/run/speculative.ready.json").stdout)
        self.start_s = float(ready["ready_s"])
        self.release = self.history()[-1]["release"]
        self.made: list[str] = []

    def history(self) -> list[dict[str, Any]]:
        text = self.box.exec("cat", f"{self.home}/served/history.jsonl").stdout
        return [json.loads(line) for line in text.splitlines()]

    def tokens(self) -> int:
        done = self.box.exec("python3", "-", self.home, stdin=ASK, check=False)
        return int(done.stdout) if done.returncode == 0 else 0

    def engines(self) -> list[str]:
        """The processes of engines, whatever runs them."""
        return self.box.exec("pgrep", "-f", "bin/llama-server.* --model", check=False).stdout.split()

    def broken_image(self, server: str) -> str:
        """Make the image of a broken engine out of the real one."""
        name = f"broken:{len(self.made) + 1}"
        self.made.append(name)
        good = self.job.variables["drafthouse_engine_image"]
        self.box.put("/tmp/llama-server", server, mode="0755")
        self.box.exec("docker", "create", "--name", "making", good)
        self.box.exec("docker", "cp", "/tmp/llama-server", "making:/app/llama-server")
        self.box.exec("docker", "commit", "making", name, timeout=120)
        self.box.exec("docker", "rm", "making")
        return name

    def change(self, broken: Broken) -> Ended:
        """Run it as an operator would."""
        given = {**broken.given, "serve_arm": "auto"}
        if broken.server:
            given["drafthouse_engine_image"] = self.broken_image(broken.server)
        overrides = {**self.job.variables["overrides"], **broken.overrides}
        return self.job.run(broken.playbook, **given, overrides=overrides)


@pytest.fixture(scope="module")
def first(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Give a box of a kind that serves its first release, the same one to everybody who asks for the kind."""
    made: dict[str, Served] = {}

    def start(kind: str, **site: Any) -> Served:
        if kind in made:
            return made[kind]
        setting = SETTINGS["rental" if kind == "rental" else "workstation-docker"]
        host = lab.start(kind)
        # The arm is named: which is the better one depends on what else this machine does.
        given: dict[str, Any] = {
            "profile": PROFILE, "report_folder": str(tmp_path_factory.mktemp("reports")), "serve_arm": "speculative",
        }  # fmt: skip
        overrides: dict[str, Any] = {"experiment": TALES}
        if host.kind.engine:
            given["drafthouse_engine_image"] = lab.load_engine(host)
            overrides["runtimes"] = ["docker"]
        inventory = lab.inventory([host], like=setting.like, group_vars={**setting.site, **site})
        job = Job(lab, host, inventory, {**given, "overrides": overrides}, setting)
        done = job.run()
        assert done.status == 0, done.output[-3000:]
        made[kind] = Served(job, lab)
        return made[kind]

    yield start
    for one in made.values():
        one.box.remove()


@pytest.fixture(scope="module")
def served(first: Callable[..., Served]) -> Served:
    return first("workstation-docker")


def container(box: Host) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(box.exec("docker", "inspect", "drafthouse-speculative").stdout)
    return found[0]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_change_leaves_the_old_server_answering(
    name: str, served: Served, figure: Callable[[str], None]
) -> None:
    broken = BROKEN[name]
    before, began = container(served.box), time.time()
    try:
        if broken.prepare:
            served.box.exec(*broken.prepare)
        ended = served.change(broken)
    finally:
        if broken.mend:
            served.box.exec(*broken.mend, check=False)
    assert ended.status != 0
    assert re.search(broken.reason, ended.output), ended.output[-4000:]
    assert served.tokens() > 0
    after = container(served.box)
    assert after["Config"] | {"Hostname": ""} == before["Config"] | {"Hostname": ""}
    assert len(served.engines()) == 1
    if not broken.away:
        assert after["State"]["StartedAt"] == before["State"]["StartedAt"]
        figure(f"change, {name}: refused, the old server never left")
        return
    found = BACK.search(ended.output)
    assert found, ended.output[-4000:]
    assert found[1] == served.release
    assert float(found[2]) <= served.start_s + GRACE_S
    last = served.history()[-1]
    assert (last["event"], last["at"] > began) == ("refused", True)
    assert re.search(broken.reason, last["why"])
    figure(f"change, {name}: refused, the old server answers after {float(found[2]):.1f} s")


def test_the_next_run_after_all_of_it_changes_nothing(served: Served) -> None:
    again = served.job.run()
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]


@contextlib.contextmanager
def killed_while_it_measures(served: Served, log: Path) -> Iterator[None]:
    """Kill a run of site.yml, with all that it started here, while the box measures for it."""
    job = served.job
    overrides = {**job.variables["overrides"], "serve": {"context": 1024}}
    with job.running(log, overrides=overrides) as process:
        until(lambda: process.poll() is not None or holder(job, "benchmark.lock"), "measurement", PATIENCE_S)
        assert process.poll() is None, log.read_text()[-3000:]
        family = descendants(process.pid)
        process.kill()
        end(family)
        yield


def test_a_killed_run_leaves_the_old_server_answering(
    served: Served, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Nobody runs anything: the box hears no more of the run, and takes its server back."""
    with killed_while_it_measures(served, tmp_path / "log"):
        # What is measured answers at its port, too: it is back when the box has noted it, behind its answer.
        seconds = until(
            lambda: "no sign of life" in served.history()[-1]["why"], "old server", served.start_s + GRACE_S
        )
    assert served.tokens() > 0
    assert container(served.box)["Config"]["Labels"]["drafthouse.arm"] == "speculative"
    assert len(served.engines()) == 1
    assert served.history()[-1]["release"] == served.release
    settled = served.job.run("site.yml --tags settle")
    assert (settled.status, settled.changed) == (0, 0)
    figure(f"change, killed while it measured: the old server answers after {seconds:.1f} s, without another run")


def test_the_next_run_after_a_kill_begins_with_a_server(
    served: Served, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    with killed_while_it_measures(served, tmp_path / "log"):
        began = time.monotonic()
        settled = served.job.run("site.yml --tags settle")
    seconds = time.monotonic() - began
    assert settled.status == 0, settled.output[-3000:]
    assert served.tokens() > 0
    assert len(served.engines()) == 1
    # On a slow machine the box is quicker than the run.
    assert re.match("found away: |no sign of life from its run", served.history()[-1]["why"])
    assert seconds <= served.start_s + GRACE_S
    again = served.job.run("site.yml --tags settle")
    assert (again.status, again.changed) == (0, 0)
    figure(f"change, killed while it measured: the next run has the old server back after {seconds:.1f} s")


def test_the_box_starts_with_the_old_server_after_a_kill(
    served: Served, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    with killed_while_it_measures(served, tmp_path / "log"):
        up = served.box.restart()
        seconds = until(served.tokens, "old server", served.start_s + GRACE_S)
    until(lambda: len(served.engines()) == 1, "end of the others", GRACE_S)
    assert served.history()[-1]["release"] == served.release
    again = served.job.run()
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    figure(f"change, killed, then the box restarted ({up:.0f} s): the old server answers {seconds:.1f} s later")


def test_back_and_forth_is_the_very_same_container(served: Served, figure: Callable[[str], None]) -> None:
    before = container(served.box)
    overrides = {**served.job.variables["overrides"], "serve": {"context": 2048}}
    changed = served.job.run(overrides=overrides)
    assert changed.status == 0, changed.output[-3000:]
    assert container(served.box)["Config"]["Labels"] != before["Config"]["Labels"]
    began = time.monotonic()
    back = served.job.run("playbooks/rollback.yml")
    seconds = time.monotonic() - began
    assert back.status == 0, back.output[-3000:]
    assert served.tokens() > 0
    # By Ansible's own module, which compares all that it would set: the same container.
    again = served.job.run()
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    # There is nothing before the first one.
    none = served.job.run("playbooks/rollback.yml")
    assert none.status != 0
    assert any("no earlier release" in line for line in none.lines("found"))
    assert served.tokens() > 0
    forth = served.job.run("playbooks/rollback.yml", release=served.history()[-2]["release"])
    assert forth.status == 0, forth.output[-3000:]
    assert served.job.run("playbooks/rollback.yml", release=served.release).status == 0
    figure(f"change, make rollback: {seconds:.1f} s, the next run changes nothing")


def test_the_history_is_shown(served: Served) -> None:
    shown = served.job.run("playbooks/history.yml")
    assert (shown.status, shown.changed) == (0, 0)
    table = shown.output.split("PLAY RECAP")[1]
    assert re.search(rf"serves +{served.release} +{PROFILE} +speculative", table)
    for event in served.history()[-20:]:
        assert event["event"] != "refused" or event["why"][:20] in table


def test_a_container_that_was_put_back_comes_back_with_the_box(served: Served) -> None:
    served.box.restart()
    until(served.tokens, "server after the restart", served.start_s + GRACE_S)
    assert len(served.engines()) == 1


def test_a_stop_is_a_stop(served: Served) -> None:
    assert served.job.run("playbooks/stop.yml").status == 0
    assert served.history()[-1]["event"] == "ended"
    served.box.restart()
    time.sleep(5)
    assert served.engines() == []
    assert served.job.run("site.yml --tags settle").changed == 0
    assert served.engines() == []
    assert served.job.run().status == 0
    assert served.tokens() > 0


# --- without containers -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process_box(first: Callable[..., Served]) -> Served:
    """A workstation that runs its engine as a process: systemd starts what should serve."""
    return first("workstation", drafthouse_runtime="process")


def test_a_process_comes_back_with_the_box(process_box: Served, figure: Callable[[str], None]) -> None:
    up = process_box.box.restart()
    seconds = until(process_box.tokens, "server after the restart", process_box.start_s + GRACE_S)
    assert process_box.box.exec("systemctl", "is-active", "drafthouse-serve").stdout.strip() == "active"
    again = process_box.job.run()
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    figure(f"change, a process: answers {seconds:.1f} s after the box is up, which took {up:.0f} s")


def test_a_process_that_a_killed_run_left_away_comes_back_with_the_box(process_box: Served, tmp_path: Path) -> None:
    with killed_while_it_measures(process_box, tmp_path / "log"):
        process_box.box.restart()
        until(process_box.tokens, "old server", process_box.start_s + GRACE_S)
    assert len(process_box.engines()) == 1
    assert process_box.history()[-1]["release"] == process_box.release


def test_a_broken_engine_of_another_kind_of_runtime(process_box: Served, figure: Callable[[str], None]) -> None:
    """The engine's launcher is broken in its environment, which the old server needs too: both reasons are named."""
    (launcher,) = process_box.box.exec(
        "sh", "-c", f"ls {process_box.home}/engines/*/bin/llama-server"
    ).stdout.split()  # fmt: skip
    own = process_box.box.exec("cat", launcher).stdout
    overrides = {**process_box.job.variables["overrides"], "serve": {"context": 2048}}
    process_box.box.put(launcher, "#!/bin/sh\necho the launcher is broken\nexit 1\n", mode="0755")
    try:
        ended = process_box.job.run("site.yml --tags experiment", overrides=overrides)
    finally:
        process_box.box.put(launcher, own, mode="0755")
    assert ended.status != 0
    assert any("is not served" in line and "died" in line for line in ended.lines("found")), ended.output[-3000:]
    assert any("and the last good server could not be restored" in line for line in ended.lines("found"))
    # Mended, the next run brings it back before it does anything else.
    settled = process_box.job.run("site.yml --tags settle")
    assert settled.status == 0, settled.output[-3000:]
    assert process_box.tokens() > 0
    figure(f"change, a broken launcher: both reasons named, back after {settled.seconds:.1f} s once it is mended")


def test_a_rental_has_a_script_for_its_own_start(first: Callable[..., Served]) -> None:
    served = first("rental")
    served.box.restart()
    assert served.engines() == []
    # What `make rent` has the platform's start script do.
    served.box.exec("sh", "-c", f"s={served.home}/served/start.sh; [ -x $s ] && $s", timeout=120)
    assert served.tokens() > 0
    again = served.job.run()
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]


# --- another version ----------------------------------------------------------------------------

OLD_VERSION, NEW_VERSION = "2026.9.11063", "2026.10.11549"


def test_an_upgrade_keeps_what_is_no_worse(first: Callable[..., Served], figure: Callable[[str], None]) -> None:
    served = first("rental")
    variables = served.job.variables
    words = [
        *(sys.executable, str(ROOT / "scripts" / "drafthouse"), "upgrade", PROFILE, NEW_VERSION, "--from", OLD_VERSION),
        *("--inventory", str(served.job.inventory), "--reports", variables["report_folder"]),
        *("--set", f"experiment={json.dumps(variables['overrides']['experiment'])}"),
    ]
    began = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    print(done.stdout, done.stderr)
    # Two shared cores move by themselves: what is looked at is that the decision is what serves.
    assert done.returncode in (0, 1)
    assert "Traceback" not in done.stderr
    kept = NEW_VERSION if done.returncode == 0 else OLD_VERSION
    assert served.history()[-1]["version"] == kept
    assert served.tokens() > 0
    figure(f"change, make upgrade: {kept} is kept, after {time.monotonic() - began:.0f} s")
