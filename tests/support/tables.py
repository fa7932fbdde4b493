"""What `iptables-save` prints beside our own chains: what a run must leave as it is, byte for byte."""

from __future__ import annotations

import re

# Chains, rules in them, and jumps to them; a comment that only looks like one has quotes behind it.
_OURS = re.compile(r"(:|-A )DRAFTHOUSE-\S+ .*|-A \S+ -j DRAFTHOUSE-\S+")
_COUNTERS = re.compile(r"^(:.*) \[\d+:\d+\]$", re.MULTILINE)
# A table that is not there yet and one that only says ACCEPT let the same packets through.
_EMPTY = re.compile(r"^\*\w+\n(:\w+ ACCEPT\n)*COMMIT\n", re.MULTILINE)


def others(saved: str) -> str:
    """``saved`` without what is ours, without comments, counters and empty tables."""
    kept = [line for line in saved.splitlines() if not line.startswith("#") and not _OURS.fullmatch(line)]
    return _EMPTY.sub("", _COUNTERS.sub(r"\1", "".join(f"{line}\n" for line in kept)))
