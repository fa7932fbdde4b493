"""Files that take a box out of the traffic of its fleet (several boxes behind one address); their text is the reason.

They are in the folder ``replica/out`` of the box's home. A person's drain writes and removes ``drain``, a run that
changes or measures the server ``run``; each leaves the other file alone. Python 3.10, standard library only.
"""

from __future__ import annotations

from pathlib import Path

from ..core.files import text_in

FOLDER = "replica"  # in the box's home
# The owners, who name their files.
DRAIN = "drain"  # a person
RUN = "run"


def out_file(home: Path, owner: str) -> Path:
    """The file with which ``owner`` (`DRAIN` or `RUN`) takes the box out of traffic."""
    return home / FOLDER / "out" / owner


def reasons_out(home: Path) -> list[str]:
    """The reasons for which the box is out of traffic, one for each file; empty if it takes requests."""
    reasons = []
    for owner in (DRAIN, RUN):
        file = out_file(home, owner)
        if file.is_file():
            reasons.append(f"{owner}: {text_in(file).strip()}")
    return reasons


def forget_run(home: Path) -> None:
    """Remove the `RUN` file, which the run itself did not remove."""
    out_file(home, RUN).unlink(missing_ok=True)
