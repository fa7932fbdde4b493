"""The last lines of a run: how to connect, the verdict's headline, the next command, and the report's address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..analysis.words import CANNOT_SAY, INVALID
from ..core.format import shown_date
from ..core.plain_text import printable
from ..core.shell import shell_words
from ..core.typed import with_verbs
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
    """The lines as text.

    ``inventory`` is a name below inventory/ or a path. ``page`` is the HTML report, None if it was not written.
    ``destroyed`` is True if the caller destroys the rented instance after the run. ``connection`` says how to reach the
    server, None if none runs. ``kept`` is True if this run measured nothing and shows an existing report.
    ``table_above`` is True if the verdict was printed just before, so that it is not repeated.
    """
    command = _next_command(report, resolved, inventory, destroyed=destroyed)
    lines = []
    if connection:
        lines += [*map(printable, connection_lines(connection)), ""]
    when_measured = ""
    if kept:
        when_measured = f"measured {shown_date(report['date'])}; ARGS='-e remeasure=true' measures again"
    if not table_above:
        verdict = f"verdict: {printable(headline_of(report['verdict']))}"
        if kept:
            verdict += f"   ({when_measured})"
        lines.append(verdict)
    elif kept:
        lines.append(f"kept: {when_measured}")
    lines.append(f"next: {command}")
    text = with_verbs("\n".join(lines))
    if page:
        # An ASCII file:// URI, so that terminals make it a link whatever characters the path has.
        text += f"\nreport: {page.resolve().as_uri()}"
    return text


def _next_command(report: Report, resolved: Run, inventory: str, *, destroyed: bool) -> str:
    """The command that the user most probably needs next, and why."""
    profile = resolved["profile"]
    verdict_word = report["verdict"]["word"]
    inventory_option = f"INVENTORY={shell_words([inventory])}"
    same_options = ", with the same SET" if resolved["overrides"] else ""
    # Only an instance of `make rent` has a deadline; `make destroy` cannot end a container of another provider.
    if resolved["deadline"]:
        if destroyed:
            return f"make reports PROFILE={profile}   (lists the reports of this profile, to compare them)"
        return "make destroy   (the rented box bills until it ends)"
    if verdict_word in (CANNOT_SAY, INVALID):
        why = "once the machine is quiet" if verdict_word == CANNOT_SAY else "once that is fixed"
        return f"make {profile} {inventory_option} ARGS='-e remeasure=true'   (measures again, {why}{same_options})"
    if resolved["hardware"]["kind"] == "cpu":
        return "make profiles   (lists those for GPUs; make plan PROFILE=name shows what one needs)"
    return f"make tune PROFILE={profile} {inventory_option}   (looks for a better draft length, method and draft)"
