"""Did an arm draft: what its counters and its answers say, and when that makes a pair invalid."""

from __future__ import annotations

from collections.abc import Mapping

from ..bench.result_types import ArmResult, Request
from ..bench.samples import requests_of
from ..core.format import count
from ..engines.registry import engine_of
from .verdict_types import Drafting


def counter_of(block: object, name: str) -> float | None:
    """The counter ``spec_decode_[num_]<name>`` of a result or group, None if unknown."""
    if not isinstance(block, Mapping):
        return None
    for key in (f"spec_decode_{name}", f"spec_decode_num_{name}"):
        if isinstance(block.get(key), int | float):
            return float(block[key])
    return None


def drafting_of(result: ArmResult) -> Drafting:
    """Whether an arm drafted, and what says so: its counters, its groups' counters, its answers.

    ``drafted`` is True or False, or None where nothing of it speaks about drafting.
    """
    numbers = _counted(result)
    answers: list[float] = []
    several = per_iteration = 0
    for request in requests_of(result):
        answers += _drafted_tokens(request)
        decoded = request.get("avg_decoded_tokens_per_iter")
        if isinstance(decoded, int | float):
            per_iteration += 1
            # One token an iteration is ordinary decoding; more can only come from accepted drafts.
            several += decoded > 1.0
    # A gauge above 1 can only come from accepted drafts; one of 1 says nothing.
    gauge = result.get("spec_decode_source") == "gauge" and (counter_of(result, "acceptance_length") or 0.0) > 1.0
    several += gauge
    numbers += answers
    drafted: bool | None = None
    if numbers or per_iteration or gauge:
        drafted = bool(several) or any(numbers)
    no_sign, see_drafts = _signs(result)
    return {
        "drafted": drafted,
        # Nothing but a length of 1: not drafted, or nothing accepted.
        "one_token_an_iteration": 0 if several or numbers else per_iteration,
        "no_sign": no_sign,
        "see_drafts": see_drafts,
        "source": result.get("spec_decode_source"),
        "draft_tokens": int(max(counter_of(result, "draft_tokens") or 0.0, sum(answers))),
        "accepted_tokens": counter_of(result, "accepted_tokens"),
        "requests": len(requests_of(result)),
        "several_tokens_an_iteration": several,
    }


def _counted(result: ArmResult) -> list[float]:
    """What the counters of an arm and of its groups say, those that there are."""
    found: list[float] = []
    for block in (result, *(result.get("groups") or {}).values()):
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            value = counter_of(block, name)
            if value is not None:
                found.append(value)
    return found


def _drafted_tokens(request: Request) -> list[float]:
    """How many tokens an answer says were drafted for it, in the fields of either engine that tells."""
    told = [(request.get("timings"), "draft_n"), (request.get("spec_metrics"), "num_draft_tokens")]
    numbers = [block.get(name) for block, name in told if isinstance(block, Mapping)]
    return [float(number) for number in numbers if isinstance(number, int | float)]


def _signs(result: ArmResult) -> tuple[str, str]:
    """Where an engine may draft and show nothing of it: why, and what it would have to show and since when it can."""
    names = [(result.get("engine") or {}).get("id")]
    for one in result.get("counters") or []:
        for snapshot in (one.get("before"), one.get("after")):
            names.append(snapshot.get("dialect") if snapshot else None)
    no_sign = see_drafts = ""
    for name in names:
        if name:
            no_sign, see_drafts = no_sign or engine_of(name).no_sign, see_drafts or engine_of(name).see_drafts
    return no_sign, see_drafts


def drafting_problems(drafting: Mapping[str, Drafting]) -> list[str]:
    """A sentence for each arm that did not do what it is there for; ``drafting`` is `drafting_of` of each."""
    found: list[str] = []
    base, spec = drafting["baseline"], drafting["speculative"]
    if base["drafted"]:
        what = "by its counters"
        if base["draft_tokens"]:
            what = count(base["draft_tokens"], "token")
        elif base["several_tokens_an_iteration"]:
            what = f"in {count(base['several_tokens_an_iteration'], 'answer')} with several tokens per step"
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
