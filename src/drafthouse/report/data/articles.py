"""The rows of the articles, computed as their tool does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...bench.result_types import ArmResult, Request
from ...bench.samples import requests_of
from ...bench.stats import median
from ..report_types import ARMS, ArticleMetric, ArticleRow, Articles
from .measures import Clock, field, tokens_per_second

SUITE = "articles"
ARTICLES_SOURCE = "llm-speed-benchmark (github.com/coder543/llm-speed-benchmark), as the articles used it"
ARTICLES_NOTE = (
    "These three rows are computed the way the articles' tool does, for comparison with old published numbers: the "
    "median over each arm's requests, then the ratio of the two medians. Our own rows, under Latency and By kind of "
    "prompt, pair each prompt with itself and give an interval. These rows may differ a lot from the verdict: they "
    "cover the articles' own prompt, or all kinds together, and the verdict covers its own kinds only."
)
# name, unit, larger is better, what it is and where it misleads.
ARTICLES_ROWS: tuple[tuple[ArticleMetric, str, bool, str], ...] = (
    (
        "Response Tok/s",
        "tok/s",
        True,
        "tokens over the time from the first token to the last. The tool counts with GPT-4's tokenizer; "
        "here the server's own count is used",
    ),
    (
        "Time To First Token (s)",
        "s",
        False,
        "the articles' values match the first token of the answer, after the thinking. "
        "Ours is the first token of any kind",
    ),
    (
        "Prompt Tok/s",
        "tok/s",
        True,
        "prompt tokens over that time, thinking included: not a prefill speed",
    ),
)


def articles_table(results: Mapping[str, ArmResult]) -> Articles:
    """The articles' three rows: from their own suite where it was run, otherwise from all requests."""
    baseline, speculative = (_answered(results[arm]) for arm in ARMS)
    suite_of_baseline, suite_of_speculative = _of_suite(baseline), _of_suite(speculative)
    has_suite = bool(suite_of_baseline and suite_of_speculative)
    if has_suite:
        baseline, speculative = suite_of_baseline, suite_of_speculative
    rows: list[ArticleRow] = []
    for (title, unit, larger, note), measure in zip(ARTICLES_ROWS, _MEASURES, strict=True):
        normal, spec = _median_of(measure, baseline), _median_of(measure, speculative)
        speedup = None
        if normal and spec:
            speedup = spec / normal if larger else normal / spec
        rows.append(
            {
                "metric": title,
                "unit": unit,
                "normal": normal,
                "speculative": spec,
                "speedup": speedup,
                "note": note,
            }
        )
    return {
        "suite": SUITE if has_suite else None,
        "requests": {"baseline": len(baseline), "speculative": len(speculative)},
        "source": ARTICLES_SOURCE,
        "note": ARTICLES_NOTE,
        "rows": rows,
    }


def _answered(result: ArmResult) -> list[Request]:
    return [request for request in requests_of(result) if request.get("status") == "ok"]


def _of_suite(requests: Sequence[Request]) -> list[Request]:
    return [request for request in requests if request.get("suite") == SUITE]


def _median_of(measure: Clock, requests: Sequence[Request]) -> float | None:
    """The median of a measure over the requests that have it."""
    values = [value for value in map(measure, requests) if value is not None]
    return median(values) if values else None


def _seconds(request: Request) -> float | None:
    """The time to the first token of the answer, in seconds."""
    value = field("ttfat_ms")(request)
    return value / 1000.0 if value else None


def _prompt_speed(request: Request) -> float | None:
    """Prompt tokens per second of the time to the first token of the answer."""
    seconds, tokens = _seconds(request), request.get("input_tokens")
    if not seconds or not tokens:
        return None
    return float(tokens) / seconds


#: A measure for each of `ARTICLES_ROWS`.
_MEASURES: tuple[Clock, ...] = (tokens_per_second, _seconds, _prompt_speed)
