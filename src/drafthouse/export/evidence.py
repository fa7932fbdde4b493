"""The kept report that proves what is exported: found by its commands, told by its hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..analysis.verdict_text import DOES_NOT_PAY, PAYS
from ..core.errors import DrafthouseError, one_problem
from ..core.format import clock
from ..profiles.profile_types import Site
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile
from ..report.archive import Kept, find, folders, read_kept
from ..report.report_types import ARMS, Arm, Load

_WINNER: Mapping[str, Arm] = {PAYS: "speculative", DOES_NOT_PAY: "baseline"}
_COSTS = "costs"


@dataclass(frozen=True)
class Evidence:
    """What a kept report says; ``digest`` of the image it ran in, ``rates``: requests/s that an arm managed at most.

    A rate of the speculative arm is of loads at which it costs nothing.
    """

    name: str
    sha256: str
    word: str
    told: str
    digest: str | None
    rates: Mapping[str, float]

    @property
    def winner(self) -> Arm | None:
        """The arm that won; None where that is not sure."""
        return _WINNER.get(self.word)


def evidence_of(reports: Path, profile: ResolvedProfile, named: str | None = None) -> Evidence | None:
    """Return the newest report of the very commands of both arms, or the one ``named``; None where there is none.

    Raises DrafthouseError where the named one is of other commands.
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
        return _told(kept)
    for folder in folders(reports, profile["profile"]):
        try:
            kept = read_kept(folder)
        except DrafthouseError:
            continue  # an older or broken one proves nothing, and is no reason to export nothing
        if _same(kept, profile):
            return _told(kept)
    return None


def _same(kept: Kept, profile: ResolvedProfile) -> bool:
    """Tell whether a report is of the same engine version and commands, wherever weights and key lay."""
    was = kept.resolved
    version, arms = (was.get("engine") or {}).get("version"), was.get("arms") or {}
    if version != profile["engine"]["version"] or set(arms) != set(profile["arms"]):
        return False
    host = _host(profile)
    return all(
        _plain(arms[arm], was.get("site"), host) == _plain(profile["arms"][arm], profile["site"], host) for arm in arms
    )


def _host(profile: ResolvedProfile) -> str:
    """Return the engine's flag for the address to listen on; the port stands behind it."""
    container = profile["arms"]["baseline"]["container"]
    return container["command"][0] if container else ""


def _plain(arm: ResolvedArm, site: Site | None, host: str) -> list[list[str]]:
    """Return a command without what belongs to a site: its folders, its address and its port."""
    flags = arm["flags"]
    place = next((n for n, flag in enumerate(flags) if flag[0] == host), len(flags))
    places = ((site.get("models_dir"), "MODELS"), (site.get("home"), "HOME")) if site else ()
    said: list[list[str]] = [list(arm.get("command") or ())]
    for flag in [*flags[:place], *flags[place + 2 :]]:
        words = list(flag)
        for folder, name in places:
            words = [word.replace(f"{folder}/", f"{name}/") for word in words] if folder else words
        said.append(words)
    return said


def _told(kept: Kept) -> Evidence:
    report, folder = kept.report, kept.path
    sha256 = hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    verdict, was = report["verdict"], kept.resolved
    name = f"{folder.parent.name}/{folder.name[:15]}"
    told = (
        f"Proof: report of {clock(report['date'])}, measured on {was['hardware']['name']} in the runtime"
        f" {was['engine']['runtime']}: {verdict['word']}. {verdict['sentence']} (report.json sha256 {sha256})."
    )
    if marks := [f"{word}: {why}" for word, why in report["marks"].items()]:
        told += f" Marked {'; '.join(marks)}."
    return Evidence(name, sha256, verdict["word"], told, was.get("image_digest"), _rates(report["load"]))


def _rates(load: Load | None) -> dict[str, float]:
    """Return the requests/s of each arm at the highest load that still pays, of the slowest declared kind."""
    if load is None:
        return {}
    most: dict[Arm, list[float]] = {}
    for kind in [one["kind"] for one in load["kinds"] if one["declared"]]:
        for arm in ARMS:
            rows = [row for row in load["rows"] if row["kind"] == kind and (arm == "baseline" or row["word"] != _COSTS)]
            rates = [found["request_throughput"] or 0 for row in rows if (found := row[arm])]
            most.setdefault(arm, []).append(max(rates, default=0))
    return {arm: round(min(rates), 3) for arm, rates in most.items() if min(rates) > 0}
