"""The reports that are kept: which one a person means, and what each says in a line.

``reports/<profile>/<time>-<host>/`` holds one report with the results it was made from. Nothing is ever
removed from it, so that today can be set beside last month.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..analysis.words import EARLIER, RULE
from ..bench.kept_shapes import REPORT, checked, checked_result, with_gains
from ..bench.result_types import ArmResult
from ..bench.stats import Gain
from ..core.documents import read_json
from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.format import clock, count, first_names, name_of, times_span
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile
from ..report.data.build import SCHEMA as REPORT_SCHEMA
from .report_types import ARMS, Arm, KeptProfile, Report

HOW = "a folder with a report.json, PROFILE (its newest), PROFILE~1 (the one before), or PROFILE/START-OF-FOLDER"
# The time at the beginning of a folder's name; one without it is older than all that have it.
DATED = re.compile(r"\d{8}-\d{6}")
MOST_SHOWN = 8


@dataclass(frozen=True)
class Kept:
    """A kept report: its folder, what it says, and the results of both arms with every request."""

    path: Path
    report: Report
    results: Mapping[Arm, ArmResult]

    @property
    def label(self) -> str:
        """Profile, host and time, as a person tells one report from another."""
        parts = (self.report.get("profile"), self.report.get("host"), clock(self.report.get("date") or ""))
        return " · ".join(filter(None, parts))

    @property
    def resolved(self) -> KeptProfile:
        """The resolved profile that it was measured with."""
        return self.report["resolved"]


def folders(reports: Path, profile: str | None = None) -> list[Path]:
    """The folders that hold a report, the newest first; of one profile, or of all."""
    pattern = f"{name_of(profile) or 'no-profile'}/*/report.json" if profile else "*/*/report.json"
    found = [path.parent for path in reports.glob(pattern)]
    return sorted(found, key=lambda path: (_time(path), path.name, path.parent.name), reverse=True)


def _time(folder: Path) -> str:
    found = DATED.match(folder.name)
    return found.group(0) if found else ""


def find(reports: Path, what: str, where: str = "") -> Path:
    """The folder of the report that ``what`` names; see HOW for its forms.

    Raises DrafthouseError where there is none, or where it could be several; ``where`` names the argument in it.
    """
    path = Path(what).expanduser()
    if path.name == "report.json" and path.is_file():
        return path.parent
    if (path / "report.json").is_file():
        return path
    name, _, start = what.partition("/")
    name, tilde, steps = name.partition("~")
    if not steps:
        steps = "1" if tilde else "0"
    kept = folders(reports, name) if name else []
    if not kept or not steps.isdigit():
        known = sorted({folder.parent.name for folder in folders(reports)})
        advice = did_you_mean(name, known) if known else "measure a profile first"
        raise one_problem("no-such-report", f"no report '{what}' in {reports}", HOW, advice, where)
    chosen = [folder for folder in kept if folder.name.startswith(start)]
    if start and len(chosen) != 1:
        found = f"{len(chosen)} reports of {name} begin with '{start}'"
        raise one_problem("ambiguous-report", found, "one", f"write one of: {_names(chosen or kept)}", where)
    if int(steps) >= len(chosen):
        found, needed = f"{count(len(chosen), 'report')} of {name}", f"at least {int(steps) + 1} for '{what}'"
        raise one_problem("no-such-report", found, needed, "measure it again", where)
    return chosen[int(steps)]


def _names(folders: Sequence[Path]) -> str:
    """The names of the first folders; an ellipsis says that there are more."""
    return first_names([folder.name for folder in folders], MOST_SHOWN)


def newest_of_all(reports: Path) -> Path:
    """The folder of the newest report. Raises DrafthouseError where there is none."""
    for folder in folders(reports):
        return folder
    found, needed = f"no report in {reports}", "one that was measured"
    raise one_problem("no-such-report", found, needed, "measure a profile first")


def newest(reports: Path, host: str, resolved: ResolvedProfile) -> Kept | None:
    """The newest report of a resolved profile, in its engine's version, on one box; None where there is none.

    One of the same commands comes first: a result that was kept writes no new report, and one of other settings may be
    newer. By the version alone where none has them: the box's own variables may change a path.
    """
    other = None
    for folder in folders(reports, resolved["profile"]):
        report = _read(folder / "report.json")
        kept = report.get("resolved") or {}
        version = str((kept.get("engine") or {}).get("version"))
        if (report.get("host"), version) != (host, resolved["engine"]["version"]):
            continue
        if _commands(kept.get("arms") or {}) == _commands(resolved["arms"]):
            return read_kept(folder)
        other = other or folder
    return read_kept(other) if other else None


def _commands(arms: Mapping[str, ResolvedArm]) -> str:
    return json.dumps({name: [arm.get("command"), arm.get("flags")] for name, arm in arms.items()}, sort_keys=True)


def read_kept(folder: Path) -> Kept:
    """The report in a folder with its results; DrafthouseError says which file is missing or wrong."""
    report = _read(folder / "report.json")
    if report.get("schema") != REPORT_SCHEMA:
        found, do = f"the schema {report.get('schema')!r}", "make the report again: drafthouse report --again FOLDER"
        raise one_problem("unknown-schema", found, repr(REPORT_SCHEMA), do, str(folder / "report.json"))
    results: dict[Arm, ArmResult] = {}
    for arm in ARMS:
        path = folder / f"{arm}.json"
        results[arm] = checked_result(_read(path), str(path))
    # The oldest reports keep no profile.
    whole = cast("Report", {"resolved": {}, **checked(report, REPORT, str(folder / "report.json"))})
    return Kept(folder, whole, results)


def _read(path: Path) -> dict[str, Any]:
    needed = "a file written by drafthouse report"
    data = read_json(path, needed, "name another report")
    if not isinstance(data, dict):
        raise one_problem("file-malformed", f"a {type(data).__name__}", needed, "name another report", str(path))
    with_gains(data)
    return data


@dataclass(frozen=True)
class KeptLine:
    """What a kept report says in a line: ``said`` is its verdict's word, or why it cannot be read."""

    folder: Path
    date: str
    profile: str
    host: str
    said: str
    speedup: Gain | None
    engine: str
    earlier: bool = False
    """Whether an earlier rule gave the word."""

    @property
    def shown(self) -> str:
        """The word as it is shown."""
        return f"{self.said} ({EARLIER})" if self.earlier else self.said

    @property
    def name(self) -> str:
        """How a command names it."""
        return f"{self.folder.parent.name}/{self.folder.name}"


def kept_lines(reports: Path, profile: str | None = None) -> list[KeptLine]:
    """A line for each kept report, the newest first.

    A report that cannot be read says so in its line: one broken file does not hide the others.
    """
    return [_line(folder) for folder in folders(reports, profile)]


def _line(folder: Path) -> KeptLine:
    try:
        report = _read(folder / "report.json")
        verdict = report["verdict"]
        engine = (report.get("resolved") or {}).get("engine") or {}
        return KeptLine(
            folder,
            clock(str(report.get("date") or "")),
            str(report.get("profile") or ""),
            str(report.get("host") or ""),
            str(verdict["word"]),
            verdict.get("speedup"),
            f"{engine.get('name') or ''} {engine.get('version') or ''}".strip(),
            verdict.get("rule") != RULE,
        )
    except DrafthouseError as error:
        why = error.problems[0].found.splitlines()[0]
    except (KeyError, TypeError, AttributeError):
        why = "no verdict in it"
    return KeptLine(folder, "", folder.parent.name, "", why, None, "")


def history_rows(reports: Path, profile: str | None = None) -> list[list[str]]:
    """A row for each kept report, the newest first: time, profile, host, verdict, speed-up, folder."""
    return [
        [line.date, line.profile, line.host, line.shown, times_span(line.speedup), line.name]
        for line in kept_lines(reports, profile)
    ]
