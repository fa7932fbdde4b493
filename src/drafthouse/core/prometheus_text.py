"""A parser of the Prometheus text exposition format, version 0.0.4, which engines serve at /metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")  # name, labels, value, time
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
TOTAL = "_total"  # the suffix of a counter's name


@dataclass(frozen=True)
class Sample:
    """One sample: the name of the series, its labels, and its value, which may be NaN or infinite."""

    name: str
    labels: Mapping[str, str]
    value: float

    @property
    def finite(self) -> bool:
        """True if the value is neither NaN nor infinite."""
        return math.isfinite(self.value)

    @property
    def counter(self) -> str:
        """The name without the suffix ``_total``, which only some servers add to counters."""
        return self.name.removesuffix(TOTAL)


def samples(text: str) -> Iterator[Sample]:
    """Yield the samples of ``text``; comments and invalid lines are skipped."""
    for line in re.finditer(r"[^\r\n]+", text):  # unlike splitlines, without a second copy of a large text
        match = _LINE.match(line[0].strip())
        if match is None:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        yield Sample(match.group(1), dict(_LABEL.findall(match.group(2) or "")), value)
