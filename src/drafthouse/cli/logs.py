"""Show the logs of every box of an inventory: engines, gateway, supervisors. --follow continues until Ctrl-C.

Examples:
  drafthouse logs --lines 200
  drafthouse logs --inventory vastai --host vast-4711 --only speculative --follow
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cloud.vast.local_state import state_folder
from ..core.errors import did_you_mean, one_problem
from ..core.exit_codes import DONE, FAILED, WARNED
from ..core.foreground import signals_as_ctrl_c
from ..core.plain_text import printable
from ..operate.logs import Source, Wish, source
from ..operate.tunnel import hosts_of
from ..profiles.workspace import ROOT, inventory_path, site_from
from .parser import Parser, parser_of

_END_S = 5.0  # seconds that `Viewer.end` waits for each command to end


def options() -> Parser:
    """The argument parser of `drafthouse logs`."""
    parser = parser_of(__doc__, "logs")
    parser.add_argument("--inventory", default="local", help="inventory name, or a path (default: local)")
    parser.add_argument("--host", default="", help="only this host")
    parser.add_argument("--lines", type=int, default=100, help="number of lines per log (default: %(default)s)")
    parser.add_argument(
        "--only", default="", metavar="PART", help="only logs with this in their name: an arm, gateway, ..."
    )
    parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    return parser


def sources(args: argparse.Namespace) -> list[Source]:
    """For each box, the command that prints its logs. Raises DrafthouseError for an unknown host."""
    hosts = hosts_of(inventory_path(args.inventory))
    if not hosts:
        raise one_problem("no-host", "no host", "a box with logs", "write one into its hosts.yml", str(args.inventory))
    if args.host and args.host not in hosts:
        do = did_you_mean(args.host, hosts)
        raise one_problem("no-such-host", f"no host '{args.host}'", "a host of the inventory", do, str(args.inventory))
    names = [args.host] if args.host else sorted(hosts)
    wish = Wish(lines=max(1, args.lines), follow=args.follow, only=args.only)
    return [source(name, hosts, _home(name, hosts[name]), wish, state_folder() / "known_hosts") for name in names]


def _home(name: str, variables: Mapping[str, Any]) -> str:
    """Drafthouse's folder on the box ``name``, by the inventory's ``variables``. Raises DrafthouseError."""
    home = str(site_from({"drafthouse_home": variables.get("drafthouse_home")})["home"])
    if home and "{{" not in home:  # only Ansible fills in a template
        if variables.get("ansible_connection") == "local":
            return str(Path(home).expanduser())
        # Over SSH a relative path starts at the user's home.
        return home.removeprefix("~/")
    raise one_problem(
        "invalid-setting",
        f"drafthouse_home: {home or 'nothing'}",
        "our folder on the box",
        "write the path out",
        name,
    )


class Viewer:
    """Runs one command for each box and prints their lines as they arrive, with the box's name in front."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.boxes = len(sources)
        self.lines = 0  # printed so far
        self._lock = threading.Lock()
        self._running = [(source, _start(source.command)) for source in sources]

    def wait(self) -> int:
        """Print all lines until the commands end; return the number of boxes whose command failed."""
        threads = []
        for source_and_process in self._running:
            thread = threading.Thread(target=self._print, args=source_and_process, daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # in short waits, between which Ctrl-C is handled
        return sum(process.wait() != 0 for _, process in self._running)

    def _print(self, source: Source, process: subprocess.Popen[str]) -> None:
        """Print the lines of one command until it ends; this runs in a thread of its own."""
        prefix = f"{source.name} " if self.boxes > 1 else ""
        for line in process.stdout or ():
            with self._lock:
                self.lines += 1
                print(f"{prefix}{printable(line.rstrip())}", flush=True)

    def end(self) -> None:
        """Terminate the commands that still run."""
        for _, process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for _, process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _start(command: list[str]) -> subprocess.Popen[str]:
    # In a session of its own, so that Ctrl-C reaches only this process, and `end` can signal the whole group.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Show the logs; return the exit status.

    DONE, also after Ctrl-C; WARNED where those of a box could not be read, FAILED where those of all boxes could not.
    """
    args = options().parse_args(argv)
    with signals_as_ctrl_c():
        viewer = Viewer(sources(args))
        try:
            failures = viewer.wait()
        except KeyboardInterrupt:
            return DONE
        finally:
            viewer.end()
    if not viewer.lines and not failures:
        print(_no_log_text(args), file=sys.stderr)
    if not failures:
        return DONE
    return WARNED if failures < viewer.boxes else FAILED


def _no_log_text(args: argparse.Namespace) -> str:
    """The message for boxes without a log, which lists the other inventories."""
    folders = (ROOT / "inventory").iterdir()
    names = sorted(path.name for path in folders if path.is_dir() and path.name != args.inventory)
    where = args.host or f"the boxes of {args.inventory}"
    if args.only:
        return f"no log with '{args.only}' in its name on {where}; without --only (with make: ONLY=) all are shown"
    text = f"no log on {where}: nothing has been served there"
    if names:
        text += f"\nother boxes: drafthouse logs --inventory {names[0]} (one of: {', '.join(names)}, or a path)"
    return text
