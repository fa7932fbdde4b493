"""Rows for comparison with published articles on speculative decoding, computed like the articles' tool does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...bench.result_types import ArmResult, Request
from ...bench.samples import whole_answers
from ...bench.stats import median
from ..report_types import ARMS, ArticleMetric, ArticleRow, Articles
from .measures import Clock, field, tokens_per_second, values_of

ARTICLES_SOURCE = "llm-speed-benchmark (github.com/coder543/llm-speed-benchmark), as the articles used it"
ARTICLES_NOTE = (
    "These three rows are computed the way the articles' tool does, for comparison with old published numbers: the "
    "median over each arm's requests, then the ratio of the two medians. Our own rows, under Latency and By kind of "
    "prompt, pair each prompt with itself and give an interval. These rows may differ a lot from the verdict: they "
    "cover the articles' own prompt, or all kinds together, and the verdict covers its own kinds only."
)


def _answer_wait_s(request: Request) -> float | None:
    """The time in s to the first token of the answer, after any reasoning; None if it is unknown."""
    wait_ms = field("ttfat_ms")(request)
    return wait_ms / 1000.0 if wait_ms else None


def _prompt_speed(request: Request) -> float | None:
    """Prompt tokens per second of the time until the answer begins; None if either is unknown."""
    wait_s = _answer_wait_s(request)
    tokens = request.get("input_tokens")
    if not wait_s or not tokens:
        return None
    return float(tokens) / wait_s


# Name, unit, whether larger is better, the function that reads it, and a note on its meaning and pitfalls.
ARTICLES_ROWS: tuple[tuple[ArticleMetric, str, bool, Clock, str], ...] = (
    (
        "Response Tok/s",
        "tok/s",
        True,
        tokens_per_second,
        "tokens over the time from the first token to the last. The tool counts with GPT-4's tokenizer; "
        "here the server's own count is used",
    ),
    (
        "Time To First Token (s)",
        "s",
        False,
        _answer_wait_s,
        "the articles' values match the first token of the answer, after the thinking. "
        "Ours is the first token of any kind",
    ),
    (
        "Prompt Tok/s",
        "tok/s",
        True,
        _prompt_speed,
        "prompt tokens over that time, thinking included: not a prefill speed",
    ),
)


def articles_table(results: Mapping[str, ArmResult]) -> Articles:
    """The three rows, over the requests of the suite `articles` if it was run, otherwise over all requests."""
    chosen = {arm: whole_answers(results[arm]) for arm in ARMS}
    suite_answers = {arm: [r for r in answers if r.get("suite") == "articles"] for arm, answers in chosen.items()}
    suite = None
    if all(suite_answers.values()):
        suite = "articles"
        chosen = suite_answers
    rows: list[ArticleRow] = []
    for metric, unit, larger, measure, note in ARTICLES_ROWS:
        normal = _median(chosen["baseline"], measure)
        speculative = _median(chosen["speculative"], measure)
        speedup = None
        if normal and speculative:
            speedup = speculative / normal if larger else normal / speculative
        rows.append(
            {
                "metric": metric,
                "unit": unit,
                "normal": normal,
                "speculative": speculative,
                "speedup": speedup,
                "note": note,
            }
        )
    return {
        "suite": suite,
        "requests": {arm: len(chosen[arm]) for arm in ARMS},
        "source": ARTICLES_SOURCE,
        "note": ARTICLES_NOTE,
        "rows": rows,
    }


def _median(answers: Sequence[Request], measure: Clock) -> float | None:
    values = values_of(answers, measure)
    return median(values) if values else None
