"""What starts engines for the tuner: `playbooks/tune.yml`, once a trial, with a time limit that holds.

Runs on the controller. Everything that a box needs for a candidate is put there by the same playbooks as for any
profile; the trial itself is the module `drafthouse.core.trial`.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import one_problem
from ..core.places import WORK, phases, playbook
from ..core.procfs import command_of
from .prompt_split import TuneAsk, TunePrompts
from .tries import KILL_S
from .types import FAILED, FINAL, OK, SPECULATIVE, STOPPED, TOO_LATE, Facts, Outcome, Task, TrialResult

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.profiles.profile_types import Unchecked

#: What makes a box ready for a candidate, as site.yml does it.
PREPARE = phases("preflight", "host", "weights")
TRIAL = ("playbooks/tune.yml",)
#: What served before comes back; where nothing did, what the trials started is stopped.
STOP = ("playbooks/tuned.yml",)

# How long Ansible may take to end by itself after Ctrl-C, before it is killed.
_GRACE_S = KILL_S / 2
# What ansible-playbook ends with where a box could not be reached; the second where another task failed as well.
_UNREACHABLE = (4, 6)
# How an action that follows a long step says how far it is: the box, and what it does.
_IS_PROGRESS = re.compile(r"  \S[^:]*: ")
# Between two signs of life to the journal.
_BEAT_S = 0.5
# A problem's own words in a result; the log has all of it.
_WHY_CHARACTERS = 240
# Seconds between a trial's own limit and the one that ends its playbook.
_MARGIN_S = 2.0


class Variables(TypedDict):
    """What the playbooks are told; ``tune_deadline`` in the controller's own epoch seconds."""

    profile: str
    overrides: Unchecked
    tune_arm: NotRequired[str]
    tune_deadline: NotRequired[float]
    tune_task: NotRequired[str]
    tune_answers: NotRequired[str]


@dataclass(frozen=True)
class Played:
    """A playbook that ended: its exit status (None when its time was up), and why it failed, in its own words."""

    status: int | None
    why: str

    @property
    def unreachable(self) -> bool:
        """Whether the box could not be reached, which says nothing of a candidate."""
        return self.status in _UNREACHABLE or (bool(self.status) and "UNREACHABLE!" in self.why)


class Plays:
    """Runs playbooks in the clone. ``show`` gets the lines in which a step says how far it is, ``beat`` signs of life.

    ``more`` are further words for ansible-playbook (a person's own `-e` and `--limit`); all that it prints goes to
    ``log``.
    """

    def __init__(
        self,
        inventory: str,
        more: Sequence[str],
        log: Path,
        show: Callable[[str], None] = lambda text: None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._inventory, self._more, self._log = inventory, list(more), log
        self._pid_file = log.with_name("play.pid")
        self.show, self.beat = show, beat
        program = Path(sys.executable).with_name("ansible-playbook")
        self._program = str(program) if program.exists() else "ansible-playbook"

    def run(self, playbooks: Sequence[str], variables: Path, seconds: float) -> Played:
        """Run playbooks with the variables of a file, for so many seconds at most; never raises for their failure.

        Ctrl-C ends them too, and is raised on.
        """
        words = [self._program, *map(playbook, playbooks), "-i", self._inventory, *self._more, "-e", f"@{variables}"]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
        # A session of its own: Ctrl-C at the terminal must reach us alone, and a kill everything below it.
        process = subprocess.Popen(
            words, cwd=WORK, env=environment, start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._pid_file.write_text(f"{process.pid}\n", "utf-8")
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_pass_on, args=(process, lines), daemon=True).start()
        end = time.monotonic() + seconds
        why = _Why()
        try:
            with self._log.open("a", encoding="utf-8") as log:
                while True:
                    self.beat()
                    left_s = end - time.monotonic()
                    if left_s <= 0:
                        return Played(None, f"its {seconds:.0f} s ran out")
                    try:
                        line = lines.get(timeout=min(_BEAT_S, left_s))
                    except queue.Empty:
                        continue
                    if line is None:
                        return Played(process.wait(), why.text)
                    log.write(line)
                    why.read(line)
                    if _IS_PROGRESS.match(line):
                        self.show(line.strip())
        finally:
            _end(process)
            self._pid_file.unlink(missing_ok=True)

    def end_orphan(self) -> bool:
        """End the playbook that a killed run left at work, if there is one; return whether there was.

        It has a session of its own, so that killing the tuner leaves it: it would start engines beside ours.
        """
        try:
            pid = int(self._pid_file.read_text("utf-8"))
        except (OSError, ValueError):
            return False
        self._pid_file.unlink(missing_ok=True)
        # The number may be another process's by now; ours names a file of this search.
        if not any(f"@{self._pid_file.parent}/" in word for word in command_of(pid)):
            return False
        _kill_group(pid)
        return True


class _Why:
    """Reads out of Ansible's output why it failed: the first problem in our words, else Ansible's own message."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._open = False
        self._message = ""

    def read(self, line: str) -> None:
        """Look at one line."""
        word, _, rest = line.rstrip("\n").partition(": ")
        if word == "found" and not self._found:
            self._found, self._open = [rest], True
        elif word in ("needed", "do", "code", "where"):
            self._open = False
        elif self._open and line.strip():
            self._found.append(line.strip())
        elif word.startswith("[ERROR]") or word.startswith("fatal"):
            self._message = self._message or rest.strip()

    @property
    def text(self) -> str:
        """The reason in one line; empty where none was seen."""
        text = " / ".join(self._found) or self._message
        if len(text) <= _WHY_CHARACTERS:
            return text
        return text[: _WHY_CHARACTERS - 1] + "…"


def _pass_on(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    """End a playbook and all that it started on this machine; nothing happens to one that has ended."""
    if process.poll() is not None:
        return
    for number, patience_s in ((signal.SIGINT, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        # What ansible-playbook leaves of its workers goes with the group.
        if number == signal.SIGINT:
            _kill_group(process.pid)
        return


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class BoxTrial:
    """The `Trial` that starts real engines: through Ansible, on the one box of an inventory."""

    def __init__(
        self,
        profile: str,
        prompts: TunePrompts,
        plays: Plays,
        folder: Path,
        *,
        concurrency: int,
        budget_s: float,
        overrides: Unchecked | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``budget_s`` is what is left for trials now; none runs beyond it, but for `KILL_S` in which it is ended.

        ``overrides`` is what was changed of the profile first, before any candidate.
        """
        self._profile, self._prompts, self._plays, self._folder = profile, prompts, plays, folder
        self._concurrency, self._clock = concurrency, clock
        self._overrides = overrides or {}
        self._since = clock()
        self._end = self._since + budget_s
        self._prepared: set[str] = set()
        self._unready: dict[str, Outcome] = {}
        self.started = False
        """Whether anything was started, which is then to be stopped."""

    def __call__(self, task: Task) -> Outcome:
        """Make the box ready where the candidate needs more than is there, start its arm, ask it, and tell.

        Raises DrafthouseError when the box cannot be reached.
        """
        if task.candidate.family in self._unready:
            return self._unready[task.candidate.family]
        end = min(self._end, self._clock() + task.seconds)
        prepared_s = 0.0
        played = Played(0, "")
        if task.candidate.family not in self._prepared:
            begun = self._clock()
            played = self._play(PREPARE, self._variables(task), end)
            prepared_s = self._clock() - begun
            self._check_reached(played)
        if played.status == 0:
            self._prepared.add(task.candidate.family)
            outcome = self._measure(task, end)
        else:
            # Its other candidates need the same.
            why = f"not made ready: {played.why}"
            outcome = Outcome(TOO_LATE if played.status is None else FAILED, why=why)
            self._unready[task.candidate.family] = outcome
        now = self._clock()
        elapsed_s, self._since = now - self._since, now
        return replace(outcome, elapsed_s=elapsed_s, prepared_s=prepared_s)

    def stop(self, seconds: float) -> bool:
        """Have what served before serve again, or nothing; return whether that was done within the time."""
        variables: Variables = {"profile": self._profile, "overrides": self._overrides}
        return self._play(STOP, variables, self._clock() + seconds).status == 0

    def _measure(self, task: Task, end: float) -> Outcome:
        answers = self._folder / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        for old in answers.iterdir():
            old.unlink()
        played = self._play(TRIAL, self._variables(task, end, answers), end)
        self._check_reached(played)
        found = sorted(answers.glob("*.json"))
        if len(found) > 1:
            raise one_problem(
                "several-hosts",
                f"{len(found)} boxes answered ({', '.join(path.stem for path in found)})",
                "one box: the best settings differ between boxes",
                "name it: make tune ... ARGS='--limit NAME'",
            )
        if not found:
            return Outcome(TOO_LATE if played.status is None else FAILED, why=played.why or "the trial left no answer")
        return outcome_of(json.loads(found[0].read_text("utf-8")), task)

    def _check_reached(self, played: Played) -> None:
        """Raise DrafthouseError where the box was out of reach: that is no outcome of a candidate, and is not kept."""
        if not played.unreachable:
            return
        raise one_problem(
            "box-unreachable",
            f"the box is unreachable: {played.why or f'ansible-playbook ended with {played.status}'}",
            "a box that stays reachable during the search",
            "restore it, or correct the inventory; the same command continues where it stopped",
            f"{self._folder.name}: ansible.log",
        )

    def _variables(self, task: Task, end: float | None = None, answers: Path | None = None) -> Variables:
        variables: Variables = {"profile": self._profile, "overrides": task.candidate.overrides}
        if end is None or answers is None:
            return variables
        task_file = self._folder / "task.json"
        work = {
            "asks": asks_of(task, self._prompts),
            "concurrency": self._concurrency,
            "seed": task.turn,
            "reference": dict(task.reference),
            "label": f"{task.candidate.id}, {task.arm}",
            # What is judged at the end is judged with its outputs; the search needs none.
            "texts": task.part == FINAL,
        }
        task_file.write_text(json.dumps(work) + "\n", "utf-8")
        return {
            **variables,
            "tune_arm": task.arm,
            "tune_deadline": time.time() + end - self._clock() - _MARGIN_S,
            "tune_task": str(task_file),
            "tune_answers": str(answers),
        }

    def _play(self, playbooks: Sequence[str], variables: Variables, end: float) -> Played:
        left_s = end - self._clock()
        if left_s < _MARGIN_S:
            return Played(None, "no time was left for it")
        path = self._folder / "variables.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(variables) + "\n", "utf-8")
        self.started = True
        return self._plays.run(playbooks, path, left_s)


def asks_of(task: Task, prompts: TunePrompts) -> list[TuneAsk]:
    """The prompts of a task as the box gets them; behind the last one the first one follows."""
    asks = prompts.final if task.part == FINAL else prompts.search
    return [asks[number % len(asks)] for number in range(task.first, task.first + task.count)]


def outcome_of(trial: TrialResult, task: Task) -> Outcome:
    """What a trial's answer (`trial.run_trial`) means for the search.

    An answer that failed puts the candidate out, as it makes a report invalid; so does a baseline that drafted.
    """
    facts: Facts = {
        "acceptance": trial["acceptance"],
        "outputs": trial["outputs"],
        "drafted": trial["drafted"],
        "output_tokens": trial["output_tokens"],
        "ended_unix_s": trial["ended_unix_s"],
        "other_cpu_percent": trial["other_cpu_percent"],
    }
    if trial.get("answers"):
        facts["answers"] = trial["answers"]
    status, why = trial["status"], trial["why"]
    if trial["failed"]:
        status, why = FAILED, f"{trial['failed']} of {trial['asked']} answers failed: {why}"
    elif task.arm != SPECULATIVE and trial["drafted"]:
        status, why = FAILED, "the baseline drafted tokens, so it is no baseline"
    if status not in (OK, STOPPED, FAILED, TOO_LATE):
        status, why = FAILED, f"an unknown end: {status}"
    return Outcome(status, trial["tpot_ms"], 0.0, 0.0, trial["measured_s"], why, facts)
