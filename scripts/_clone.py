"""What every script shares: the in-tree collection on the path, and errors as found/needed/do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

# There is no install step: the collection is imported from the clone.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collections"))

from ansible_collections.drafthouse.core.plugins.module_utils.problems import HouseError


def run(main: Callable[[], int]) -> None:
    """Run a script's main; a HouseError becomes its lines on stderr and exit status 2."""
    try:
        sys.exit(main())
    except HouseError as error:
        sys.exit(_say(error))
    except BrokenPipeError:
        sys.exit(0)  # the reader (head, less) has seen enough


def _say(error: HouseError) -> int:
    print(error, file=sys.stderr)
    return 2
