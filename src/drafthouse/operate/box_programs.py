"""The programs of ours that outlive a run on a box.

Each imports only what it needs, so that a box whose own environment is damaged still serves what should serve: restore
and guard need the standard library alone, watchdog also the environment's aiohttp. Python 3.10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

_PROGRAMS = {
    "watchdog": "watch whether speculation still pays, until it is stopped",
    "restore": "start the recorded server now, if it is not running",
    "ready": "answer whether this box of a fleet takes requests, until it is stopped",
    "guard": "start the recorded server if the current run loses contact with the box",
}


def main(words: Sequence[str] | None = None) -> int:
    """The exit status of the program that ``words`` name, once it has ended."""
    parser = argparse.ArgumentParser(prog="drafthouse", description="Programs that run on a box without a run.")
    programs = parser.add_subparsers(dest="program", required=True)
    for name, what in _PROGRAMS.items():
        program = programs.add_parser(name, help=what, description=what)
        program.add_argument("home", type=Path, help="Drafthouse's folder on this box (drafthouse_home)")
    given = parser.parse_args(words)
    if given.program == "watchdog":
        from ..addons.watchdog.run import watch  # noqa: PLC0415

        watch(given.home)
    elif given.program == "ready":
        from ..addons.fleet.ready import answer_for_ever  # noqa: PLC0415

        answer_for_ever(given.home)
    elif given.program == "restore":
        from ..serving.restore import restore_at_boot  # noqa: PLC0415

        return restore_at_boot(given.home)
    else:
        from ..serving.rollback_guard import guard  # noqa: PLC0415

        return guard(given.home)
    return 0
