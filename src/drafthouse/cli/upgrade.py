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
from ..profiles.overrides import with_overrides
from ..profiles.upgrade_diff import NEW, catalogue_changes, changes_text, decide, rendered_changes
from ..profiles.workspace import catalog_for, inventory_path, resolved_profile
from ..report.archive import newest
from ..report.compare.diff import compare
from ..report.compare.text import compared_text
from .compare import regression_option
from .parser import Parser, parser_of, reports_option
from .profile_arguments import inventory_of, overrides, set_option

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile


def options() -> Parser:
    """The argument parser of `drafthouse upgrade`."""
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


def old_and_new(args: argparse.Namespace) -> tuple[ResolvedProfile, ResolvedProfile, str]:
    """The profile resolved with the old and with the new engine version, and the changes as text.

    Raises DrafthouseError where the new version cannot serve the profile, or is the old one.
    """
    site, _ = site_on(args.inventory or inventory_of(args.profile))
    settings = overrides(args.set)
    old_settings = dict(settings)
    if args.old:
        old_settings["engine_version"] = args.old
    old = resolved_profile(args.profile, site, old_settings)
    new = resolved_profile(args.profile, site, {**settings, "engine_version": args.version})
    old_version = str(old["engine"]["version"])
    new_version = str(new["engine"]["version"])
    if old_version == new_version:
        do = "name another version, or with --from the one that the box has"
        raise one_problem("conflicting-options", f"{old_version} twice", "two versions", do, "ENGINE_VERSION")
    catalog = catalog_for(args.inventory or inventory_of(args.profile))
    engine = catalog.engines[new["engine"]["id"]]
    profile = with_overrides(catalog.profiles[args.profile], settings)
    changes = catalogue_changes(engine, profile, old_version, new_version)
    text = changes_text(new["engine"]["name"], old_version, new_version, rendered_changes(old, new), changes)
    return old, new, "\n".join([text, *issue_changes(old, new)])


class Plays:
    """Runs Ansible for a profile on its inventory, with its output shown."""

    def __init__(self, args: argparse.Namespace) -> None:
        name = args.inventory or inventory_of(args.profile)
        self._inventory = str(inventory_path(name))
        self._user_words = list(args.words)
        self._variables = {"profile": args.profile, "overrides": overrides(args.set)}
        if args.reports != WORK / "reports":
            self._variables["report_folder"] = str(args.reports.resolve())

    def site(self, version: str, *more: str) -> bool:
        """Run site.yml with an engine version; True if it succeeded on every box."""
        variables = json.dumps({**self._variables, "engine_version": version})
        words = [playbook("site.yml"), "-i", self._inventory, *self._user_words, *more, "-e", variables]
        command = ["ansible-playbook", *words]
        # A run's last lines, with its verdict and the next step, are dropped: the comparison prints its own.
        environment = {**os.environ, CLOSING_FILE: os.devnull}
        return subprocess.run(command, cwd=WORK, env=environment, check=False).returncode == 0

    def hosts(self) -> list[str]:
        """The names of the boxes. Raises DrafthouseError where the inventory is unreadable or empty."""
        command = ["ansible", "all", "--list-hosts", "-i", self._inventory, *self._user_words]
        completed = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
        names = [line.strip() for line in completed.stdout.splitlines()[1:] if line.strip()]
        if completed.returncode or not names:
            found = completed.stderr.strip() or "an inventory without hosts"
            raise one_problem("no-host", found, "at least one box", "correct the inventory", self._inventory)
        return names


def judged(args: argparse.Namespace, host: str, resolved: Mapping[str, ResolvedProfile]) -> int:
    """Compare a box's reports of both versions and print the decision; return the exit status.

    ``resolved``: engine version, the old one first, to resolved profile. DONE: the new version stays. Else the old one
    comes back: FAILED if the new one was judged to be worse, CANNOT_SAY if it could not be judged.
    """
    reports = []
    missing = []  # the versions without a report
    for version, profile in resolved.items():
        if report := newest(args.reports, host, profile):
            reports.append(report)
        else:
            missing.append(version)
    if missing:
        raise one_problem(
            "no-such-report",
            f"no report of {args.profile} with {' or '.join(missing)} on {host}",
            "a report of each version on the box",
            "see the output of the runs above",
            str(args.reports),
        )
    old, new = resolved
    old_report, new_report = reports
    comparison = compare(old_report, new_report, args.regression)
    decision = decide(comparison)
    print(compared_text(comparison))
    print(f"{host}: {new if decision.keep == NEW else old} is kept")
    print("\n".join(f"  - {sentence}" for sentence in decision.why))
    for report in reports:
        print(f"  report: {(report.path / 'report.html').resolve().as_uri()}")
    if decision.keep == NEW:
        return DONE
    return FAILED if decision.judged else CANNOT_SAY


def upgraded(args: argparse.Namespace, plays: Plays, resolved: Mapping[str, ResolvedProfile]) -> int:
    """Serve and measure both versions, then leave the version that `decide` keeps serving; return the exit status.

    ``resolved``: engine version, the old one first, to resolved profile.
    """
    old, new = resolved
    hosts = plays.hosts()
    print(f"\nserving and measuring {old}, unless its result is kept", flush=True)
    if not plays.site(old):
        do = "fix that first: there is nothing to compare with"
        raise one_problem("task-failed", f"{old} is not being served", "the old version serving", do, args.profile)
    print(f"\nserving and measuring {new}", flush=True)
    if plays.site(new):
        status_of = {host: judged(args, host, resolved) for host in hosts}
    else:
        # The run failed on at least one box, or the doctor found a fault: every box gets the old version back.
        print(f"\n{new} is refused, for the reason above", file=sys.stderr)
        status_of = dict.fromkeys(hosts, FAILED)
    if worse := [host for host, status in status_of.items() if status != DONE]:  # also the hosts that cannot say
        print(f"\nback to {old} on {', '.join(worse)}", flush=True)
        if not plays.site(old, "--limit", ",".join(worse)):
            do = "make rollback, or see the output of the run above"
            raise one_problem(
                "server-not-restored", f"{old} did not start again", "the old version serving", do, ", ".join(worse)
            )
        return worst(status_of.values())
    print(
        f"\n{new} serves. `make {args.profile}` alone would go back to {old}: to stay, write into "
        f"profiles/{args.profile}.yml\n  engine_version: {new}\nmake rollback goes back now."
    )
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Print the changed flags, then upgrade unless --list is given."""
    args = options().parse_args(argv)
    old, new, text = old_and_new(args)
    print(text, flush=True)
    if args.list:
        return DONE
    return upgraded(args, Plays(args), {str(profile["engine"]["version"]): profile for profile in (old, new)})
