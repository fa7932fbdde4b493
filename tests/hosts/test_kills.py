"""`kill -9` of the Ansible run at random moments: the next run converges, and the host ends as if nothing had been."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import Ended, Host, Lab, play_words
from tests.support.tales import TALES
from tests.support.waiting import until

PROFILE = "cpu-smollm2-ngram"
SEED = 4
ONE_KILL, TEN_KILLS = 1, 10
PATIENCE_S = 1800
# Prints {path: what it is} of everything that we put on a box. Left out is what tells of moments and not of a state:
# results, logs, process ids, how long a start took, what served when, compiled Python and times.
STATE = r"""
import hashlib, json, os, pathlib, re, subprocess, sys

def content(path):
    data = path.read_bytes()
    if path.name == "api_key":
        return f"{len(data)} characters"  # made on each box anew
    if path.name.endswith(".drafthouse.json"):
        note = json.loads(data)
        files = {name: [known["size"], known["sha256"], known["git_sha1"]] for name, known in note["files"].items()}
        data = json.dumps([note["identity"], note["complete"], files]).encode()
    if path.name == ".drafthouse-env.json":
        data = re.sub(rb'"made": \d+', b"", data)
    return hashlib.sha256(data).hexdigest()

def what(path):
    mode = oct(path.lstat().st_mode)
    if path.is_symlink():
        return f"{mode} -> {os.readlink(path)}"
    return f"{mode} {content(path)}" if path.is_file() else mode

left_out = re.compile(
    r"/(results|logs|run|__pycache__|served/(history\.jsonl|lock|ballast|releases)|"
    r"supervisor/supervisor.*\.(log|pid|sock)|[a-z]+\.lock)(/|$)"
)
found = {}
for root in sys.argv[1:]:
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = pathlib.Path(folder, name)
            if not left_out.search(str(path)):
                found[str(path)] = what(path)
containers = ["docker", "ps", "--all", "--format", "{{.Names}} {{.Image}} {{.State}} {{.Ports}}"]
for words in (["dpkg-query", "-W"], ["iptables-save"], ["ip6tables-save"], containers):
    try:
        text = subprocess.run(words, capture_output=True, text=True).stdout
    except OSError:
        continue
    # Counters, comments with a time, and which address a container was given.
    text = re.sub(r"\[\d+:\d+\]|^#.*$|(?<=\b172\.17\.0\.)\d+", "", text, flags=re.M)
    found.update({f"{words[0]}: {line}": "there" for line in text.splitlines() if line.strip()})
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Setting:
    """A kind of box: the inventory that it is like, our home there, where else our files are, and more of its site."""

    like: str
    home: str
    folders: tuple[str, ...]
    site: Mapping[str, Any] = field(default_factory=dict)


SETTINGS = {
    "rental": Setting("vastai", "/workspace/drafthouse", ("/workspace",)),
    "workstation-docker": Setting(
        "workstation",
        "/opt/drafthouse",
        ("/opt/drafthouse", "/models", "/etc/drafthouse", "/etc/docker", "/etc/systemd/system", "/usr/local/sbin"),
        {"drafthouse_allow_cidrs": ["198.51.100.7"]},
    ),
}


@dataclass
class Job:
    """A box, and the site.yml that is run on it over and over."""

    lab: Lab
    box: Host
    inventory: Path
    variables: dict[str, Any]
    setting: Setting

    def run(self, playbook: str = "site.yml", **more: Any) -> Ended:
        """Run a playbook to its end."""
        return self.lab.play(playbook, self.inventory, **{**self.variables, **more})

    def state(self) -> dict[str, str]:
        """Everything of ours on the box that a run leaves behind."""
        found: dict[str, str] = json.loads(
            self.box.run("python3", "-", *self.setting.folders, stdin=STATE, timeout=300).stdout
        )
        return found

    def jobs(self) -> list[str]:
        """The long steps that still run on the box."""
        return self.box.exec("pgrep", "-af", r"AnsiballZ_[a-z_]+\.py$", check=False).stdout.splitlines()

    @contextlib.contextmanager
    def running(self, log: Path, playbook: str = "site.yml", **more: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Run a playbook in the background; nothing of it on this machine outlives the block."""
        command, environment = play_words(playbook, self.inventory, **{**self.variables, **more})
        family: set[int] = set()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                yield process
            finally:
                family |= descendants(process.pid)
                process.kill()
                process.wait()
                end(family)


@dataclass
class Undisturbed:
    """What a run that nobody killed leaves behind, and how long it takes in seconds."""

    job: Job
    state: dict[str, str]
    seconds: float


def descendants(pid: int) -> set[int]:
    """The processes below ``pid``."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def end(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def task_of(log: Path) -> str:
    """The last task that a run had shown: one that had begun and changed nothing yet may not be."""
    tasks = re.findall(r"^TASK \[(.*)\]", log.read_text("utf-8", "replace"), re.MULTILINE)
    return tasks[-1] if tasks else "before the first task"


@pytest.fixture(scope="module")
def fresh(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Job]:
    """Give a fresh box of a kind each time."""

    def start(kind: str) -> Job:
        setting = SETTINGS[kind]
        box = lab.start(kind)
        given: dict[str, Any] = {"profile": PROFILE, "report_folder": str(tmp_path_factory.mktemp("reports"))}
        # Not the better one: which that is, is measured, and may differ between two runs.
        given["serve_arm"] = "speculative"
        overrides: dict[str, Any] = {"experiment": TALES}
        if box.kind.engine:
            # No registry is asked: the image lies on the box already.
            given["drafthouse_engine_image"] = lab.load_engine(box)
            overrides["runtimes"] = ["docker"]
        inventory = lab.inventory([box], like=setting.like, group_vars=setting.site)
        return Job(lab, box, inventory, {**given, "overrides": overrides}, setting)

    return start


@pytest.fixture(scope="module")
def undisturbed(fresh: Callable[[str], Job], figure: Callable[[str], None]) -> Iterator[Callable[[str], Undisturbed]]:
    """Give a box of a kind on which site.yml was run once, and not killed."""
    made: dict[str, Undisturbed] = {}

    def start(kind: str) -> Undisturbed:
        if kind not in made:
            job = fresh(kind)
            ended = job.run()
            assert ended.status == 0, ended.output[-3000:]
            figure(f"kills: site.yml on a bare {kind}, undisturbed: {ended.seconds:.0f} s")
            made[kind] = Undisturbed(job, job.state(), ended.seconds)
        return made[kind]

    yield start
    for one in made.values():
        one.job.box.remove()


def kill_and_converge(
    job: Job, moment: float, whole: bool, expected: dict[str, str], log: Path, figure: Callable[[str], None]
) -> bool:
    """Kill a run of site.yml after ``moment`` seconds, run it again, and compare the host with ``expected``.

    False says that it had ended by then.

    ``whole``: everything that Ansible has started here is killed with it, its SSH connections too, as when the
    machine loses power. Otherwise the one process that `kill -9` names.
    """
    with job.running(log) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        if process.poll() is not None:
            assert process.returncode == 0, log.read_text()[-3000:]
            return False
        process.send_signal(signal.SIGSTOP)  # nothing is started between the look and the kill
        family = descendants(process.pid)
        process.kill()
        if whole:
            end(family)
        process.wait()
        orphans = len(job.jobs())
        try:
            again = job.run()
        finally:
            end(family)
    assert again.status == 0, again.output[-3000:]
    assert "Traceback" not in again.output
    until(lambda: not job.jobs(), "end of the killed run's steps", 60)
    state = job.state()
    different = {path: (expected.get(path), state.get(path)) for path in expected.keys() ^ state.keys()}
    different |= {
        path: (expected[path], state[path]) for path in expected.keys() & state if expected[path] != state[path]
    }
    assert different == {}
    third = job.run()
    assert (third.status, third.changed) == (0, 0)
    assert len(job.box.exec("pgrep", "-f", "bin/llama-server.* --model").stdout.split()) == 1
    figure(
        f"kills: after {moment:.0f} s ({'everything' if whole else 'one process'}; last shown: {task_of(log)}; "
        f"{orphans} steps went on): next run {again.seconds:.0f} s, same state"
    )
    return True


def moments(count: int, seconds: float) -> list[float]:
    """Random moments of a run that takes ``seconds``, the same ones each time."""
    numbers = random.Random(SEED)
    return [numbers.uniform(0.05, 0.9) * seconds for _ in range(count)]


def killed_at_random(
    kind: str,
    fresh: Callable[[str], Job],
    expected: Undisturbed,
    count: int,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    for number, moment in enumerate(moments(count, expected.seconds)):
        # One that ends earlier than the undisturbed one, because the machine has less to do, is tried again sooner.
        for sooner in (1.0, 0.6, 0.3):
            job = fresh(kind)
            try:
                log = tmp_path / f"{number}.log"
                killed = kill_and_converge(job, sooner * moment, number % 2 == 0, expected.state, log, figure)
            finally:
                job.box.remove()
            if killed:
                break
        assert killed, "no run lasted as long as the undisturbed one"


@pytest.mark.soak
def test_the_run_after_a_kill_converges(
    fresh: Callable[[str], Job],
    undisturbed: Callable[[str], Undisturbed],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    killed_at_random("workstation-docker", fresh, undisturbed("workstation-docker"), ONE_KILL, tmp_path, figure)


@pytest.mark.soak
@pytest.mark.parametrize("kind", SETTINGS)
def test_the_runs_after_ten_kills_converge(
    kind: str,
    fresh: Callable[[str], Job],
    undisturbed: Callable[[str], Undisturbed],
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    killed_at_random(kind, fresh, undisturbed(kind), TEN_KILLS, tmp_path, figure)


def holder(job: Job, lock: str) -> int:
    """The process that holds one of our locks on the box, 0 where nobody does."""
    script = 'flock -n "$1" true || cat "$1"'
    said = job.box.exec("sh", "-c", script, "-", f"{job.setting.home}/{lock}", check=False).stdout
    return int(said) if said.strip().isdigit() else 0


@pytest.mark.soak
def test_what_a_killed_run_left_measuring_is_ended_by_the_next(
    undisturbed: Callable[[str], Undisturbed], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    job = undisturbed("workstation-docker").job
    log = tmp_path / "log"
    with job.running(log, remeasure=True) as process:
        until(lambda: process.poll() is not None or holder(job, "benchmark.lock"), "measurement", PATIENCE_S)
        orphan = holder(job, "benchmark.lock")
        family = descendants(process.pid)
        process.kill()
        end(family)
        assert orphan, log.read_text()[-2000:]
        # It has no controller any more, and yet works: without the lock it would disturb what is measured next.
        assert job.box.exec("test", "-d", f"/proc/{orphan}", check=False).returncode == 0
        again = job.run(remeasure=True)
    assert again.status == 0, again.output[-3000:]
    assert job.box.exec("test", "-d", f"/proc/{orphan}", check=False).returncode == 1
    assert "invalid" not in again.output.split("PLAY RECAP")[1]
    assert job.state() == undisturbed("workstation-docker").state
    figure(f"kills: killed while it measured, the next run: {again.seconds:.0f} s")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("number", "found", "do"),
    [
        pytest.param(
            "TERM",
            "this step was stopped, because a newer run",
            "let the other run finish",
            marks=pytest.mark.soak,
        ),
        ("KILL", "a long step that ended without a result on the box", "ran out of memory"),
    ],
)
def test_a_step_that_is_ended_on_the_box_says_so(
    undisturbed: Callable[[str], Undisturbed], tmp_path: Path, number: str, found: str, do: str
) -> None:
    """TERM is what a newer run sends; KILL is what the kernel does when memory runs out."""
    job, log = undisturbed("workstation-docker").job, tmp_path / "log"
    with job.running(log, "site.yml --tags experiment", remeasure=True) as process:
        until(lambda: process.poll() is not None or holder(job, "benchmark.lock"), "measurement", PATIENCE_S)
        job.box.exec("kill", f"-{number}", str(holder(job, "benchmark.lock")))
        assert process.wait(PATIENCE_S) != 0
    lines = log.read_text().splitlines()
    assert any(line.startswith(f"found: {found}") for line in lines), log.read_text()[-3000:]
    assert any(line.startswith("do: ") and do in line for line in lines)
    assert "Traceback" not in log.read_text()
