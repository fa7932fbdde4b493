"""Searches the logs of the served arms for signs of known issues. Standard library only: it runs on the box."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.serving.runtimes import Runtime

#: Characters of each log to search, from its end: enough for the last few server starts.
_SEARCHED_CHARACTERS = 1_000_000
#: Most characters of a match to report.
_MOST_REPORTED = 160


def log_signs(signatures: Mapping[str, str], runtime: Runtime, arms: Iterable[str]) -> dict[str, str]:
    """By the id of a known issue, the last text that its signature (a regular expression) matches in the logs.

    An issue without a match is left out. Of several logs with a match, that of the last arm counts. Only the match is
    reported, not its line: a log may contain users' prompts.
    """
    if not signatures:
        return {}  # no log is read for nothing
    texts = [runtime.printed(arm)[-_SEARCHED_CHARACTERS:] for arm in arms]
    signs: dict[str, str] = {}
    for name, signature in signatures.items():
        for text in texts:
            for match in re.finditer(signature, text):
                signs[name] = match[0][:_MOST_REPORTED]
    return signs
