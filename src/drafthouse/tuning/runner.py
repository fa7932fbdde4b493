"""Run the tuner's trials: on the controller, start `playbooks/tune.yml` once per trial, with a firm time limit.

The host that serves is prepared for a candidate by the same playbooks as for a profile. On that host the Ansible
module `drafthouse.core.trial` sends the prompts. Candidates that differ in K only are a family, and need the same
preparation.
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
from .prompt_split import TunePrompts, TuneRequest
from .tries import KILL_S
from .types import FAILED, FINAL, OK, SPECULATIVE, STOPPED, TOO_LATE, Facts, Outcome, Task, TrialResult

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.profiles.profile_types import Unchecked

#: Playbooks that prepare the host for a candidate, as site.yml does.
PREPARE = phases("preflight", "host", "weights")
#: Starts the server of a candidate and sends it the prompts of a trial.
TRIAL = ("playbooks/tune.yml",)
#: Restores the server that ran before the trials, or else stops the trials' server.
STOP = ("playbooks/tuned.yml",)

_GRACE_S = KILL_S / 2  # seconds for Ansible to end after SIGINT, before SIGKILL
_UNREACHABLE = (4, 6)  # exit statuses of ansible-playbook for an unreachable host; 6 if a task failed as well
# A progress line of a long step: two spaces, the host, a colon and what it does.
_IS_PROGRESS = re.compile(r"  \S[^:]*: ")
_BEAT_S = 0.5  # most seconds between two calls of `beat`
_WHY_CHARACTERS = 240  # longest error text in a result; the log has the full text
_MARGIN_S = 2.0  # seconds from a trial's own deadline to the end of its playbook


class Variables(TypedDict):
    """Extra variables of the playbooks; those of ``tune_`` are missing unless a trial is run."""

    profile: str  # its name
    overrides: Unchecked  # the changes to the profile that give the candidate
    tune_arm: NotRequired[str]
    tune_deadline: NotRequired[float]  # epoch seconds of the controller's clock
    tune_task: NotRequired[str]  # the path of the task's file
    tune_answers: NotRequired[str]  # the folder for the result


@dataclass(frozen=True)
class Played:
    """A playbook run that ended."""

    status: int | None  # the exit status; None: out of time
    why: str  # the error text; "" without an error

    @property
    def unreachable(self) -> bool:
        """True if the host was unreachable, which is not the candidate's fault."""
        return self.status in _UNREACHABLE or (bool(self.status) and "UNREACHABLE!" in self.why)


class Plays:
    """Runs playbooks; their output goes to the file ``log``.

    ``args`` are the user's arguments for ansible-playbook, such as `--limit`. ``show`` receives progress lines.
    ``beat`` is called about twice a second while a playbook runs, so that the journal knows how long it ran.
    """

    def __init__(
        self,
        inventory: str,
        args: Sequence[str],
        log: Path,
        show: Callable[[str], None] = lambda text: None,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._inventory = inventory
        self._args = list(args)
        self._log = log
        self._pid_file = log.with_name("play.pid")
        self.show = show
        self.beat = beat
        program = Path(sys.executable).with_name("ansible-playbook")
        self._program = str(program) if program.exists() else "ansible-playbook"

    def run(self, playbooks: Sequence[str], variables: Path, seconds: float) -> Played:
        """Run playbooks with the variables of a file for at most ``seconds``; a failure is a result, not an exception.

        KeyboardInterrupt ends the playbooks and is raised again.
        """
        command = [self._program, *map(playbook, playbooks), "-i", self._inventory, *self._args, "-e", f"@{variables}"]
        environment = {**os.environ, "ANSIBLE_NOCOLOR": "1"}
        # In a new session, Ctrl-C at the terminal reaches only the tuner, and a kill reaches all child processes.
        process = subprocess.Popen(
            command, cwd=WORK, env=environment, start_new_session=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._pid_file.write_text(f"{process.pid}\n", "utf-8")
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_read_output, args=(process, lines), daemon=True).start()
        end = time.monotonic() + seconds
        error = _ErrorText()
        try:
            with self._log.open("a", encoding="utf-8") as log:
                while True:
                    self.beat()
                    left_s = end - time.monotonic()
                    if left_s <= 0:
                        return Played(status=None, why=f"its {seconds:.0f} s ran out")
                    try:
                        line = lines.get(timeout=min(_BEAT_S, left_s))
                    except queue.Empty:
                        continue
                    if line is None:
                        return Played(process.wait(), error.text)
                    log.write(line)
                    error.read(line)
                    if _IS_PROGRESS.match(line):
                        self.show(line.strip())
        finally:
            _end(process)
            self._pid_file.unlink(missing_ok=True)

    def end_orphan(self) -> bool:
        """End the playbook that a killed tuner left running; return whether there was one.

        Such a playbook has its own session, so it survives the tuner and would start servers beside the new run's.
        """
        try:
            pid = int(self._pid_file.read_text("utf-8"))
        except (OSError, ValueError):
            return False
        self._pid_file.unlink(missing_ok=True)
        # The pid may have been reused: a playbook of this search names a file in its folder.
        if not any(f"@{self._pid_file.parent}/" in word for word in command_of(pid)):
            return False
        _kill_group(pid)
        return True


class _ErrorText:
    """Extracts the error from Ansible's output: the first Drafthouse problem, or else Ansible's own message.

    Of a problem it takes the part *found*, which may have several lines.
    """

    def __init__(self) -> None:
        self._problem: list[str] = []  # lines of the first problem's *found*
        self._in_problem = False  # the next line may continue *found*
        self._message = ""  # the first message of Ansible

    def read(self, line: str) -> None:
        """Parse a line of output."""
        label, _, value = line.rstrip("\n").partition(": ")
        if label == "found" and not self._problem:
            self._problem = [value]
            self._in_problem = True
        elif label in ("needed", "do", "code", "where"):
            self._in_problem = False
        elif self._in_problem and line.strip():
            self._problem.append(line.strip())
        elif label.startswith("[ERROR]") or label.startswith("fatal"):
            self._message = self._message or value.strip()

    @property
    def text(self) -> str:
        """The error in one line; "" if there was none."""
        text = " / ".join(self._problem) or self._message
        if len(text) <= _WHY_CHARACTERS:
            return text
        return text[: _WHY_CHARACTERS - 1] + "…"


def _read_output(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    """Put each line of a process's output into ``lines``, then None at the end of the output."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    """End a playbook and all processes that it started on this machine, unless it has already ended.

    SIGINT lets Ansible clean up. If it takes longer than `_GRACE_S`, SIGKILL ends it.
    """
    if process.poll() is not None:
        return
    for signal_number, patience_s in ((signal.SIGINT, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(patience_s)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        # Kill worker processes that ansible-playbook left behind.
        if signal_number == signal.SIGINT:
            _kill_group(process.pid)
        return


def _kill_group(group: int) -> None:
    """Send SIGKILL to a process group, if it still exists."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class BoxTrial:
    """The `Trial` that starts real servers, through Ansible, on the only host of an inventory."""

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
        """``budget_s`` is the time left for trials; ending the last one may take `KILL_S` more.

        ``profile`` is the profile's name, ``folder`` that of the search. ``overrides`` are the user's changes to the
        profile, before those of a candidate. ``clock`` returns monotonic seconds.
        """
        self._profile = profile
        self._prompts = prompts
        self._plays = plays
        self._folder = folder
        self._concurrency = concurrency
        self._clock = clock
        self._overrides = overrides or {}
        self._counted_until = clock()
        self._end = self._counted_until + budget_s
        self._prepared: set[str] = set()  # the families for which the host is prepared
        self._unready: dict[str, Outcome] = {}  # by family, the outcome of a preparation that failed
        #: True if a playbook ran, so that `stop` is needed.
        self.started = False

    def __call__(self, task: Task) -> Outcome:
        """Prepare the host once per family, start the task's arm, send its prompts and return the outcome.

        If the preparation of a family failed, that is the outcome of all its tasks. Raises DrafthouseError if the host
        is unreachable.
        """
        if task.candidate.family in self._unready:
            return self._unready[task.candidate.family]
        end = min(self._end, self._clock() + task.seconds)
        prepared_s = 0.0
        played = Played(status=0, why="")  # as if prepared: the family is, unless the next line says otherwise
        if task.candidate.family not in self._prepared:
            begun = self._clock()
            played = self._play(PREPARE, self._variables(task), end)
            prepared_s = self._clock() - begun
            self._check_reached(played)
        if played.status == 0:
            self._prepared.add(task.candidate.family)
            outcome = self._measure(task, end)
        else:
            # All candidates of the family need the same preparation.
            why = f"not made ready: {played.why}"
            outcome = Outcome(TOO_LATE if played.status is None else FAILED, why=why)
            self._unready[task.candidate.family] = outcome
        # The time between two trials counts as well, so that the sum is the time since the start.
        now = self._clock()
        elapsed_s = now - self._counted_until
        self._counted_until = now
        return replace(outcome, elapsed_s=elapsed_s, prepared_s=prepared_s)

    def stop(self, seconds: float) -> bool:
        """Restore the server that ran before the trials, or stop theirs; return whether that ended in time."""
        variables: Variables = {"profile": self._profile, "overrides": self._overrides}
        return self._play(STOP, variables, self._clock() + seconds).status == 0

    def _measure(self, task: Task, end: float) -> Outcome:
        """Run the trial's playbook until the monotonic time ``end``, and read the result that the module left.

        Without a result the outcome is that of the playbook. Raises DrafthouseError if the host is unreachable, or if
        several hosts answered.
        """
        answers = self._folder / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        for file in answers.iterdir():
            file.unlink()
        played = self._play(TRIAL, self._variables(task, end, answers), end)
        self._check_reached(played)
        files = sorted(answers.glob("*.json"))
        if len(files) > 1:
            raise one_problem(
                "several-hosts",
                f"{len(files)} boxes answered ({', '.join(path.stem for path in files)})",
                "one box: the best settings differ between boxes",
                "name it: make tune ... ARGS='--limit NAME'",
            )
        if not files:
            return Outcome(TOO_LATE if played.status is None else FAILED, why=played.why or "the trial left no answer")
        return outcome_of(json.loads(files[0].read_text("utf-8")), task)

    def _check_reached(self, played: Played) -> None:
        """Raise DrafthouseError if the host was unreachable: that is no outcome of a candidate for the journal."""
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
        """The playbooks' variables; with ``end`` and ``answers`` those of a trial, whose task goes into a file."""
        variables: Variables = {"profile": self._profile, "overrides": task.candidate.overrides}
        if end is None or answers is None:
            return variables
        task_file = self._folder / "task.json"
        task_data = {
            "asks": requests_of_task(task, self._prompts),
            "concurrency": task.streams or self._concurrency,
            "seed": task.turn,
            "reference": dict(task.reference),
            "label": f"{task.candidate.id}, {task.arm}",
            # Only the final measurement compares answer texts.
            "texts": task.part == FINAL,
        }
        task_file.write_text(json.dumps(task_data) + "\n", "utf-8")
        return {
            **variables,
            "tune_arm": task.arm,
            "tune_deadline": time.time() + end - self._clock() - _MARGIN_S,
            "tune_task": str(task_file),
            "tune_answers": str(answers),
        }

    def _play(self, playbooks: Sequence[str], variables: Variables, end: float) -> Played:
        """Run playbooks until the monotonic time ``end``, unless it is too near to start any."""
        left_s = end - self._clock()
        if left_s < _MARGIN_S:
            return Played(status=None, why="no time was left for it")
        path = self._folder / "variables.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(variables) + "\n", "utf-8")
        self.started = True
        return self._plays.run(playbooks, path, left_s)


def requests_of_task(task: Task, prompts: TunePrompts) -> list[TuneRequest]:
    """The requests of a task; after the last request of its part it continues with the first.

    The first round of the final measurement ends with the prompts of the gates, whose answers are only checked.
    """
    available = prompts.final if task.part == FINAL else prompts.search
    requests = [available[index % len(available)] for index in range(task.first, task.first + task.count)]
    if task.part == FINAL and task.turn == 1:
        requests += prompts.gates
    return requests


def outcome_of(trial: TrialResult, task: Task) -> Outcome:
    """The outcome for the result of `trial.run_trial`.

    The first case that applies decides:

    - a failed answer: failed, as it makes a report invalid;
    - a baseline that drafted: failed;
    - an end that is unknown here: failed;
    - else the trial's own end.
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
    status = trial["status"]
    why = trial["why"]
    if trial["failed"]:
        status = FAILED
        why = f"{trial['failed']} of {trial['asked']} answers failed: {why}"
    elif task.arm != SPECULATIVE and trial["drafted"]:
        status = FAILED
        why = "the baseline drafted tokens, so it is no baseline"
    elif status not in (OK, STOPPED, FAILED, TOO_LATE):
        why = f"an unknown end: {status}"
        status = FAILED
    # `BoxTrial` adds the elapsed and the preparation time.
    return Outcome(status, tpot_ms=trial["tpot_ms"], measured_s=trial["measured_s"], why=why, facts=facts)
