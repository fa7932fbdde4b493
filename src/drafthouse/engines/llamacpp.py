"""llama.cpp's server: its counters, and its flags of speculation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from .base import LogLine, SpecDecodeCounters, spec_decode_series
from .pasted import Command, Speculation, json_value, whole_number

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

#: Lookups that draft so many tokens as this one setting of theirs says; --spec-draft-n-max is for the others.
_SIZES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
#: What a draft's file is called, and its type: draft-simple would crash with them.
_DRAFT_FILES = (
    (r"(?:^|[-_./])mtp(?:[-_.]|$)", "draft-mtp"),
    ("eagle-?3", "draft-eagle3"),
    ("dflash", "draft-dflash"),
    ("dspark", "draft-dspark"),
)
_RENAMED = "2026-04 (PR 22397)"
#: What its log says behind each answer (pull requests 22673 and 24536), and of all answers so far (23269).
_ANSWER = re.compile(
    r"draft acceptance(?: rate)? = +[\d.]+ \( *(?P<accepted>\d+) accepted / *(?P<drafted>\d+) generated\)"
    r"(?:, mean acceptance length = +(?P<length>[\d.]+))?"
    r"(?:, acceptance rate per position = \((?P<rates>[\d., ]+)\))?"
)
_STATISTICS = re.compile(
    r"statistics +(?P<kind>[\w-]+): .*#gen drafts = +(?P<drafts>\d+),"
    r".*#gen tokens = +(?P<drafted>\d+), #acc tokens = +(?P<accepted>\d+)"
)


class LlamaCpp(SpecDecodeCounters):
    """llama-server. It counts a request's tokens as that ends, and has no histograms."""

    name = "llamacpp"
    prefixes = ("llamacpp:",)
    # Since 2026.8.10566.
    series = spec_decode_series(
        "llamacpp:",
        output_tokens="llamacpp:tokens_predicted_total",
        input_tokens="llamacpp:prompt_tokens_total",
        output_seconds="llamacpp:tokens_predicted_seconds_total",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
    )
    # Its prompt tokens are without what its cache had.
    traffic: ClassVar[Mapping[str, str]] = {
        "llamacpp:prompt_tokens": "input_tokens",
        "llamacpp:tokens_predicted": "output_tokens",
        "llamacpp:requests_processing": "running",
        "llamacpp:requests_deferred": "running",
    }
    tokenizes = True
    # It has counters of drafts with and without speculation; a lookup that finds nothing looks like none.
    slots = "/slots"
    programs: ClassVar[Mapping[str, str]] = {
        "llama-server": "",
        "llama-speculative": "",
        "llama-speculative-simple": "",
        "llama-cli": "",
        "llama-completion": "",
    }
    presets_of = "llama-server"
    images = (
        (r"ghcr\.io/(?:ggml-org|ggerganov)/llama\.cpp:server.*", ("llama-server",)),
        (r"ghcr\.io/(?:ggml-org|ggerganov)/llama\.cpp:light.*", ("llama-cli",)),
        (r"ghcr\.io/(?:ggml-org|ggerganov)/llama\.cpp:full.*", ("llama-server",)),
    )
    flag_variables = "LLAMA_ARG_"
    forms = ("llama-server", "llama-speculative", "llama-cli")

    def log_lines(self, text: str) -> list[LogLine]:
        """Its lines about drafting: of each answer, else the last total of each kind; see `Engine.log_lines`."""
        if answers := list(map(_of_answer, _ANSWER.finditer(text))):
            return answers
        totals = {}
        for found in _STATISTICS.finditer(text):
            totals[found["kind"]] = LogLine(int(found["drafts"]), int(found["drafted"]), int(found["accepted"]), [])
        return list(totals.values())

    def speculates(self, text: str) -> bool | None:
        """Whether a slot speculates, None where it does not tell (--no-slots)."""
        try:
            slots = [slot["speculative"] for slot in json.loads(text)]
        except (ValueError, KeyError, TypeError):
            return None
        return any(slots) if slots else None

    def read_speculation(self, command: Command) -> Speculation | None:
        """Take the ``--spec-…`` flags out of a command; see `Engine.read_speculation`."""
        words: Settings = {flag.name: flag.value for flag in command.take("spec-")}
        if not words or words.get("spec-type") == "none":
            return None
        draft = str(words.get("spec-draft-model") or words.get("spec-draft-hf") or "")
        method = str(words.get("spec-type") or "")
        if not method:
            method = _type_for(draft, words)
            why = "a draft model alone no longer drafts; the type must be named" if draft else "none was named"
            command.note("(no --spec-type)", f"--spec-type {method}", why, "chosen", _RENAMED)
        types = method.split(",")
        _rename_lookup_flags(types[0], words, command)
        usual = f"--spec-{types[0]}-size-m" if types[0] in _SIZES else "--spec-draft-n-max"
        count = command.names(method).get("num_speculative_tokens", usual).removeprefix("--")
        tokens = None
        if count in words:
            tokens = whole_number(words[count], f"--{count}")
        if draft and not any(kind.startswith("draft-") for kind in types):
            why = f"--spec-type {method} does not use it; add draft-simple to use both"
            command.note(draft, draft, why, "kept", _RENAMED)
        words.pop("spec-type", None)
        spoken: Settings = {"--spec-type": method}
        for key, value in words.items():
            spoken[f"--{key}"] = value
        known = ("--spec-type", "--spec-draft-model", "--spec-draft-hf", f"--{count}")
        return Speculation(method, draft, tokens, spoken).sorted(command.option_names(method), known, json_value)


def _type_for(draft: str, words: Settings) -> str:
    """The type of a command that names none: by the name of its draft, a lookup without one."""
    if not draft:
        return "ngram-mod" if "spec-default" in words else "ngram-simple"
    for pattern, kind in _DRAFT_FILES:
        if re.search(pattern, draft, re.IGNORECASE):
            return kind
    return "draft-simple"


def _of_answer(found: re.Match[str]) -> LogLine:
    """An answer's line; the number of its drafts follows from the mean length: 1 + accepted / drafts."""
    accepted, length = int(found["accepted"]), float(found["length"] or 1)
    rates = [float(rate) for rate in (found["rates"] or "").split(",") if rate.strip()]
    drafts = accepted / (length - 1) if length > 1 else None
    return LogLine(drafts, int(found["drafted"]), accepted, rates)


def _rename_lookup_flags(kind: str, words: Settings, command: Command) -> None:
    for old, new in _of_type(kind, words):
        if new.endswith("-size-m") and old == "spec-draft-n-max":
            why = "this lookup's draft length; --spec-draft-n-max is for the others, and ignored here now"
            command.note(f"--{old} {words[old]}", f"--{new} {words[old]}", why, "renamed", _RENAMED)
        words[new] = words.pop(old)


def _of_type(kind: str, words: Settings) -> list[tuple[str, str]]:
    """Which flags go by another name with this --spec-type: each lookup has its own since PR 22397."""
    pairs = []
    for name in words:
        if (
            kind == "ngram-mod"
            and name in ("spec-draft-n-max", "spec-draft-n-min")
            and not words.get("spec-draft-model")
        ):
            pairs.append((name, name.replace("spec-draft", "spec-ngram-mod")))
        elif name == "spec-draft-n-max" and kind in _SIZES and not any(word.endswith("-size-m") for word in words):
            pairs.append((name, f"spec-{kind}-size-m"))
        elif name.startswith("spec-ngram-simple-") and kind.startswith("ngram-map-k"):
            pairs.append((name, name.replace("ngram-simple", kind)))
    return pairs
