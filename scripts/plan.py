#!/usr/bin/env python3
"""Show what a profile would do: memory, context, downloads, the speed to expect, both arms' commands.

Touches nothing, needs no GPU and no network.
"""

from __future__ import annotations

from _clone import run
from _profile import arguments, resolved

from drafthouse.core.exit_codes import DONE
from drafthouse.experiment.plan_text import plan_text


def main() -> int:
    """Print the plan."""
    print(plan_text(resolved(arguments(__doc__ or "").parse_args())))
    return DONE


if __name__ == "__main__":
    run(main)
