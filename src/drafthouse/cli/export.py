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
from .profile_arguments import have_entries, overrides, set_option


def options() -> Parser:
    """The parser."""
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
    """Export, and name what was written, its proof and where the image's name comes from."""
    given = options().parse_args(argv)
    target = TARGETS[given.to]
    have_entries(given.profile, given.set)
    site = {**site_of(target), "profiles_dir": every_own_folder()}
    profile = resolved_profile(given.profile, site, overrides(given.set))
    evidence = evidence_of(given.reports, profile, given.report)
    replicas = replicas_of(given.replicas, target)
    winner, proof = None, "no kept report has these commands: measure them first"
    if evidence:
        winner, proof = evidence.winner, f"{printable(evidence.word)}, by {evidence.name}"
    chosen = given.arm or winner or "both"
    arms = ARMS if chosen == "both" else (chosen,)
    folder = given.output or WORK / "build" / profile["profile"] / "export"
    files = {}
    for arm in arms:
        order = order_of(profile, arm, keyed=target.keyed, evidence=evidence, replicas=replicas, image=given.image)
        files[folder / f"{target.name}-{arm}.{target.suffix}"] = exported(target, order)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, "utf-8")
        print(shown_path(WORK, path))
    print(f"proof: {proof}")
    print(f"image: {order.image_note}")
    return DONE
