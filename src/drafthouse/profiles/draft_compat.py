"""Check that a method, its draft and its target fit together, and that K (tokens per draft) suits them.

A head is layers that were trained to draft for one target; a built-in head is part of the target's weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.schema import Findings
from .heads import head_kind, made_for

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import CatalogMethod, Method
    from drafthouse.profiles.catalog_types import BuiltinHead, CatalogModel, ModelEntry

#: K where neither the engine's entry nor the head sets one.
USUAL_TOKENS = 5

_PATH = "speculation.draft"


def check_pair(
    findings: Findings,
    *,
    target: CatalogModel,
    draft: CatalogModel,
    method: CatalogMethod,
    models: Mapping[str, ModelEntry],
) -> list[str]:
    """Add to ``findings`` why ``draft`` cannot draft for ``target``; return warnings of a pair that may not pay.

    ``models``: all of the catalogue, for heads to use instead.
    """
    if draft["kind"] == "head":
        return _check_head(findings, target=target, draft=draft, method=method, models=models)
    return _check_model(findings, target, draft, method)


def _check_head(
    findings: Findings,
    *,
    target: CatalogModel,
    draft: CatalogModel,
    method: CatalogMethod,
    models: Mapping[str, ModelEntry],
) -> list[str]:
    """Check that a head was made for this target and for this method; a warning if only its shapes fit the target."""
    warnings = []
    trained_for = draft.get("head_for")
    if target["id"] in draft.get("works_on", ()):
        warnings.append(
            f"'{draft['id']}' was trained for '{trained_for}': its shapes fit '{target['id']}', its drafts may not"
        )
    elif trained_for != target["id"]:
        do = "the catalogue has no head for this target"
        if heads := [key for key, model in models.items() if model.get("head_for") == target["id"]]:
            do = f"use one of: {', '.join(heads)}"
        findings.add(
            "draft-of-another-target",
            _PATH,
            f"'{draft['id']}', a head made for '{trained_for}'",
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


def _check_model(findings: Findings, target: CatalogModel, draft: CatalogModel, method: CatalogMethod) -> list[str]:
    """Check a draft model's training and vocabulary, as far as the method needs them, and its size.

    Returns a warning if it is large.
    """
    if method.get("trained") and draft.get("head_method") != method["id"]:
        findings.add(
            "draft-of-another-method",
            _PATH,
            found=f"'{draft['id']}', a model that writes one token after the other",
            needed=f"a draft model that was trained for '{method['id']}' (its head_method)",
            do="set method: draft_model, or choose another draft",
        )
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
    share = f"'{draft['id']}' has {ratio:.0%} of the target's parameters"
    if ratio >= 1:
        findings.add("draft-too-large", _PATH, share, "a draft smaller than its target", "choose a smaller draft")
    elif ratio >= 1 / 3:
        return [f"{share}: a draft of a third or more seldom pays"]
    return []


def drafts_to_name(method: CatalogMethod, target: CatalogModel, loadable: Mapping[str, ModelEntry]) -> list[str]:
    """Those of the ``loadable`` models that a profile of ``method`` and ``target`` can name as its draft."""
    kind = head_kind(method["id"], method)
    names = []
    for key, model in loadable.items():
        fits = made_for(model, target["id"], kind)
        if method["draft"] == "model":
            fits = may_draft(model, target) and (not method.get("trained") or model.get("head_method") == kind)
        if fits:
            names.append(key)
    return names


def may_draft(draft: ModelEntry, target: ModelEntry) -> bool:
    """True if ``draft`` could draft for ``target``: a smaller model with the same format and tokenizer."""
    alike = draft["format"] == target["format"] and draft["tokenizer"] == target["tokenizer"]
    return draft["kind"] == "model" and alike and draft["parameters"] < target["parameters"]


def most_tokens(draft: ModelEntry | None, builtin: BuiltinHead | None) -> int | None:
    """The most tokens per step of the draft, or without a draft of the built-in head; None for no limit."""
    if draft:
        return draft.get("max_speculative_tokens")
    return builtin.get("max_tokens") if builtin else None


def usual_tokens(method: Method, draft: ModelEntry | None, builtin: BuiltinHead | None) -> int:
    """A K to start with, which `check_tokens` accepts."""
    most = most_tokens(draft, builtin)
    usual = method.get("usual_tokens", USUAL_TOKENS)
    # A method with `all_heads` drafts one token with each head, so K is their number.
    if most is not None:
        usual = most if method.get("all_heads") else min(usual, most)
    # Whole passes of the head: the rest of a pass that is used in part would be thrown away.
    per_pass = _tokens_per_pass(method, builtin)
    return usual - usual % per_pass if usual > per_pass else usual


def _tokens_per_pass(method: Method, builtin: BuiltinHead | None) -> int:
    """Number of which K should be a multiple; 1 if K may be any number."""
    return builtin.get("n_predict", 1) if builtin and method.get("whole_passes") else 1


def check_tokens(
    findings: Findings,
    tokens: int,
    *,
    target: CatalogModel,
    draft: CatalogModel | None,
    builtin: BuiltinHead | None,
    method: CatalogMethod,
) -> None:
    """Add a problem if the head cannot draft ``tokens`` in one step, or always drafts another number of tokens.

    ``draft``: None without one. ``builtin``: the target's built-in head, None if the method does not draft with it.
    """
    most = most_tokens(draft, builtin)
    per_pass = _tokens_per_pass(method, builtin)
    head = f"'{draft['id']}'" if draft else f"the head inside '{target['id']}'"
    needed = ""
    allowed = most
    if most is not None and method.get("all_heads") and tokens != most:
        needed = f"{most}: '{method['id']}' drafts a token with every head of {head}"
    elif most is not None and tokens > most:
        needed = f"{most} or fewer: {head} cannot draft more in one step"
    elif tokens > per_pass and tokens % per_pass:
        needed = f"{per_pass} or fewer, or a multiple of it: {head} predicts {per_pass} tokens in one pass"
        allowed = tokens - tokens % per_pass
    if needed:
        findings.add("draft-length", "speculation.num_speculative_tokens", f"{tokens}", needed, f"set it to {allowed}")


def check_schedule(findings: Findings, where: str, schedule: object, tokens: int) -> bool:
    """Check vLLM's schedule of K by batch size, a list of rows ``[first, last, K]``; True if it is right.

    The first row begins at batch size 1, rows do not overlap, and 0 <= K <= ``tokens`` (vllm/config/speculative.py).
    """
    before = len(findings.problems)
    if not isinstance(schedule, list) or not schedule or not all(map(_is_schedule_entry, schedule)):
        needed = "a list of [first batch size, last, K]"
        do = "write it as [[1, 4, 3], [5, 64, 0]]"
        findings.add("draft-length-schedule", where, f"{schedule!r}", needed, do)
        return False
    last = 0  # batch size at which the rows until now end
    for index, (first, final, drafted) in enumerate(schedule):
        path = f"{where}[{index}]"
        if (index == 0 and first != 1) or first <= last or final < first:
            needed = f"a first batch size above {last}, and a last one"
            if index == 0:
                needed = "1 as the first batch size"
            do = "make the rows consecutive, from 1 upwards"
            findings.add("draft-length-schedule", path, f"{[first, final, drafted]}", needed, do)
        if not 0 <= drafted <= tokens:
            findings.add(
                "draft-length-schedule", path, f"K={drafted}", f"0 to {tokens} (num_speculative_tokens)", "correct K"
            )
        last = max(last, final)
    return len(findings.problems) == before


def _is_schedule_entry(entry: object) -> bool:
    """True if an entry is a list of three integers."""
    return isinstance(entry, list) and len(entry) == 3 and all(type(number) is int for number in entry)
