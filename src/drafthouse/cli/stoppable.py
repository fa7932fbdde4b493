"""Run a playbook. Ctrl-C stops what it has started on its boxes: background jobs and the servers of the run.

Examples:
  drafthouse stoppable -- ansible-playbook site.yml -i inventory/local -e profile=cpu-smollm2-draft
  drafthouse stoppable --stop-after -- ansible-playbook site.yml -i inventory/local -e profile=cpu-smollm2-ngram

A server from an earlier run keeps serving or is restored, unless --stop-after stops everything at the end. A second
Ctrl-C leaves what is still running.

Exit status: the playbook's; 130 stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import one_problem
from ..core.exit_codes import INTERRUPTED
from ..core.foreground import POLL_S, Stop, run_until_stopped
from ..core.places import CLOSING_FILE, PLAYS
from .parser import Parser, parser_of
from .say import say

_GRACE_S = 3.0  # seconds after Ctrl-C, before ansible-playbook gets a stronger signal
_PROGRESS_S = 2.0  # seconds without output, before a line shows that cleanup goes on
_SITE = "site.yml"
# The phases (Ansible tags) of site.yml that start servers.
_SERVING_PHASES = {"all", "settle", "experiment", "report"}
# Options of ansible-playbook whose value may be a YAML file, which is then no playbook.
_FILE_OPTIONS = ("-i", "--inventory", "-e", "--extra-vars", "--vault-password-file", "--private-key", "--key-file")


def options() -> Parser:
    """The argument parser of `drafthouse stoppable`."""
    parser = parser_of(__doc__, "stoppable", takes_words=True)
    parser.add_argument("--stop-after", action="store_true", help="also stop every server at the end")
    return parser


def playbook_of(command: Sequence[str], name: str, *more: str) -> list[str]:
    """The command line ``command`` with its playbooks replaced by ``name``: same inventory, variables and limits.

    ``more``: words that are added at the end.
    """
    positions = []
    for index, word in enumerate(command):
        if word.endswith(".yml") and command[index - 1] not in _FILE_OPTIONS:
            positions.append(index)
    first = positions[0] if positions else 1  # without a playbook: behind the program's name
    rest = [word for index, word in enumerate(command) if index > first and index not in positions]
    return [*command[:first], str(PLAYS / "playbooks" / name), *rest, *more]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the playbook that stands after `--`, and on Ctrl-C stop what it started."""
    args = options().parse_args(argv)
    if not args.words:
        raise one_problem(
            "no-command", "no command", "a command after --", "drafthouse stoppable --help shows an example"
        )
    return run_stoppable(args.words, stop_after=args.stop_after)


def run_stoppable(command: Sequence[str], *, stop_after: bool = False) -> int:
    """Run a playbook's command and return its exit status; ``stop_after`` stops every server at the end."""
    if not stop_after:
        return _run(command, stop_after, environment=None)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        # The run writes its last lines, with the verdict, into this file; they are shown after the servers stop.
        closing_lines = Path(folder) / "closing"
        brief = {"ANSIBLE_STDOUT_CALLBACK": "drafthouse.core.brief", **os.environ, CLOSING_FILE: str(closing_lines)}
        status = _run(command, stop_after, brief)
        if closing_lines.exists():
            say(closing_lines.read_text("utf-8").rstrip())
    return status


def _run(command: Sequence[str], stop_after: bool, environment: Mapping[str, str] | None) -> int:
    """Run the command in ``environment`` (None: this process's), and clean up after Ctrl-C; return the exit status.

    INTERRUPTED after Ctrl-C. Else the command's; with ``stop_after``, that of the stop if that failed.
    """
    serves = _starts_servers(command)
    stop = Stop(tell=say, warned=True)  # the notice at the first Ctrl-C already says what a second one does
    # The servers that interrupted.yml stops. A command that starts none, such as a download, leaves all of them alone.
    servers = "all" if stop_after else "of_run"
    if not serves:
        servers = "none"
    cleanups: list[subprocess.Popen[bytes]] = []  # one after Ctrl-C, else empty
    stopped_at = 0.0

    def start_cleanup() -> None:
        """Start the cleanup, at the first Ctrl-C."""
        nonlocal stopped_at
        stopped_at = time.monotonic()
        say(_stopping_notice(serves))
        # The cleanup starts at once, as Ansible needs seconds to start; it waits itself until the run has ended.
        more = ["-e", f"interrupted_servers={servers}", "-e", f"interrupted_pid={child.pid}"]
        cleanups.append(_start_playbook(playbook_of(command, "interrupted.yml", *more)))

    with stop.handling_signals():
        child = subprocess.Popen(command, env=environment)
        status = run_until_stopped(child, stop, start_cleanup, _GRACE_S)
        stop.ending = True
        try:
            if stop.received.count(signal.SIGINT) > 1:  # the second Ctrl-C came before the run had ended
                _terminate(*cleanups)
                raise KeyboardInterrupt
            if cleanups:
                return _finish_cleanup(cleanups[0], stopped_at)
            if stop_after:
                say("stopping what was started")
                # If the stop fails, its status counts, whatever the run's: servers may still run.
                status = _run_playbook(playbook_of(command, "stop.yml")) or status
        except KeyboardInterrupt:
            say("left as it is; make stop stops it")
            return INTERRUPTED
    return status


def _starts_servers(command: Sequence[str]) -> bool:
    """True if the command runs site.yml, either all of it or a phase that starts servers."""
    runs_site = any(word.endswith(_SITE) for word in command)
    tags: list[str] = []
    for index, word in enumerate(command):
        if word in ("--tags", "-t"):
            tags += command[index + 1 : index + 2]
        elif word.startswith("--tags="):
            tags.append(word.removeprefix("--tags="))
    return runs_site and (not tags or not _SERVING_PHASES.isdisjoint(",".join(tags).split(",")))


def _stopping_notice(serves: bool) -> str:
    """The notice at the first Ctrl-C; ``serves``: the command starts servers."""
    what = "the servers of this run" if serves else "what runs on the box"
    return f"\nStopping: {what} (a second Ctrl-C leaves them running)"


def _finish_cleanup(cleanup: subprocess.Popen[bytes], stopped_at: float) -> int:
    """Wait for the cleanup and tell how it ended; return INTERRUPTED. ``stopped_at``: monotonic time of Ctrl-C."""
    if _wait_for(cleanup):
        say("not everything could be stopped; make doctor shows what runs, make stop stops it")
    else:
        say(f"stopped, after {time.monotonic() - stopped_at:.1f} s")
    return INTERRUPTED


def _run_playbook(command: Sequence[str]) -> int:
    return _wait_for(_start_playbook(command))


def _start_playbook(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a playbook in a session of its own, which Ctrl-C at the terminal does not reach."""
    quiet = {**os.environ, "ANSIBLE_DISPLAY_OK_HOSTS": "false", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def _wait_for(child: subprocess.Popen[bytes]) -> int:
    """Wait for a playbook that `_start_playbook` started, and return its exit status.

    On KeyboardInterrupt, which the second Ctrl-C raises, terminate the playbook first.
    """
    try:
        return _show_output(child)
    except KeyboardInterrupt:
        _terminate(child)
        raise


def _terminate(*children: subprocess.Popen[bytes]) -> None:
    """End playbooks with all processes of their sessions, and wait for them."""
    for child in children:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _show_output(child: subprocess.Popen[bytes]) -> int:
    """Show the lines that Drafthouse's own actions print, and all lines if the playbook failed; return its status."""
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    started_at = shown_at = time.monotonic()
    lines: list[str] = []
    rest = b""  # an incomplete line
    while True:
        ended = child.poll() is not None  # before the last read, which then finds all output
        *complete, rest = (rest + (child.stdout.read() or b"")).split(b"\n")
        for data in complete:
            line = data.decode("utf-8", "replace")
            lines.append(line)
            # Drafthouse's actions indent their lines by two blanks; "..." marks progress, which is not shown again.
            if line.startswith("  ") and "..." not in line:
                say(line)
                shown_at = time.monotonic()
        if ended:
            break
        if time.monotonic() - shown_at >= _PROGRESS_S:
            shown_at = time.monotonic()
            say(f"  ... {shown_at - started_at:.0f} s")
        time.sleep(POLL_S)
    if child.returncode:
        say("\n".join(lines))
    return child.returncode
