"""Change the boxes of a fleet one at a time, each judged before it takes requests again; a worse one stops it.

Examples:
  drafthouse fleet-upgrade rtx6000-qwen-eagle3 0.33.0
  drafthouse fleet-upgrade rtx6000-qwen-eagle3 0.33.0 --canary box3 --list   (show what changes; change nothing)
  drafthouse fleet-upgrade rtx6000-qwen-eagle3              (roll out the profile as it is written now)

For each box: it is taken out of traffic and its requests are waited for; the new release is served and measured; its
report is compared with the box's own last one and with the median of its peers' last ones; then it takes requests
again. The canary, by default the first box, comes first. Where the new release is worse by more than 5 %, or behind
the peers by more than 10 %, or cannot be judged, the box goes back to what it served, and the rest is not touched.

Run again after a kill or a stop it goes on: boxes that are done stay, one that was left drained is finished first. A
box on which the change was refused is not tried again without --again.

Exit status: 0 every box serves it; 1 some are left as they were, since they take no requests (--short); 2 refused on a
box, or an error; 4 it could not be judged on a box (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.exit_codes import DONE, FAILED, worst
from ..operate.roll.judge import BEHIND
from ..operate.roll.run import roll, status_of
from ..profiles.workspace import resolved_profile
from .compare import per_cent, regression_option
from .fleet_plays import Boxes, hosts_of
from .parser import Parser, parser_of, reports_option
from .profile_arguments import have_entries, overrides, set_option
from .upgrade import both, site_of


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "fleet-upgrade", takes_words=True)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("version", nargs="?", default="", help="the engine's new version (default: the profile's)")
    parser.add_argument("--inventory", default="fleet", help="inventory name, or a path (default: fleet)")
    set_option(parser)
    parser.add_argument("--canary", metavar="HOST", help="the box that is changed first (default: the first)")
    parser.add_argument(
        "--short", action="store_true", help="continue although another replica is out; it is left as it is"
    )
    parser.add_argument("--again", action="store_true", help="measure again, also where a result is kept")
    regression_option(parser, "how much worse than before a box may be, in per cent")
    parser.add_argument(
        "--behind",
        type=per_cent,
        default=BEHIND,
        metavar="PERCENT",
        help="how far behind its peers' median a box may be, in per cent (default: 10)",
    )
    reports_option(parser)
    parser.add_argument("--list", action="store_true", help="show what would change, and in which order")
    return parser


def ordered(given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the boxes that are changed, the canary first, and those of another profile that serve meanwhile.

    Raises DrafthouseError where none is of the profile, or the canary is none of them.
    """
    profiles = hosts_of(given.inventory)
    changed = [host for host, profile in profiles.items() if profile in ("", given.profile)]
    if not changed:
        known = sorted(set(profiles.values()))
        found = f"no box of {given.inventory} has the profile {given.profile}"
        raise one_problem("no-host", found, "one that has it", did_you_mean(given.profile, known), given.inventory)
    if given.canary:
        if given.canary not in changed:
            found, do = f"no box '{given.canary}' of {given.profile}", did_you_mean(given.canary, changed)
            raise one_problem("no-such-host", found, "one of the boxes that are changed", do, "--canary")
        changed = [given.canary, *(host for host in changed if host != given.canary)]
    return changed, [host for host in profiles if host not in changed]


def main(argv: Sequence[str] | None = None) -> int:
    """Show what changes, then roll it out."""
    given = options().parse_args(argv)
    have_entries(given.profile, given.set)
    if given.version:
        given.old = None
        print(both(given)[2], flush=True)
    else:
        resolved_profile(given.profile, site_of(given), overrides(given.set))  # says what is wrong with it
    changed, others = ordered(given)
    print(f"\none at a time: {', '.join(changed)}", flush=True)
    if given.list:
        return DONE
    fleet = Boxes(given, changed, others)
    try:
        status = roll(fleet, lambda line: print(line, flush=True), short=given.short)
    except DrafthouseError as error:
        print(f"\n{error}", file=sys.stderr)
        return status_of(error)
    if fleet.touched and not fleet.tell_front():
        status = worst([status, FAILED])
    if given.version and status == DONE:
        print(f"to stay with it, write into profiles/{given.profile}.yml\n  engine_version: {given.version}")
    return status
