"""What must be right between a method, its draft and its target, and what the number of drafted tokens may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.schema import Findings
from .heads import head_kind

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, Method
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry

#: Tokens to draft where neither the engine's entry nor the head names a number.
USUAL_TOKENS = 5

_PATH = "speculation.draft"


def check_pair(
    findings: Findings,
    target: CatalogModel,
    draft: CatalogModel,
    method: CatalogMethod,
    models: Mapping[str, ModelEntry],
) -> list[str]:
    """Add what keeps ``draft`` from drafting for ``target`` to ``findings``; return warnings."""
    if draft["kind"] == "head":
        return _head(findings, target, draft, method, models)
    return _model(findings, target, draft, method)


def _head(
    findings: Findings,
    target: CatalogModel,
    draft: CatalogModel,
    method: CatalogMethod,
    models: Mapping[str, ModelEntry],
) -> list[str]:
    warnings = []
    made_for = draft.get("head_for")
    if target["id"] in draft.get("works_on", ()):
        warnings.append(
            f"'{draft['id']}' was trained for '{made_for}': its shapes fit '{target['id']}', its drafts may not"
        )
    elif made_for != target["id"]:
        do = "the catalogue has no head for this target"
        if heads := [key for key, model in models.items() if model.get("head_for") == target["id"]]:
            do = f"use one of: {', '.join(heads)}"
        findings.add(
            "draft-of-another-target",
            _PATH,
            f"'{draft['id']}', a head made for '{made_for}'",
            f"a head made for '{target['id']}': it reads that model's hidden states",
            do,
        )
    if draft.get("head_method") != head_kind(method["id"], method):
        findings.add(
            "draft-of-another-method",
            "speculation.method",
            f"'{method['id']}' with '{draft['id']}', a head for '{draft.get('head_method')}'",
            f"'{draft.get('head_method')}'",
            f"set method: {draft.get('head_method')}",
        )
    return warnings


def _model(findings: Findings, target: CatalogModel, draft: CatalogModel, method: CatalogMethod) -> list[str]:
    match = method.get("match", {})
    if match.get("tokenizer") and draft["tokenizer"] != target["tokenizer"]:
        findings.add(
            "draft-vocabulary-differs",
            _PATH,
            f"'{draft['id']}' with the vocabulary of {draft['tokenizer']}",
            f"the target's vocabulary ({target['tokenizer']}): a draft token must mean the same to both",
            "choose a draft of the target's own family",
        )
    elif abs(draft["vocab"] - target["vocab"]) > match.get("vocab_difference", 0):
        findings.add(
            "draft-vocabulary-differs",
            _PATH,
            f"'{draft['id']}' with a vocabulary of {draft['vocab']} entries",
            f"{target['vocab']} entries, at most {match.get('vocab_difference', 0)} apart",
            "choose a draft of the target's own family",
        )
    ratio = draft["parameters"] / target["parameters"]
    size = f"'{draft['id']}' has {ratio:.0%} of the target's parameters"
    if ratio >= 1:
        findings.add("draft-too-large", _PATH, size, "a draft smaller than its target", "choose a smaller draft")
    elif ratio >= 1 / 3:
        return [f"{size}: a draft of a third or more seldom pays"]
    return []


def may_draft(draft: ModelEntry, target: ModelEntry) -> bool:
    """Tell whether a model could draft for a target: a smaller one of its own format that splits text alike."""
    alike = draft["format"] == target["format"] and draft["tokenizer"] == target["tokenizer"]
    return draft["kind"] == "model" and alike and draft["parameters"] < target["parameters"]


def most_tokens(draft: ModelEntry | None, builtin: BuiltinHead | None) -> int | None:
    """How many tokens a draft of its own, or the head inside a target, drafts at most; None for any number."""
    if draft:
        return draft.get("max_speculative_tokens")
    return builtin.get("max_tokens") if builtin else None


def usual_tokens(method: Method, draft: ModelEntry | None, builtin: BuiltinHead | None) -> int:
    """A number of tokens to begin with, which `check_tokens` lets through."""
    most, usual = most_tokens(draft, builtin), method.get("usual_tokens", USUAL_TOKENS)
    if most is not None:
        usual = most if method.get("all_heads") else min(usual, most)
    passes = _in_a_pass(method, builtin)
    return usual - usual % passes if usual > passes else usual


def _in_a_pass(method: Method, builtin: BuiltinHead | None) -> int:
    return builtin.get("n_predict", 1) if builtin and method.get("whole_passes") else 1


def check_tokens(
    findings: Findings,
    tokens: int,
    target: CatalogModel,
    draft: CatalogModel | None,
    builtin: BuiltinHead | None,
    method: CatalogMethod,
) -> None:
    """Add to ``findings`` when a head cannot draft ``tokens`` in one step, or always drafts another number.

    ``builtin`` is the head inside the target, where the method drafts with that.
    """
    most, passes = most_tokens(draft, builtin), _in_a_pass(method, builtin)
    drafting = f"'{draft['id']}'" if draft else f"the head inside '{target['id']}'"
    needed = set_to = ""
    if most is not None and method.get("all_heads") and tokens != most:
        needed, set_to = f"{most}: '{method['id']}' drafts a token with every head of {drafting}", f"{most}"
    elif most is not None and tokens > most:
        needed, set_to = f"{most} or fewer: {drafting} cannot draft more in one step", f"{most}"
    elif tokens > passes and tokens % passes:
        needed = f"{passes} or fewer, or a multiple of it: {drafting} predicts {passes} tokens in one pass"
        set_to = f"{tokens - tokens % passes}"
    if needed:
        findings.add("draft-length", "speculation.num_speculative_tokens", f"{tokens}", needed, f"set it to {set_to}")


def check_schedule(findings: Findings, where: str, schedule: object, tokens: int) -> bool:
    """Check K for each batch size (vLLM's rows ``[first, last, K]``); return whether it is as it should be.

    The first row begins at 1, rows follow each other without overlap, 0 <= K <= ``tokens``
    (vllm/config/speculative.py).
    """
    before = len(findings.problems)
    if not isinstance(schedule, list) or not schedule or not all(map(_is_schedule_entry, schedule)):
        needed, do = "a list of [first batch size, last, K]", "write it as [[1, 4, 3], [5, 64, 0]]"
        findings.add("draft-length-schedule", where, f"{schedule!r}", needed, do)
        return False
    last = 0
    for number, (first, final, drafted) in enumerate(schedule):
        row = f"{where}[{number}]"
        if (number == 0 and first != 1) or first <= last or final < first:
            needed = f"a first batch size above {last}, and a last one"
            if number == 0:
                needed = "1 as the first batch size"
            found, do = f"{[first, final, drafted]}", "make the rows consecutive, from 1 upwards"
            findings.add("draft-length-schedule", row, found, needed, do)
        if not 0 <= drafted <= tokens:
            findings.add(
                "draft-length-schedule", row, f"K={drafted}", f"0 to {tokens} (num_speculative_tokens)", "correct K"
            )
        last = max(last, final)
    return len(findings.problems) == before


def _is_schedule_entry(entry: object) -> bool:
    """Whether an entry is three whole numbers."""
    return isinstance(entry, list) and len(entry) == 3 and all(type(number) is int for number in entry)
