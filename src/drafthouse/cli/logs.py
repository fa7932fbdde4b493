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
from ..core.foreground import ended_like_ctrl_c
from ..core.plain_text import printable
from ..operate.logs import Source, Wish, source
from ..operate.tunnel import hosts_of
from ..profiles.workspace import ROOT, inventory_path, site_from
from .parser import Parser, parser_of

_END_S = 5.0


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "logs")
    parser.add_argument("--inventory", default="local", help="inventory name, or a path (default: local)")
    parser.add_argument("--host", default="", help="only this host")
    parser.add_argument("--lines", type=int, default=100, help="number of lines per log (default: %(default)s)")
    parser.add_argument(
        "--only", default="", metavar="PART", help="only logs with this in their name: an arm, gateway, ..."
    )
    parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    return parser


def sources(given: argparse.Namespace) -> list[Source]:
    """Where the logs come from. Raises DrafthouseError."""
    hosts = hosts_of(inventory_path(given.inventory))
    if not hosts:
        raise one_problem("no-host", "no host", "a box with logs", "write one into its hosts.yml", str(given.inventory))
    if given.host and given.host not in hosts:
        do = did_you_mean(given.host, hosts)
        raise one_problem(
            "no-such-host", f"no host '{given.host}'", "a host of the inventory", do, str(given.inventory)
        )
    names = [given.host] if given.host else sorted(hosts)
    wish = Wish(lines=max(1, given.lines), follow=given.follow, only=given.only)
    return [source(name, hosts, _home(name, hosts[name]), wish, state_folder() / "known_hosts") for name in names]


def _home(name: str, variables: Mapping[str, Any]) -> str:
    home = str(site_from({"drafthouse_home": variables.get("drafthouse_home")})["home"])
    if home and "{{" not in home:
        if variables.get("ansible_connection") == "local":
            return str(Path(home).expanduser())
        # Over SSH a relative path is one below the user's home.
        return home.removeprefix("~/")
    raise one_problem(
        "invalid-setting",
        f"drafthouse_home: {home or 'nothing'}",
        "our folder on the box",
        "write the path out",
        name,
    )


class Shown:
    """The commands while they run; their lines come as they come, one at a time."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.boxes = len(sources)
        self.lines = 0
        self._lock = threading.Lock()
        self._running = [(source, _started(source.command)) for source in sources]

    def wait(self) -> int:
        """Print all lines; return how many of the boxes could not be asked."""
        threads = []
        for pair in self._running:
            thread = threading.Thread(target=self._print, args=pair, daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # so that Ctrl-C is heard
        return sum(process.wait() != 0 for _, process in self._running)

    def _print(self, source: Source, process: subprocess.Popen[str]) -> None:
        prefix = f"{source.name} " if self.boxes > 1 else ""
        for line in process.stdout or ():
            with self._lock:
                self.lines += 1
                print(f"{prefix}{printable(line.rstrip())}", flush=True)

    def end(self) -> None:
        """End what still runs."""
        for _, process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for _, process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _started(words: list[str]) -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C is for us, and we end all that it started.
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Show; return WARNED where a box could not be asked, FAILED where none could."""
    given = options().parse_args(argv)
    with ended_like_ctrl_c():
        shown = Shown(sources(given))
        try:
            lost = shown.wait()
        except KeyboardInterrupt:
            return DONE
        finally:
            shown.end()
    if not shown.lines and not lost:
        print(_nothing(given), file=sys.stderr)
    if not lost:
        return DONE
    return WARNED if lost < shown.boxes else FAILED


def _nothing(given: argparse.Namespace) -> str:
    """What to say where no box has a log."""
    folders = (ROOT / "inventory").iterdir()
    others = sorted(path.name for path in folders if path.is_dir() and path.name != given.inventory)
    where = given.host or f"the boxes of {given.inventory}"
    if given.only:
        return f"no log with '{given.only}' in its name on {where}; without --only (with make: ONLY=) all are shown"
    text = f"no log on {where}: nothing has been served there"
    if others:
        text += f"\nother boxes: drafthouse logs --inventory {others[0]} (one of: {', '.join(others)}, or a path)"
    return text
