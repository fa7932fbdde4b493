"""Did an arm draft: what its counters and its answers say, and when that makes a pair invalid."""

from __future__ import annotations

from collections.abc import Mapping

from ..bench.result_types import ArmResult
from ..bench.samples import requests_of
from ..core.format import count
from ..engines.registry import engine_of
from .verdict_types import Drafting


def counter_of(block: object, name: str) -> float | None:
    """Return the counter ``spec_decode_[num_]<name>`` of a result or group, None if unknown."""
    if not isinstance(block, Mapping):
        return None
    for key in (f"spec_decode_{name}", f"spec_decode_num_{name}"):
        if isinstance(block.get(key), int | float):
            return float(block[key])
    return None


def drafting_of(result: ArmResult) -> Drafting:
    """Return whether an arm drafted, and what says so: its counters, its groups' counters, its answers.

    ``drafted`` is True or False, or None where nothing of it speaks about drafting.
    """
    blocks = [result, *(result.get("groups") or {}).values()]
    counters = [counter_of(block, name) for block in blocks for name in ("drafts", "draft_tokens", "accepted_tokens")]
    answers: list[float] = []
    several = 0
    per_iteration = 0
    around = [snapshot for one in result.get("counters") or [] for snapshot in (one.get("before"), one.get("after"))]
    seen = [snapshot.get("dialect") for snapshot in around if snapshot]
    engines = [engine_of(str(name)) for name in ((result.get("engine") or {}).get("id"), *seen) if name]
    for request in requests_of(result):
        timings = request.get("timings")
        if isinstance(timings, Mapping) and isinstance(timings.get("draft_n"), int | float):
            answers.append(float(timings["draft_n"]))
        metrics = request.get("spec_metrics")
        if isinstance(metrics, Mapping) and isinstance(metrics.get("num_draft_tokens"), int | float):
            answers.append(float(metrics["num_draft_tokens"]))
        decoded = request.get("avg_decoded_tokens_per_iter")
        if isinstance(decoded, int | float):
            per_iteration += 1
            # One token an iteration is ordinary decoding; more can only come from accepted drafts.
            several += decoded > 1.0
    length = counter_of(result, "acceptance_length") if result.get("spec_decode_source") == "gauge" else None
    several += bool(length and length > 1.0)
    numbers = [*[value for value in counters if value is not None], *answers]
    tokens = max(counter_of(result, "draft_tokens") or 0.0, sum(answers))
    drafted = True if several or any(numbers) else False if numbers or per_iteration else None
    return {
        "drafted": drafted,
        # Nothing but a length of 1: not drafted, or nothing accepted.
        "one_token_an_iteration": per_iteration if not several and not numbers else 0,
        # Where the engine may draft and show nothing of it: what it would have to show, and since when it can.
        "no_sign": next((one.no_sign for one in engines if one.no_sign), ""),
        "see_drafts": next((one.see_drafts for one in engines if one.see_drafts), ""),
        "source": result.get("spec_decode_source"),
        "draft_tokens": int(tokens),
        "accepted_tokens": counter_of(result, "accepted_tokens"),
        "requests": len(requests_of(result)),
        "several_tokens_an_iteration": several,
    }


def drafting_problems(drafting: Mapping[str, Drafting]) -> list[str]:
    """Return a sentence for each arm that did not do what it is there for; ``drafting`` is `drafting_of` of each."""
    found: list[str] = []
    base, spec = drafting["baseline"], drafting["speculative"]
    if base["drafted"]:
        what = (
            count(base["draft_tokens"], "token")
            if base["draft_tokens"]
            else f"in {count(base['several_tokens_an_iteration'], 'answer')} with several tokens per step"
            if base["several_tokens_an_iteration"]
            else "by its counters"
        )
        found.append(f"the baseline drafted ({what}): it is not a baseline")
    if spec["drafted"] is None and spec["no_sign"]:
        found.append(f"the speculative arm shows no sign of drafting: {spec['no_sign']}")
    elif spec["one_token_an_iteration"]:
        found.append(
            "nothing shows that the speculative arm drafted: "
            f"{spec['one_token_an_iteration']} of {count(spec['requests'], 'answer')} report one token per step "
            "(avg_decoded_tokens_per_iter), and so does a server whose drafts are all rejected; "
            f"only counters ({spec['see_drafts'] or 'of the engine'}) tell the two apart"
        )
    elif spec["drafted"] is None:
        found.append(
            "nothing shows that the speculative arm drafted: no counters at /metrics, none in its answers, "
            "none in its log"
        )
    elif not spec["drafted"]:
        found.append(
            f"the speculative arm did not draft: its counters (source: {spec['source'] or 'answers'}) "
            f"did not move over {count(spec['requests'], 'request')}"
        )
    return found
