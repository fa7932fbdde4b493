"""The rows of the articles, computed as their tool does."""

from __future__ import annotations

from collections.abc import Mapping

from ...bench.result_types import ArmResult, Request
from ...bench.samples import requests_of
from ...bench.stats import median
from ..report_types import ARMS, ArticleMetric, ArticleRow, Articles
from .measures import field, tokens_per_second

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
    whole = {arm: [r for r in requests_of(results[arm]) if r.get("status") == "ok"] for arm in ARMS}
    chosen = {arm: [r for r in whole[arm] if r.get("suite") == "articles"] for arm in ARMS}
    own = all(chosen.values())
    if not own:
        chosen = whole

    def seconds(request: Request) -> float | None:
        value = field("ttfat_ms")(request)
        return value / 1000.0 if value else None

    def prompt_speed(request: Request) -> float | None:
        wait, tokens = seconds(request), request.get("input_tokens")
        return float(tokens) / wait if wait and tokens else None

    rows: list[ArticleRow] = []
    for (title, unit, larger, note), measure in zip(
        ARTICLES_ROWS, (tokens_per_second, seconds, prompt_speed), strict=True
    ):
        values = {arm: [v for v in map(measure, chosen[arm]) if v is not None] for arm in ARMS}
        normal, spec = (median(values[arm]) if values[arm] else None for arm in ARMS)
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
        "suite": "articles" if own else None,
        "requests": {arm: len(chosen[arm]) for arm in ARMS},
        "source": ARTICLES_SOURCE,
        "note": ARTICLES_NOTE,
        "rows": rows,
    }
