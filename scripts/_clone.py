"""The library on the path, and what scripts share with the verbs of `drafthouse`."""

from __future__ import annotations

import sys
from pathlib import Path

# There is no install step: the library is imported from the clone.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from drafthouse.cli.main import main
from drafthouse.cli.parser import parser_of, project, run

__all__ = ["door", "parser_of", "project", "run"]


def door(*words: str) -> None:
    """Be `drafthouse` with these words before those of the command line."""
    run(lambda: main([*words, *sys.argv[1:]]))
