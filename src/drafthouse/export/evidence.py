"""Find the kept report that proves an export: an archived report with the same commands as the exported arms.

A clone is a checkout of Drafthouse. A report of another clone proves an export too, but its image is not taken over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..analysis.words import DOES_NOT_PAY, EARLIER, PAYS, RULE_VERSION
from ..core.errors import DrafthouseError, one_problem
from ..core.format import shown_date
from ..core.pins import is_digest
from ..core.places import WORK
from ..core.plain_text import printable
from ..profiles.profile_types import Site
from ..profiles.resolved_types import ResolvedArm, ResolvedProfile
from ..report.archive import Kept, find, folders, read_kept
from ..report.report_types import ARMS, Arm, Load, LoadRow

_WINNER: Mapping[str, Arm] = {PAYS: "speculative", DOES_NOT_PAY: "baseline"}
_COSTS = "costs"  # the word of a load at which speculation costs speed


@dataclass(frozen=True)
class ReportFacts:
    """The facts of a kept report that go into an exported file."""

    name: str  # its folder: profile and time
    sha256: str  # of its report.json, in hex
    word: str  # its verdict in a word
    proof: str  # its verdict and hash in sentences
    digest: str | None  # of the image that was measured; None if it is not recorded
    in_clone: bool  # False for a report from elsewhere, whose digest is not used
    rates: Mapping[str, float]  # requests/s by arm (`_rates`)

    @property
    def winner(self) -> Arm | None:
        """The arm that won; None if the verdict is not clear."""
        return _WINNER.get(self.word)


def evidence_of(
    reports: Path, profile: ResolvedProfile, named: str | None = None, clone_reports: Path = WORK / "reports"
) -> ReportFacts | None:
    """The facts of the newest report below ``reports`` with the commands of both arms, or of the report ``named``.

    None if no report has these commands; one that cannot be read is skipped. ``clone_reports`` is this clone's
    reports/. Raises DrafthouseError if the named report cannot be read or has other commands.
    """
    if named:
        kept = read_kept(find(reports, named, "--report"))
        if not _has_commands_of(kept, profile):
            raise one_problem(
                "export-other-report",
                f"a report with other commands than {profile['profile']} has now",
                "a report with the exported commands",
                "measure the profile again, or leave --report out",
                "--report",
            )
        return _facts_of(kept, clone_reports)
    for folder in folders(reports, profile["profile"]):
        try:
            kept = read_kept(folder)
        except DrafthouseError:
            continue  # skip an unreadable report; an export without proof is possible
        if _has_commands_of(kept, profile):
            return _facts_of(kept, clone_reports)
    return None


def _has_commands_of(kept: Kept, profile: ResolvedProfile) -> bool:
    """True if engine version and commands are the same, apart from the folders of weights and key."""
    run = kept.resolved
    # A report of an earlier version of Drafthouse may lack any key.
    version = (run.get("engine") or {}).get("version")
    arms = run.get("arms") or {}
    if version != profile["engine"]["version"] or set(arms) != set(profile["arms"]):
        return False
    address = _address_flag(profile)
    for name, arm in arms.items():
        if _portable(arm, run.get("site"), address) != _portable(profile["arms"][name], profile["site"], address):
            return False
    return True


def _address_flag(profile: ResolvedProfile) -> str:
    """The engine's flag for the listen address; '' for an engine without an image, which is not exported."""
    container = profile["arms"]["baseline"]["container"]
    return container["command"][0] if container else ""


def _portable(arm: ResolvedArm, site: Site | None, address: str) -> list[list[str]]:
    """An arm's command with the site's folders replaced by names, and without its address and port.

    ``address``: the flag for the address. Without a site the folders stay.
    """
    flags = list(arm["flags"])
    for index, flag in enumerate(flags):
        if flag[0] == address:  # the port flag follows
            del flags[index : index + 2]
            break
    folders = ((site.get("models_dir"), "MODELS"), (site.get("home"), "HOME")) if site else ()
    command_lines: list[list[str]] = [list(arm.get("command") or ())]
    for flag in flags:
        words = list(flag)
        for folder, name in folders:
            if folder:
                words = [word.replace(f"{folder}/", f"{name}/") for word in words]
        command_lines.append(words)
    return command_lines


def _facts_of(kept: Kept, clone_reports: Path) -> ReportFacts:
    """The facts of a kept report for an export."""
    report = kept.report
    run = kept.resolved
    folder = kept.path.resolve()
    sha256 = hashlib.sha256((folder / "report.json").read_bytes()).hexdigest()
    verdict = report["verdict"]
    name = f"{folder.parent.name}/{folder.name[:15]}"  # a report's folder begins with YYYYMMDD-HHMMSS
    earlier = "" if verdict.get("rule") == RULE_VERSION else f" ({EARLIER})"
    proof = (
        f"Proof: report of {shown_date(report['date'])}, measured on {run['hardware']['name']} in the runtime"
        f" {run['engine']['runtime']}: {verdict['word']}{earlier}. {verdict['sentence']} (report.json sha256 {sha256})."
    )
    marks = [f"{word}: {why}" for word, why in report["marks"].items()]
    if marks:
        proof += f" Marked {'; '.join(marks)}."
    digest = run.get("image_digest")
    return ReportFacts(
        name=printable(name),
        sha256=sha256,
        word=verdict["word"],
        proof=proof,
        digest=digest if is_digest(digest) else None,
        in_clone=folder.is_relative_to(clone_reports.resolve()),
        rates=_rates(report["load"]),
    )


def _rates(load: Load | None) -> dict[str, float]:
    """The highest requests/s by arm, for the slowest of the declared kinds; an arm that has none is missing.

    {} if no load was measured. Declared kinds of prompts are those that the verdict is about.
    """
    if load is None:
        return {}
    declared = [kind["kind"] for kind in load["kinds"] if kind["declared"]]
    rates: dict[str, float] = {}
    for arm in ARMS:
        # A replica must bear any declared kind of request, so the slowest kind sets its rate.
        lowest_rate = min((_most_requests(load["rows"], kind, arm) for kind in declared), default=0.0)
        if lowest_rate > 0:
            rates[arm] = round(lowest_rate, 3)
    return rates


def _most_requests(rows: Sequence[LoadRow], kind: str, arm: Arm) -> float:
    """The highest requests/s of an arm on a kind; for the speculative arm only at loads where it costs no speed."""
    highest_rate = 0.0
    for row in rows:
        if row["kind"] != kind or (arm == "speculative" and row["word"] == _COSTS):
            continue
        arm_result = row[arm]
        if arm_result:
            highest_rate = max(highest_rate, arm_result["request_throughput"] or 0)
    return highest_rate
