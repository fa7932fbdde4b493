"""The kept report that proves what is exported: found by its commands, told by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analysis.words import DOES_NOT_PAY, EARLIER, PAYS, RULE
from ..core.errors import DrafthouseError, one_problem
from ..core.format import clock
from ..core.pins import is_digest
from ..core.places import WORK
from ..core.plain_text import printable
from ..profiles.profile_types import Site
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile
from ..report.archive import Kept, find, folders, read_kept
from ..report.report_types import ARMS, Arm, Load, LoadRow

_WINNER: Mapping[str, Arm] = {PAYS: "speculative", DOES_NOT_PAY: "baseline"}
_COSTS = "costs"


@dataclass(frozen=True)
class Evidence:
    """What a kept report says; ``digest`` of its image, ``rates``: requests/s that an arm managed.

    A rate of the speculative arm is of loads at which it costs nothing. ``own``: whether the report
    lies in this clone's reports/; another's digest is named, and not taken.
    """

    name: str
    sha256: str
    word: str
    told: str
    digest: str | None
    own: bool
    rates: Mapping[str, float]

    @property
    def winner(self) -> Arm | None:
        """The arm that won; None where that is not sure."""
        return _WINNER.get(self.word)


def evidence_of(
    reports: Path, profile: ResolvedProfile, named: str | None = None, own: Path = WORK / "reports"
) -> Evidence | None:
    """The newest report of the commands of both arms, or the one ``named``; None if there is none.

    ``own``: the folder of this clone's reports. Raises DrafthouseError where the named one is of
    other commands.
    """
    if named:
        kept = read_kept(find(reports, named, "--report"))
        if not _same(kept, profile):
            raise one_problem(
                "export-other-report",
                f"a report with other commands than {profile['profile']} has now",
                "a report with the exported commands",
                "measure the profile again, or leave --report out",
                "--report",
            )
        return _evidence(kept, own)
    for folder in folders(reports, profile["profile"]):
        try:
            kept = read_kept(folder)
        except DrafthouseError:
            continue  # an older or broken one proves nothing, and is no reason to export nothing
        if _same(kept, profile):
            return _evidence(kept, own)
    return None


def _same(kept: Kept, profile: ResolvedProfile) -> bool:
    """Whether a report is of the same engine version and commands, wherever weights and key lay."""
    was = kept.resolved
    version, arms = (was.get("engine") or {}).get("version"), was.get("arms") or {}
    if version != profile["engine"]["version"] or set(arms) != set(profile["arms"]):
        return False
    host = _host(profile)
    for name, arm in arms.items():
        if _plain(arm, was.get("site"), host) != _plain(profile["arms"][name], profile["site"], host):
            return False
    return True


def _host(profile: ResolvedProfile) -> str:
    """The engine's flag for the address to listen on; the port stands behind it."""
    container = profile["arms"]["baseline"]["container"]
    return container["command"][0] if container else ""


def _plain(arm: ResolvedArm, site: Site | None, host: str) -> list[list[str]]:
    """A command without what belongs to a site: its folders, its address and its port."""
    flags = list(arm["flags"])
    for place, flag in enumerate(flags):
        if flag[0] == host:
            del flags[place : place + 2]
            break
    folders = ((site.get("models_dir"), "MODELS"), (site.get("home"), "HOME")) if site else ()
    plain: list[list[str]] = [list(arm.get("command") or ())]
    for flag in flags:
        words = list(flag)
        for folder, name in folders:
            if folder:
                words = [word.replace(f"{folder}/", f"{name}/") for word in words]
        plain.append(words)
    return plain


def _evidence(kept: Kept, own: Path) -> Evidence:
    report, folder = kept.report, kept.path.resolve()
    sha256 = hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    verdict, was = report["verdict"], kept.resolved
    name = f"{folder.parent.name}/{folder.name[:15]}"
    earlier = "" if verdict.get("rule") == RULE else f" ({EARLIER})"
    told = (
        f"Proof: report of {clock(report['date'])}, measured on {was['hardware']['name']} in the runtime"
        f" {was['engine']['runtime']}: {verdict['word']}{earlier}. {verdict['sentence']} (report.json sha256 {sha256})."
    )
    marks = [f"{word}: {why}" for word, why in report["marks"].items()]
    if marks:
        told += f" Marked {'; '.join(marks)}."
    digest = was.get("image_digest")
    return Evidence(
        printable(name),
        sha256,
        verdict["word"],
        told,
        digest if is_digest(digest) else None,
        folder.is_relative_to(own.resolve()),
        _rates(report["load"]),
    )


def _rates(load: Load | None) -> dict[str, float]:
    """The requests/s of each arm at the highest load that pays, of the slowest declared kind."""
    if load is None:
        return {}
    declared = [kind["kind"] for kind in load["kinds"] if kind["declared"]]
    rates: dict[str, float] = {}
    for arm in ARMS:
        slowest = min((_most_requests(load["rows"], kind, arm) for kind in declared), default=0.0)
        if slowest > 0:
            rates[arm] = round(slowest, 3)
    return rates


def _most_requests(rows: Sequence[LoadRow], kind: str, arm: Arm) -> float:
    """The most requests/s of an arm on a kind: of the speculative arm, where it costs nothing."""
    most = 0.0
    for row in rows:
        if row["kind"] != kind or (arm == "speculative" and row["word"] == _COSTS):
            continue
        measured = row[arm]
        if measured:
            most = max(most, measured["request_throughput"] or 0)
    return most
