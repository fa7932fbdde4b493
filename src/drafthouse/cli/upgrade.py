"""Serve a profile with another version of its engine, if that is no worse on this box.

Examples:
  drafthouse upgrade rtx6000-qwen-eagle3 0.33.0
  drafthouse upgrade rtx6000-qwen-eagle3 0.31.0 --list          (show the changed flags; change nothing)
  drafthouse upgrade cpu-smollm2-ngram 2026.10.11549 --from 2026.9.11063 --inventory local
  drafthouse upgrade h100-llama33-ngram 0.33.0 -- --limit box1

It shows the changed flags, serves and measures the old version (unless its result is kept) and then the new one, and
compares the two reports. The new version stays unless it is worse by more than 5 %, fails a gate, or cannot be judged.
Otherwise the old one is restored, also if the new one does not start. Environments and images of both stay, so
make rollback works at any time. Words after -- are passed to ansible-playbook.

Exit status: 0 the new version serves on every box; 2 the old one serves on some, or an error occurred (found, needed,
do); 4 the old one serves because the comparison is inconclusive (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.exit_codes import CANNOT_SAY, DONE, FAILED, worst
from ..core.places import CLOSING_FILE, WORK, playbook
from ..profiles.inventory_variables import site_on
from ..profiles.known_issues import issue_changes
from ..profiles.overrides import changed
from ..profiles.upgrade_diff import NEW, catalogue_changes, changes_text, decide, rendered_changes
from ..profiles.workspace import house_for, inventory_path, resolved_profile
from ..report.archive import newest
from ..report.compare.diff import compare
from ..report.compare.text import compared_text
from .compare import regression_option
from .parser import Parser, parser_of, reports_option
from .profile_arguments import inventory_of, overrides, set_option

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "upgrade", takes_words=True)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("version", help="the new version")
    parser.add_argument("--from", dest="old", metavar="VERSION", help="the old version (default: the profile's)")
    parser.add_argument("--inventory", help="inventory name, or a path (default: the hardware's)")
    set_option(parser)
    regression_option(parser, "maximum regression in per cent")
    reports_option(parser)
    parser.add_argument("--list", action="store_true", help="show the changed flags; change nothing")
    return parser


def both(given: argparse.Namespace) -> tuple[ResolvedProfile, ResolvedProfile, str]:
    """The resolved profile with the old and with the new version, and the tables of what changes.

    Raises DrafthouseError with what the new version lacks, or where both are the same.
    """
    site = site_on(given.inventory or inventory_of(given.profile))[0]
    more = overrides(given.set)
    settings_before = dict(more)
    if given.old:
        settings_before["engine_version"] = given.old
    old = resolved_profile(given.profile, site, settings_before)
    new = resolved_profile(given.profile, site, {**more, "engine_version": given.version})
    before, after = str(old["engine"]["version"]), str(new["engine"]["version"])
    if before == after:
        do = "name another version, or with --from the one that the box has"
        raise one_problem("conflicting-options", f"{before} twice", "two versions", do, "ENGINE_VERSION")
    house = house_for(given.inventory or inventory_of(given.profile))
    engine, profile = house.engines[new["engine"]["id"]], changed(house.profiles[given.profile], more)
    changes = catalogue_changes(engine, profile, before, after)
    text = changes_text(new["engine"]["name"], before, after, rendered_changes(old, new), changes)
    return old, new, "\n".join([text, *issue_changes(old, new)])


class Plays:
    """Runs playbooks for a profile on its inventory, shown as they go."""

    def __init__(self, given: argparse.Namespace) -> None:
        name = given.inventory or inventory_of(given.profile)
        self._inventory = str(inventory_path(name))
        self._more = list(given.words)
        self._variables = {"profile": given.profile, "overrides": overrides(given.set)}
        if given.reports != WORK / "reports":
            self._variables["report_folder"] = str(given.reports.resolve())

    def site(self, version: str, *more: str) -> bool:
        """Run site.yml with a version; return whether it went well."""
        variables = json.dumps({**self._variables, "engine_version": version})
        command = [playbook("site.yml"), "-i", self._inventory, *self._more, *more, "-e", variables]
        words = ["ansible-playbook", *command]
        # What a run says last is what to do next, and that is for the comparison to say.
        environment = {**os.environ, CLOSING_FILE: os.devnull}
        return subprocess.run(words, cwd=WORK, env=environment, check=False).returncode == 0

    def hosts(self) -> list[str]:
        """The names of the boxes. Raises DrafthouseError where the inventory cannot be read, or has none."""
        command = ["ansible", "all", "--list-hosts", "-i", self._inventory, *self._more]
        done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
        names = [line.strip() for line in done.stdout.splitlines()[1:] if line.strip()]
        if done.returncode or not names:
            found = done.stderr.strip() or "an inventory without hosts"
            raise one_problem("no-host", found, "at least one box", "correct the inventory", self._inventory)
        return names


def judged(given: argparse.Namespace, host: str, resolved: Mapping[str, ResolvedProfile]) -> int:
    """Compare the two reports of a box, print that, and return DONE where the new version stays, otherwise why not.

    ``resolved``: the profile by version, the old one first.
    """
    kept, missing = [], []
    for version, profile in resolved.items():
        if report := newest(given.reports, host, profile):
            kept.append(report)
        else:
            missing.append(version)
    if missing:
        raise one_problem(
            "no-such-report",
            f"no report of {given.profile} with {' or '.join(missing)} on {host}",
            "a report of each version on the box",
            "see the output of the runs above",
            str(given.reports),
        )
    (old, new), (before, after) = resolved, kept
    found = compare(before, after, given.regression)
    decision = decide(found)
    print(compared_text(found))
    print(f"{host}: {new if decision.keep == NEW else old} is kept")
    print("\n".join(f"  - {sentence}" for sentence in decision.why))
    for report in kept:
        print(f"  report: {(report.path / 'report.html').resolve().as_uri()}")
    if decision.keep == NEW:
        return DONE
    return FAILED if decision.judged else CANNOT_SAY


def upgraded(given: argparse.Namespace, plays: Plays, resolved: Mapping[str, ResolvedProfile]) -> int:
    """Serve and measure both versions, and leave the better one serving; return the exit status.

    ``resolved``: the profile by version, the old one first.
    """
    old, new = resolved
    hosts = plays.hosts()
    print(f"\nserving and measuring {old}, unless its result is kept", flush=True)
    if not plays.site(old):
        do = "fix that first: there is nothing to compare with"
        raise one_problem("task-failed", f"{old} is not being served", "the old version serving", do, given.profile)
    print(f"\nserving and measuring {new}", flush=True)
    if plays.site(new):
        ends = {host: judged(given, host, resolved) for host in hosts}
    else:
        # On one of several boxes; or it serves, and the doctor found something: the old one everywhere.
        print(f"\n{new} is refused, for the reason above", file=sys.stderr)
        ends = dict.fromkeys(hosts, FAILED)
    if worse := [host for host, end in ends.items() if end != DONE]:
        print(f"\nback to {old} on {', '.join(worse)}", flush=True)
        if not plays.site(old, "--limit", ",".join(worse)):
            do = "make rollback, or see the output of the run above"
            raise one_problem(
                "server-not-restored", f"{old} did not start again", "the old version serving", do, ", ".join(worse)
            )
        return worst(ends.values())
    print(
        f"\n{new} serves. `make {given.profile}` alone would go back to {old}: to stay, write into "
        f"profiles/{given.profile}.yml\n  engine_version: {new}\nmake rollback goes back now."
    )
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Show what changes, then do it."""
    given = options().parse_args(argv)
    old, new, text = both(given)
    print(text, flush=True)
    if given.list:
        return DONE
    return upgraded(given, Plays(given), {str(profile["engine"]["version"]): profile for profile in (old, new)})
