"""How every program of ours ends: one table (docs/exit-codes.md). Pure, standard library only.

`make` prints them as ``Error N`` and itself ends with 2. A playbook has Ansible's own codes: what cannot be said fails
nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import DrafthouseError, NotHere

DONE, WARNED, FAILED, NOT_HERE, CANNOT_SAY = range(5)
#: Ctrl-C, as shells have it: 128 and the signal's number.
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
    """The code of a program that ends with ``error``."""
    return NOT_HERE if isinstance(error, NotHere) else FAILED


def worst(codes: Iterable[int]) -> int:
    """The code of several things that were done: a failure counts more than what cannot be said, and so on."""
    order = (DONE, WARNED, CANNOT_SAY, NOT_HERE, FAILED)
    return max(codes, key=order.index, default=DONE)
