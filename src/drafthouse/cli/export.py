"""Write a proven arm as a file for SkyPilot, dstack, Kubernetes, production-stack, Docker Compose or Quadlet.

Examples:
  drafthouse export rtx6000-qwen-eagle3 --to kubernetes
  drafthouse export rtx6000-qwen-eagle3 --to skypilot --replicas 1..4 --arm speculative
  drafthouse export rtx6000-qwen-eagle3 --to kubernetes --check changed.yaml

The arguments are those of `drafthouse render`. If reports/ has a report of the very same commands, the arm that won is
exported, with the report's verdict and hash; without one both arms are. Nothing is applied: no cloud and no cluster is
asked. --check reads a changed file and names everything in which it is no longer what was exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.documents import MIB, BadDocument, bytes_of, text_of
from ..core.errors import DrafthouseError, one_problem
from ..core.exit_codes import DONE
from ..core.places import WORK
from ..export.evidence import evidence_of
from ..export.targets import TARGETS, check, exported, order_of, replicas_of, said_arm, site_of
from ..profiles.workspace import resolved_profile
from ..report.report_types import ARMS
from .parser import Parser, parser_of, reports_option
from .profile_arguments import have_entries, overrides, set_option


def options() -> Parser:
    """Return the parser."""
    parser = parser_of(__doc__, "export")
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--to", required=True, choices=sorted(TARGETS), help="the tool that reads the file")
    parser.add_argument("--arm", choices=(*ARMS, "both"), help="default: the one that won; both without a sure verdict")
    parser.add_argument("--report", help="the report that proves it (default: the newest of the same commands)")
    reports_option(parser)
    parser.add_argument("--replicas", metavar="N..M", help="replicas at least and at most; fixed for one number")
    parser.add_argument("--image", help="another image, best with its digest: NAME@sha256:...")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder to write to (default: build/PROFILE/export)")
    parser.add_argument("--check", type=Path, metavar="FILE", help="check a changed file; write nothing")
    set_option(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Export, and name what was written; or check a file."""
    given = options().parse_args(argv)
    target = TARGETS[given.to]
    have_entries(given.profile, given.set)
    profile = resolved_profile(given.profile, dict(site_of(target)), overrides(given.set))
    evidence = evidence_of(given.reports, profile, given.report)
    replicas = replicas_of(given.replicas, target)
    if given.check:
        text = _text(given.check)
        arm = given.arm if given.arm in ARMS else said_arm(text) or "speculative"
        check(target, text, order_of(profile, arm, target, evidence, replicas, given.image), str(given.check))
        print(f"{given.check}: what was exported, the {arm} arm")
        return DONE
    winner = evidence.winner if evidence else None
    chosen = given.arm or winner or "both"
    arms = ARMS if chosen == "both" else (chosen,)
    folder = given.output or WORK / "build" / profile["profile"] / "export"
    orders = [order_of(profile, arm, target, evidence, replicas, given.image) for arm in arms]
    files = {folder / f"{target.name}-{order.arm}.{target.suffix}": exported(target, order) for order in orders}
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, "utf-8")
        print(path.relative_to(WORK) if path.is_relative_to(WORK) else path)
    proof = (
        f"{evidence.word}, by {evidence.name}" if evidence else "no kept report has these commands: measure them first"
    )
    print(f"proof: {proof}")
    return DONE


def _text(path: Path) -> str:
    """Return a file's text. Raises DrafthouseError where it cannot be read."""
    needed, do = "an exported file", "name another file"
    try:
        return text_of(bytes_of(path, MIB))
    except OSError as error:
        raise one_problem("file-unreadable", f"no readable file ({error.strerror})", needed, do, str(path)) from error
    except BadDocument as error:
        raise DrafthouseError(error.problem(str(path), needed, do)) from error
