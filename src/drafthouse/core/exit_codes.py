"""The exit codes of all verbs and scripts (docs/exit-codes.md). Standard library only.

`make` prints a code as ``Error N`` and itself exits with 2. A playbook exits with Ansible's codes instead; a verdict
`cannot say` does not make it fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import DrafthouseError, NotHere

DONE, WARNED, FAILED, NOT_HERE, CANNOT_SAY = range(5)  # what each means: `MEANINGS`
#: Ctrl-C, as in shells: 128 plus the number of SIGINT (2).
INTERRUPTED = 130

MEANINGS = {
    DONE: "done",
    WARNED: "done, with warnings",
    FAILED: "failed, or `invalid`",
    NOT_HERE: "cannot be done here",
    CANNOT_SAY: "`cannot say`",
    INTERRUPTED: "stopped with Ctrl-C",
}


def of_error(error: DrafthouseError) -> int:
    """The exit code of a program that ends with ``error``."""
    return NOT_HERE if isinstance(error, NotHere) else FAILED


def worst(codes: Iterable[int]) -> int:
    """The worst of some exit codes: FAILED, NOT_HERE, CANNOT_SAY, WARNED, DONE, in this order; DONE without any.

    INTERRUPTED is none of them: ValueError is raised for it.
    """
    order = (DONE, WARNED, CANNOT_SAY, NOT_HERE, FAILED)
    return max(codes, key=order.index, default=DONE)
