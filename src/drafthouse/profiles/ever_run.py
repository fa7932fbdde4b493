"""Whether a profile was ever run as a whole: one answer for the plan, docs/profiles.md and docs/proof.md."""

from __future__ import annotations

from collections.abc import Sequence

NEVER = "on no hardware of this kind yet"


def ever_run(verified: Sequence[str]) -> str:
    """Where both arms were served and judged, by ``verified``: what the profile's own file says of it."""
    return f"on {', '.join(verified)}" if verified else NEVER
