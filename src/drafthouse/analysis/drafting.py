"""Tells from counters and answers whether an arm drafted: the speculative arm must, the baseline must not.

Plain decoding gives one token per step of the engine (an iteration); a step with accepted drafts gives several.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of
from ..core.format import count
from ..engines.registry import engine_of
from .verdict_types import Drafting


def counter_of(figures: object, name: str) -> float | None:
    """The counter ``spec_decode_[num_]<name>`` of a result or of its groups, None if there is none."""
    if not isinstance(figures, Mapping):
        return None
    for key in (f"spec_decode_{name}", f"spec_decode_num_{name}"):
        if isinstance(figures.get(key), int | float):
            return float(figures[key])
    return None


def drafting_of(result: ArmResult) -> Drafting:
    """Whether an arm drafted, from its counters, the counters of its groups, and its answers.

    ``drafted`` is True if a count is above 0 or an answer or gauge shows several tokens per step, None if neither
    counts nor tokens per step are reported, and else False.
    """
    counts = _counter_values(result)
    answer_counts: list[float] = []  # draft tokens as the answers report them
    answers_with_drafts = answers_with_length = 0
    for request in requests_of(result):
        answer_counts += _draft_tokens_of(request)
        tokens_per_step = request.get("avg_decoded_tokens_per_iter")
        if isinstance(tokens_per_step, int | float):
            answers_with_length += 1
            answers_with_drafts += tokens_per_step > 1.0
    # A gauge (mean acceptance length of the last steps) above 1 proves accepted drafts; a gauge of 1 proves nothing.
    gauge = result.get("spec_decode_source") == "gauge" and (counter_of(result, "acceptance_length") or 0.0) > 1.0
    answers_with_drafts += gauge  # a gauge proves as much as one answer
    counts += answer_counts
    drafted: bool | None = None
    if counts or answers_with_length or gauge:
        drafted = bool(answers_with_drafts) or any(counts)
    no_sign, see_drafts = _sign_texts(result)
    return {
        "drafted": drafted,
        # Only answers with one token per step: nothing was drafted, or nothing accepted.
        "one_token_an_iteration": 0 if answers_with_drafts or counts else answers_with_length,
        "no_sign": no_sign,
        "see_drafts": see_drafts,
        "source": result.get("spec_decode_source"),
        "draft_tokens": int(max(counter_of(result, "draft_tokens") or 0.0, sum(answer_counts))),
        "accepted_tokens": counter_of(result, "accepted_tokens"),
        "requests": len(requests_of(result)),
        "several_tokens_an_iteration": answers_with_drafts,
    }


def _counter_values(result: ArmResult) -> list[float]:
    """The drafting counters of an arm and of its groups; empty without any."""
    counts: list[float] = []
    for figures in (result, *(result.get("groups") or {}).values()):
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            value = counter_of(figures, name)
            if value is not None:
                counts.append(value)
    return counts


def _draft_tokens_of(request: Request) -> list[float]:
    """The numbers of draft tokens that an answer reports, in llama.cpp's ``timings`` and in ``spec_metrics``."""
    fields = [(request.get("timings"), "draft_n"), (request.get("spec_metrics"), "num_draft_tokens")]
    counts = [metrics.get(name) for metrics, name in fields if isinstance(metrics, Mapping)]
    return [float(draft_tokens) for draft_tokens in counts if isinstance(draft_tokens, int | float)]


def _sign_texts(result: ArmResult) -> tuple[str, str]:
    """Why an engine may draft without a sign of it, and which sign newer versions show; "" each without an answer.

    Each text is the first of the result's engine and of the engines whose counters were read.
    """
    engine_ids = [(result.get("engine") or {}).get("id")]
    for reading in result.get("counters") or []:
        for snapshot in (reading.get("before"), reading.get("after")):
            engine_ids.append(snapshot.get("dialect") if snapshot else None)  # the engine with these counters
    no_sign = see_drafts = ""
    for engine_id in engine_ids:
        if engine_id:
            engine = engine_of(engine_id)
            no_sign = no_sign or engine.no_sign
            see_drafts = see_drafts or engine.see_drafts
    return no_sign, see_drafts


def drafting_problems(drafting: Mapping[str, Drafting]) -> list[str]:
    """A sentence if the baseline drafted, and one if the speculative arm did not or nothing shows that it did.

    ``drafting`` has `drafting_of` by arm. The sentence about the baseline comes first.
    """
    problems: list[str] = []
    base = drafting["baseline"]
    spec = drafting["speculative"]
    if base["drafted"]:
        evidence = "by its counters"
        if base["draft_tokens"]:
            evidence = count(base["draft_tokens"], "token")
        elif base["several_tokens_an_iteration"]:
            evidence = f"in {count(base['several_tokens_an_iteration'], 'answer')} with several tokens per step"
        problems.append(f"the baseline drafted ({evidence}): it is not a baseline")
    if spec["drafted"] is None and spec["no_sign"]:
        problems.append(f"the speculative arm shows no sign of drafting: {spec['no_sign']}")
    elif spec["one_token_an_iteration"]:
        problems.append(
            "nothing shows that the speculative arm drafted: "
            f"{spec['one_token_an_iteration']} of {count(spec['requests'], 'answer')} report one token per step "
            "(avg_decoded_tokens_per_iter), and so does a server whose drafts are all rejected; "
            f"only counters ({spec['see_drafts'] or 'of the engine'}) tell the two apart"
        )
    elif spec["drafted"] is None:
        problems.append(
            "nothing shows that the speculative arm drafted: no counters at /metrics, none in its answers, "
            "none in its log"
        )
    elif not spec["drafted"]:
        problems.append(
            f"the speculative arm did not draft: its counters (source: {spec['source'] or 'answers'}) "
            f"did not move over {count(spec['requests'], 'request')}"
        )
    return problems
