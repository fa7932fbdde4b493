"""Put the library of this clone on the path; names that the scripts share with the verbs of `drafthouse`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# There is no install step: the library is imported from the clone.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from drafthouse.cli.main import main
from drafthouse.cli.parser import parser_of, project, run
from drafthouse.core.errors import one_problem

__all__ = ["door", "parser_of", "project", "run"]


def door(*words: str) -> None:
    """Run `drafthouse` with these words before the arguments, in the clone's environment; exits with its status."""
    if find_spec("shtab") is None:  # another Python, if the script was called by its path
        run(_restart)
    run(lambda: main([*words, *sys.argv[1:]]))


def _restart() -> int:
    """Replace this process by the same command with the clone's Python. Raises DrafthouseError without one."""
    environment = Path(__file__).resolve().parent.parent / ".venv"
    python = environment / "bin" / "python"  # a link, which may lead to a folder that this user cannot enter
    if Path(sys.prefix) == environment or not os.access(python, os.X_OK):
        raise one_problem(
            "python-unusable", "a Python without the clone's packages", "the clone's environment", "make venv"
        )
    os.execv(python, [str(python), *sys.argv])  # noqa: S606 (argv, no shell)
