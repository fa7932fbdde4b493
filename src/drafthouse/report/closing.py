"""The last lines of a run: how to connect, the verdict in a sentence, the one next command, and where the report is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.words import CANNOT_SAY, INVALID
from ..core.format import clock
from ..core.plain_text import printable
from ..core.shell import shell_words
from ..core.typed import typed
from .connection import Connection, connection_lines
from .headline import headline_of

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.report.report_types import Report


def closing_lines(
    report: Report,
    resolved: Run,
    inventory: str,
    page: Path | None,
    *,
    destroyed: bool = False,
    connection: Connection | None = None,
    kept: bool = False,
    table_above: bool = False,
) -> str:
    """The lines; ``inventory`` is a name below inventory/ or a path, ``page`` the report's, if it is written.

    ``destroyed``: whoever started the run ends the rented box behind it. ``connection``: how what serves is reached,
    where something does. ``kept``: this run measured nothing, the report was there. ``table_above``: the verdict
    stands a few lines above these, and is not said again.
    """
    command = _next(report, resolved, inventory, destroyed=destroyed)
    lines = []
    if connection:
        lines += [*map(printable, connection_lines(connection)), ""]
    measured = ""
    if kept:
        measured = f"measured {clock(report['date'])}; ARGS='-e remeasure=true' measures again"
    if not table_above:
        verdict = f"verdict: {printable(headline_of(report['verdict']))}"
        if kept:
            verdict += f"   ({measured})"
        lines.append(verdict)
    elif kept:
        lines.append(f"kept: {measured}")
    lines.append(f"next: {command}")
    text = typed("\n".join(lines))
    if page:
        # With three slashes and in ASCII, so that terminals make a link of it whatever the clone's folder is called.
        text += f"\nreport: {page.resolve().as_uri()}"
    return text


def _next(report: Report, resolved: Run, inventory: str, *, destroyed: bool) -> str:
    """The command that a person most probably wants now, and why."""
    profile, word = resolved["profile"], report["verdict"]["word"]
    where = f"INVENTORY={shell_words([inventory])}"
    again = ", with the same SET" if resolved["overrides"] else ""
    # What `make rent` rented has a deadline; `make destroy` cannot end a container of another provider.
    if resolved["deadline"]:
        if destroyed:
            return f"make reports PROFILE={profile}   (lists the reports of this profile, to compare them)"
        return "make destroy   (the rented box bills until it ends)"
    if word in (CANNOT_SAY, INVALID):
        why = "once the machine is quiet" if word == CANNOT_SAY else "once that is fixed"
        return f"make {profile} {where} ARGS='-e remeasure=true'   (measures again, {why}{again})"
    if resolved["hardware"]["kind"] == "cpu":
        return "make profiles   (lists those for GPUs; make plan PROFILE=name shows what one needs)"
    return f"make tune PROFILE={profile} {where}   (looks for a better draft length, method and draft)"
