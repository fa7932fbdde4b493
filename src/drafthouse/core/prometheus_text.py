"""The text that Prometheus scrapes, line by line (text exposition format 0.0.4). Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
TOTAL = "_total"


@dataclass(frozen=True)
class Sample:
    """One line: a series' name, its labels, and its value, which may be NaN or infinite."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def finite(self) -> bool:
        """Whether the value can be counted with."""
        return math.isfinite(self.value)

    @property
    def counter(self) -> str:
        """The name without ``_total``, which some servers write and some do not."""
        return self.name.removesuffix(TOTAL)


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of ``text``; what is none is passed over."""
    for line in re.finditer(r"[^\r\n]+", text):  # one at a time: a text of many MB is not held twice
        found = _LINE.match(line[0].strip())
        if found is None:
            continue
        try:
            value = float(found.group(3))
        except ValueError:
            continue
        yield Sample(found.group(1), dict(_LABEL.findall(found.group(2) or "")), value)
