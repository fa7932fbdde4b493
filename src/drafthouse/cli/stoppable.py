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
from ..core.foreground import LOOK_S, Stop, run_until_stopped
from ..core.places import CLOSING_FILE, PLAYS
from .parser import Parser, parser_of
from .say import say

_KINDNESS_S = 3.0
_TICK_S = 2.0
_SITE = "site.yml"
# Its phases that start servers.
_SERVING = {"all", "settle", "experiment", "report"}


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "stoppable", takes_words=True)
    parser.add_argument("--stop-after", action="store_true", help="also stop every server at the end")
    return parser


def playbook_of(command: Sequence[str], name: str, *more: str) -> list[str]:
    """``command`` with this one playbook in place of its own: the same inventory, variables and limits."""
    places = [place for place, word in enumerate(command) if word.endswith(".yml") and command[place - 1] not in _TAKES]
    first = places[0] if places else 1
    rest = [word for place, word in enumerate(command) if place > first and place not in places]
    return [*command[:first], str(PLAYS / "playbooks" / name), *rest, *more]


# Options whose value may well be a YAML file.
_TAKES = ("-i", "--inventory", "-e", "--extra-vars", "--vault-password-file", "--private-key", "--key-file")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the playbook, and stop what shall not go on."""
    given = options().parse_args(argv)
    if not given.words:
        raise one_problem(
            "no-command", "no command", "a command after --", "drafthouse stoppable --help shows an example"
        )
    return run_stoppable(given.words, stop_after=given.stop_after)


def run_stoppable(command: Sequence[str], *, stop_after: bool = False) -> int:
    """The exit status of a playbook's command, whose Ctrl-C stops what it started; ``stop_after`` stops all servers."""
    if not stop_after:
        return _run(command, stop_after, None)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        closing = Path(folder) / "closing"
        # A run that leaves nothing behind is one to look at: what changed, and the verdict.
        shown = {"ANSIBLE_STDOUT_CALLBACK": "drafthouse.core.brief", **os.environ, CLOSING_FILE: str(closing)}
        status = _run(command, stop_after, shown)
        if closing.exists():
            say(closing.read_text("utf-8").rstrip())
    return status


def _run(command: Sequence[str], stop_after: bool, environment: Mapping[str, str] | None) -> int:
    serves = _serves(command)
    stop = Stop(tell=say, passed_over=True)
    servers = "all" if stop_after else "of_run"
    if not serves:
        servers = "none"
    clearing: list[subprocess.Popen[bytes]] = []
    begun = 0.0

    def stopping() -> None:
        nonlocal begun
        begun = time.monotonic()
        say(_first_words(serves))
        # Ansible takes seconds to start, as the run takes to end. It waits for that end by itself.
        more = ["-e", f"interrupted_servers={servers}", "-e", f"interrupted_pid={child.pid}"]
        clearing.append(_started(playbook_of(command, "interrupted.yml", *more)))

    with stop.heard():
        child = subprocess.Popen(command, env=environment)
        status = run_until_stopped(child, stop, stopping, _KINDNESS_S)
        stop.ending = True
        try:
            if stop.seen.count(signal.SIGINT) > 1:
                _killed(*clearing)
                raise KeyboardInterrupt
            if clearing:
                return _interrupted(clearing[0], begun)
            if stop_after:
                say("stopping what was started")
                status = _played(playbook_of(command, "stop.yml")) or status
        except KeyboardInterrupt:
            say("left as it is; make stop stops it")
            return INTERRUPTED
    return status


def _serves(command: Sequence[str]) -> bool:
    """Tell whether the command starts servers: site.yml, whole or with a phase that does."""
    site = any(word.endswith(_SITE) for word in command)
    tags: list[str] = []
    for place, word in enumerate(command):
        if word in ("--tags", "-t"):
            tags += command[place + 1 : place + 2]
        elif word.startswith("--tags="):
            tags.append(word.removeprefix("--tags="))
    return site and (not tags or not _SERVING.isdisjoint(",".join(tags).split(",")))


def _first_words(serves: bool) -> str:
    what = "the servers of this run" if serves else "what runs on the box"
    return f"\nStopping: {what} (a second Ctrl-C leaves them running)"


def _interrupted(clearing: subprocess.Popen[bytes], begun: float) -> int:
    if _ended(clearing):
        say("not everything could be stopped; make doctor shows what runs, make stop stops it")
    else:
        say(f"stopped, after {time.monotonic() - begun:.1f} s")
    return INTERRUPTED


def _played(command: Sequence[str]) -> int:
    return _ended(_started(command))


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a playbook that Ctrl-C does not reach."""
    quiet = {**os.environ, "ANSIBLE_DISPLAY_OK_HOSTS": "false", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Wait for such a playbook and return its exit status; of what it says, only what is ours.

    All of it where it fails. Raises KeyboardInterrupt when a signal comes.
    """
    try:
        return _shown(child)
    except KeyboardInterrupt:
        _killed(child)
        raise


def _killed(*children: subprocess.Popen[bytes]) -> None:
    for child in children:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()


def _shown(child: subprocess.Popen[bytes]) -> int:
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    begun = shown_at = time.monotonic()
    lines: list[str] = []
    rest = b""
    while True:
        ended = child.poll() is not None
        *whole, rest = (rest + (child.stdout.read() or b"")).split(b"\n")
        for data in whole:
            line = data.decode("utf-8", "replace")
            lines.append(line)
            if line.startswith("  ") and "..." not in line:
                say(line)
                shown_at = time.monotonic()
        if ended:
            break
        if time.monotonic() - shown_at >= _TICK_S:
            shown_at = time.monotonic()
            say(f"  ... {shown_at - begun:.0f} s")
        time.sleep(LOOK_S)
    if child.returncode:
        say("\n".join(lines))
    return child.returncode
