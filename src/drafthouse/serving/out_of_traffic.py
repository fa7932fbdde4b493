"""The files that take a box of a fleet out of traffic: one for each owner, in the folder ``replica/out`` of its home.

``drain`` is a person's, ``run`` that of a run that changes or measures the server; the text is the reason. Nobody
removes another's. Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

from pathlib import Path

from ..core.files import text_in

FOLDER = "replica"
DRAIN, RUN = "drain", "run"


def out_file(home: Path, owner: str) -> Path:
    """The file with which ``owner`` takes the box out of traffic."""
    return home / FOLDER / "out" / owner


def reasons_out(home: Path) -> list[str]:
    """Why the box takes no requests, an entry for each owner; empty if it does."""
    reasons = []
    for owner in (DRAIN, RUN):
        file = out_file(home, owner)
        if file.is_file():
            reasons.append(f"{owner}: {text_in(file).strip()}")
    return reasons


def forget_run(home: Path) -> None:
    """Remove the file of a run that has ended."""
    out_file(home, RUN).unlink(missing_ok=True)
