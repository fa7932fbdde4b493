"""Command line of the programs that keep running on a box after the playbook has ended.

Each program's modules are imported only when it is chosen: restore and guard need only the standard library, so that
they can start the server even if Drafthouse's environment is damaged; watchdog also needs aiohttp. Python 3.10.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

#: By program, its line in the help.
_PROGRAMS = {
    "watchdog": "watch whether speculation still pays, until it is stopped",
    "restore": "start the recorded server now, if it is not running",
    "ready": "answer whether this box of a fleet takes requests, until it is stopped",
    "guard": "start the recorded server if the current run loses contact with the box",
}


def main(words: Sequence[str] | None = None) -> int:
    """The exit status of the program that the arguments ``words`` (default: those of the process) name."""
    parser = argparse.ArgumentParser(prog="drafthouse", description="Programs that run on a box without a run.")
    programs = parser.add_subparsers(dest="program", required=True)
    for name, description in _PROGRAMS.items():
        program = programs.add_parser(name, help=description, description=description)
        program.add_argument("home", type=Path, help="Drafthouse's folder on this box (drafthouse_home)")
    arguments = parser.parse_args(words)
    if arguments.program == "watchdog":
        from ..addons.watchdog.run import watch  # noqa: PLC0415

        watch(arguments.home)
    elif arguments.program == "ready":
        from ..addons.fleet.ready import answer_for_ever  # noqa: PLC0415

        answer_for_ever(arguments.home)
    elif arguments.program == "restore":
        from ..serving.restore import restore_at_boot  # noqa: PLC0415

        return restore_at_boot(arguments.home)
    else:
        from ..serving.rollback_guard import guard  # noqa: PLC0415

        return guard(arguments.home)
    return 0
