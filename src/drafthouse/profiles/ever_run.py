"""On which hardware a profile was run as a whole: one text for the plan, docs/profiles.md and docs/proof.md."""

from __future__ import annotations

from collections.abc import Sequence

NEVER = "on no hardware of this kind yet"


def ever_run(verified: Sequence[str]) -> str:
    """The hardware on which both arms were served and judged, in words; ``verified``: that key of the profile's file.

    NEVER for an empty list.
    """
    return f"on {', '.join(verified)}" if verified else NEVER
