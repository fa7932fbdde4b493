"""The signs of known issues in the logs of the arms. Standard library only: it runs on the box."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.serving.runtimes import Runtime

#: Of each log, from its end, in characters: some starts and what came of them.
_LOOKED_AT = 1_000_000
#: Characters of a sign that are told.
_TOLD = 160


def log_signs(signatures: Mapping[str, str], runtime: Runtime, arms: Iterable[str]) -> dict[str, str]:
    """What matched of the logs, by the issue whose signature it is; the last one that stands there.

    Only what a signature matches is told: a log may hold what people asked.
    """
    if not signatures:
        return {}
    texts = [runtime.printed(arm)[-_LOOKED_AT:] for arm in arms]
    found: dict[str, str] = {}
    for name, signature in signatures.items():
        for text in texts:
            for match in re.finditer(signature, text):
                found[name] = match[0][:_TOLD]
    return found
