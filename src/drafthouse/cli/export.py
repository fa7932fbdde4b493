"""Write a proven arm as a file for SkyPilot, dstack, Kubernetes, production-stack, Docker Compose or Quadlet.

Examples:
  drafthouse export rtx6000-qwen-eagle3 --to kubernetes
  drafthouse export rtx6000-qwen-eagle3 --to skypilot --replicas 1..4 --arm speculative

The arguments are those of `drafthouse render`. If reports/ has a report of the very same commands, the arm that won is
exported, with the report's verdict and hash; without one both arms are. Nothing is applied: no cloud and no cluster is
asked. The comment on top of a file says with which command of the tool to check it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.exit_codes import DONE
from ..core.places import WORK
from ..core.plain_text import printable
from ..export.evidence import evidence_of
from ..export.order import order_of
from ..export.targets import TARGETS, exported, replicas_of, site_of
from ..profiles.own_entries import shown_path
from ..profiles.workspace import every_own_folder, resolved_profile
from ..report.report_types import ARMS
from .parser import Parser, parser_of, reports_option
from .profile_arguments import add_missing_entries, overrides, set_option


def options() -> Parser:
    """The argument parser of `drafthouse export`."""
    parser = parser_of(__doc__, "export")
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--to", required=True, choices=sorted(TARGETS), help="the tool that reads the file")
    parser.add_argument("--arm", choices=(*ARMS, "both"), help="default: the one that won; both without a sure verdict")
    parser.add_argument("--report", help="the report that proves it (default: the newest of the same commands)")
    reports_option(parser)
    parser.add_argument("--replicas", metavar="N..M", help="replicas at least and at most; fixed for one number")
    parser.add_argument("--image", help="another image, best with its digest: NAME@sha256:...")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to write to (default: build/PROFILE/export)")
    set_option(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files; print their paths, the report that proves the arm, and the source of the image's name."""
    args = options().parse_args(argv)
    target = TARGETS[args.to]
    add_missing_entries(args.profile, args.set)
    site = {**site_of(target), "profiles_dir": every_own_folder()}
    profile = resolved_profile(args.profile, site, overrides(args.set))
    evidence = evidence_of(args.reports, profile, args.report)
    replicas = replicas_of(args.replicas, target)
    winner = None
    proof = "no kept report has these commands: measure them first"
    if evidence:
        winner = evidence.winner
        proof = f"{printable(evidence.word)}, by {evidence.name}"
    arm_choice = args.arm or winner or "both"  # no winner: there is no report, or it cannot say
    arms = ARMS if arm_choice == "both" else (arm_choice,)
    folder = args.output or WORK / "build" / profile["profile"] / "export"
    files = {}
    for arm in arms:
        order = order_of(profile, arm, keyed=target.keyed, evidence=evidence, replicas=replicas, image=args.image)
        files[folder / f"{target.name}-{arm}.{target.suffix}"] = exported(target, order)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, "utf-8")
        print(shown_path(WORK, path))
    print(f"proof: {proof}")
    print(f"image: {order.image_note}")  # the same for both arms
    return DONE
