"""Find, read and list kept reports.

``reports/<profile>/<time>-<host>/`` holds a report with the results that it was made from. Reports are never removed,
so that they can be compared later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..analysis.words import EARLIER, RULE_VERSION
from ..bench.kept_shapes import REPORT, checked, checked_result, with_gains
from ..bench.result_types import ArmResult
from ..bench.stats import Gain
from ..core.documents import read_json
from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.format import count, first_names, name_of, shown_date, times_span
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile
from ..report.data.build import SCHEMA as REPORT_SCHEMA
from .report_types import ARMS, Arm, KeptProfile, Report

#: The forms in which a user names a report, for messages.
HOW = "a folder with a report.json, PROFILE (its newest), PROFILE~1 (the one before), or PROFILE/START-OF-FOLDER"
#: The time at the start of a folder's name. Folders without it sort as the oldest.
DATED = re.compile(r"\d{8}-\d{6}")
#: The most folders that a message names.
MOST_SHOWN = 8


@dataclass(frozen=True)
class Kept:
    """A kept report: its folder, its content, and the results of both arms with all requests."""

    path: Path
    report: Report
    results: Mapping[Arm, ArmResult]

    @property
    def label(self) -> str:
        """Profile, host and time as text, to identify the report for the user."""
        parts = (self.report.get("profile"), self.report.get("host"), shown_date(self.report.get("date") or ""))
        return " · ".join(filter(None, parts))

    @property
    def resolved(self) -> KeptProfile:
        """The resolved profile that was measured; {} in the oldest reports."""
        return self.report["resolved"]


def folders(reports: Path, profile: str | None = None) -> list[Path]:
    """The folders of all reports, or of those of ``profile``, the newest first."""
    pattern = f"{name_of(profile) or 'no-profile'}/*/report.json" if profile else "*/*/report.json"
    report_folders = [path.parent for path in reports.glob(pattern)]
    return sorted(report_folders, key=lambda path: (_start_time(path), path.name, path.parent.name), reverse=True)


def _start_time(folder: Path) -> str:
    """The time at the start of a folder's name; "" if it has none."""
    match = DATED.match(folder.name)
    return match.group(0) if match else ""


def find(reports: Path, what: str, argument: str = "") -> Path:
    """The folder of the report that ``what`` names, in one of the forms of `HOW`. An existing path comes first.

    Raises DrafthouseError if no report or more than one matches; ``argument`` is the name of the user's argument for
    its message, "" for none.
    """
    path = Path(what).expanduser()
    if path.name == "report.json" and path.is_file():
        return path.parent
    if (path / "report.json").is_file():
        return path
    name, _, folder_start = what.partition("/")
    name, tilde, steps = name.partition("~")
    if not steps:
        steps = "1" if tilde else "0"  # PROFILE~ is the one before the newest
    candidates = folders(reports, name) if name else []
    if not candidates or not steps.isdigit():
        profiles = sorted({folder.parent.name for folder in folders(reports)})
        advice = did_you_mean(name, profiles) if profiles else "measure a profile first"
        raise one_problem("no-such-report", f"no report '{what}' in {reports}", HOW, advice, argument)
    matching = [folder for folder in candidates if folder.name.startswith(folder_start)]
    if folder_start and len(matching) != 1:
        found = f"{len(matching)} reports of {name} begin with '{folder_start}'"
        raise one_problem("ambiguous-report", found, "one", f"write one of: {_names(matching or candidates)}", argument)
    if int(steps) >= len(matching):
        found = f"{count(len(matching), 'report')} of {name}"
        needed = f"at least {int(steps) + 1} for '{what}'"
        raise one_problem("no-such-report", found, needed, "measure it again", argument)
    return matching[int(steps)]


def _names(folders: Sequence[Path]) -> str:
    """The names of at most `MOST_SHOWN` folders, with an ellipsis if there are more."""
    return first_names([folder.name for folder in folders], MOST_SHOWN)


def newest_of_all(reports: Path) -> Path:
    """The folder of the newest report. Raises DrafthouseError if there is none."""
    for folder in folders(reports):
        return folder
    raise one_problem("no-such-report", f"no report in {reports}", "one that was measured", "measure a profile first")


def newest(reports: Path, host: str, resolved: ResolvedProfile) -> Kept | None:
    """The newest report of a resolved profile with its engine version on ``host``; None if there is none.

    Prefers a report with the same commands, since the newest one may be of a run with other settings. If no report has
    the same commands, the newest one is returned, since variables of the host can change paths in the commands.
    """
    same_version = None
    for folder in folders(reports, resolved["profile"]):
        report = _read(folder / "report.json")
        measured = report.get("resolved") or {}
        version = str((measured.get("engine") or {}).get("version"))
        if (report.get("host"), version) != (host, resolved["engine"]["version"]):
            continue
        if _commands_of(measured.get("arms") or {}) == _commands_of(resolved["arms"]):
            return read_kept(folder)
        same_version = same_version or folder  # the newest with other commands
    return read_kept(same_version) if same_version else None


def _commands_of(arms: Mapping[str, ResolvedArm]) -> str:
    """The commands and flags of all arms as text, to compare them."""
    return json.dumps({name: [arm.get("command"), arm.get("flags")] for name, arm in arms.items()}, sort_keys=True)


def read_kept(folder: Path) -> Kept:
    """Read the report in a folder and its results. Raises DrafthouseError for a missing or malformed file."""
    report = _read(folder / "report.json")
    if report.get("schema") != REPORT_SCHEMA:
        found = f"the schema {report.get('schema')!r}"
        do = "make the report again: drafthouse report --again FOLDER"
        raise one_problem("unknown-schema", found, repr(REPORT_SCHEMA), do, str(folder / "report.json"))
    results: dict[Arm, ArmResult] = {}
    for arm in ARMS:
        path = folder / f"{arm}.json"
        results[arm] = checked_result(_read(path), str(path))
    # The oldest reports have no resolved profile.
    complete = cast("Report", {"resolved": {}, **checked(report, REPORT, str(folder / "report.json"))})
    return Kept(folder, complete, results)


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON object of a report's folder; `median` of a speed-up in old files is renamed to `gain`."""
    needed = "a file written by drafthouse report"
    data = read_json(path, needed, "name another report")
    if not isinstance(data, dict):
        raise one_problem("file-malformed", f"a {type(data).__name__}", needed, "name another report", str(path))
    with_gains(data)
    return data


@dataclass(frozen=True)
class KeptLine:
    """A kept report in a list. Texts are "" where the report does not have them."""

    folder: Path
    date: str  # as it is shown to users
    profile: str  # of an unreadable report, the name of its folder's folder
    host: str
    said: str  # the verdict's word, or the reason why the report cannot be read
    speedup: Gain | None  # None: the verdict has none, or the report cannot be read
    engine: str  # name and version
    earlier: bool = False  # True if an earlier version of the verdict's rule gave the word

    @property
    def shown(self) -> str:
        """The word for display, marked if an earlier rule gave it."""
        return f"{self.said} ({EARLIER})" if self.earlier else self.said

    @property
    def name(self) -> str:
        """The report's name in commands."""
        return f"{self.folder.parent.name}/{self.folder.name}"


def kept_lines(reports: Path, profile: str | None = None) -> list[KeptLine]:
    """A line for each kept report, the newest first.

    An unreadable report also gets a line, with the reason, so that it does not hide the others.
    """
    return [_line(folder) for folder in folders(reports, profile)]


def _line(folder: Path) -> KeptLine:
    """The line of the report in a folder, readable or not."""
    try:
        report = _read(folder / "report.json")
        verdict = report["verdict"]
        engine = (report.get("resolved") or {}).get("engine") or {}
        return KeptLine(
            folder,
            date=shown_date(str(report.get("date") or "")),
            profile=str(report.get("profile") or ""),
            host=str(report.get("host") or ""),
            said=str(verdict["word"]),
            speedup=verdict.get("speedup"),
            engine=f"{engine.get('name') or ''} {engine.get('version') or ''}".strip(),
            earlier=verdict.get("rule") != RULE_VERSION,
        )
    except DrafthouseError as error:
        reason = error.problems[0].found.splitlines()[0]
    except (KeyError, TypeError, AttributeError):
        reason = "not a report"
    return KeptLine(folder, date="", profile=folder.parent.name, host="", said=reason, speedup=None, engine="")


def history_rows(reports: Path, profile: str | None = None) -> list[list[str]]:
    """A row for each kept report, the newest first: time, profile, host, verdict, speed-up, report name."""
    return [
        [line.date, line.profile, line.host, line.shown, times_span(line.speedup), line.name]
        for line in kept_lines(reports, profile)
    ]
