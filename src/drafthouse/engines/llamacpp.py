"""llama.cpp's server: its counters, its log, and its speculation flags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from .base import LogLine, SpecDecodeCounters, spec_decode_series
from .pasted import Command, Speculation, json_value, whole_number

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Settings

#: Lookups whose draft tokens are set by --spec-TYPE-size-m; the other types use --spec-draft-n-max.
_SIZES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
#: Pattern of a draft's file name -> its type. The default type, draft-simple, would crash with these drafts.
_DRAFT_FILES = (
    (r"(?:^|[-_./])mtp(?:[-_.]|$)", "draft-mtp"),
    ("eagle-?3", "draft-eagle3"),
    ("dflash", "draft-dflash"),
    ("dspark", "draft-dspark"),
)
#: Types of branches, forks and old versions -> their name today (pull requests 22673 and 22397).
_OLD_TYPES = {
    "draft": "draft-simple", "mtp": "draft-mtp", "eagle3": "draft-eagle3", "dflash": "draft-dflash",
    "dspark": "draft-dspark",
}  # fmt: skip
#: Parameters of a lookup in ik_llama.cpp (``ngram-map-k:n_max=64,ngram_min_hits=1``) -> the end of today's flag.
_PARAMETERS = {"n_max": "size-m", "ngram_size_n": "size-n", "ngram_size_m": "size-m", "ngram_min_hits": "min-hits"}
_PARAMETERS_OF_MOD = {"n_max": "n-max", "n_min": "n-min", "ngram_size_n": "n-match"}
_RENAMED = "2026-04 (PR 22397)"  # when the speculation flags got their present names
#: Log lines about one answer (pull requests 22673 and 24536), and about all answers since the start (23269).
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
    """llama-server. It counts the tokens of a request when the request ends, and has no histograms."""

    name = "llamacpp"
    prefixes = ("llamacpp:",)
    # The draft counters exist since 2026.8.10566.
    series = spec_decode_series(
        "llamacpp:",
        output_tokens="llamacpp:tokens_predicted_total",
        input_tokens="llamacpp:prompt_tokens_total",
        output_seconds="llamacpp:tokens_predicted_seconds_total",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
    )
    # Its prompt tokens exclude those from the prefix cache.
    traffic: ClassVar[Mapping[str, str]] = {
        "llamacpp:prompt_tokens": "input_tokens",
        "llamacpp:tokens_predicted": "output_tokens",
        "llamacpp:requests_processing": "running",
        "llamacpp:requests_deferred": "running",
    }
    tokenizes = True
    # The draft counters exist without speculation too, so a lookup that finds nothing cannot be told from none.
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
        """A line for each answer, or else the last totals of each speculation type; see `Engine.log_lines`."""
        if answers := list(map(_answer_line, _ANSWER.finditer(text))):
            return answers
        totals = {}
        for match in _STATISTICS.finditer(text):
            totals[match["kind"]] = LogLine(int(match["drafts"]), int(match["drafted"]), int(match["accepted"]), [])
        return list(totals.values())

    def speculates(self, text: str) -> bool | None:
        """True if a slot speculates; None if the server has none, or hides its slots (--no-slots)."""
        try:
            slots = [slot["speculative"] for slot in json.loads(text)]
        except (ValueError, KeyError, TypeError):
            return None
        return any(slots) if slots else None

    def read_speculation(self, command: Command) -> Speculation | None:
        """Take the ``--spec-…`` flags out of a command; see `Engine.read_speculation`."""
        taken = command.take("spec-")
        words: Settings = {flag.name: flag.value for flag in taken}
        draft = str(words.get("spec-draft-model") or words.get("spec-draft-hf") or "")
        types = _types_of(words, command)
        if types == ["none"] or not (types or draft):
            for flag in taken:
                if types or flag.name in command.table.get("known", ()):
                    why = "it has no effect without a draft model or a type of speculation"
                    command.note(f"{flag.spelled} {flag.value}", "", why, "ignored")
                else:
                    command.given.append(flag)  # a flag of another build, which may turn speculation on
            return None
        if not types:
            types = [_default_type(draft, words)]
            why = "a draft model alone no longer drafts; the type must be named"
            command.note("(no --spec-type)", f"--spec-type {types[0]}", why, "chosen", _RENAMED)
        # A draft first: a profile's method is the draft, and names the lookups beside it. (False sorts before True.)
        types.sort(key=lambda spec_type: not spec_type.startswith("draft-"))
        method, *lookups = types
        _rename_lookup_flags(method, words, command)
        default_flag = f"--spec-{method}-size-m" if method in _SIZES else "--spec-draft-n-max"
        tokens_flag = command.names(method).get("num_speculative_tokens", default_flag).removeprefix("--")
        tokens = None
        if tokens_flag in words:
            tokens = whole_number(words[tokens_flag], f"--{tokens_flag}")
        if draft and not method.startswith("draft-"):
            why = f"--spec-type {method} does not use it; add draft-simple to use both"
            command.note(draft, draft, why, "kept", _RENAMED)
        flags: Settings = {"--spec-type": ",".join(types)}
        for key, value in words.items():
            flags[f"--{key}"] = value
        basic = ("--spec-type", "--spec-draft-model", "--spec-draft-hf", f"--{tokens_flag}")
        speculation = Speculation(method, draft, tokens, flags, also=",".join(lookups))
        return speculation.sort_words(command.option_names(method), basic, json_value)


def _types_of(words: Settings, command: Command) -> list[str]:
    """The types of `--spec-type` and `--spec-default` by today's names; parameters behind a type become ``words``."""
    types: list[str] = []
    for part in filter(None, str(words.pop("spec-type", "")).split(",")):
        name, _, setting = part.partition(":")
        if "=" in name:  # another parameter of the type before it
            setting = name
        else:
            types.append(_OLD_TYPES.get(name, name))
        key, equals, value = setting.partition("=")
        if equals and types[-1].startswith("ngram-"):
            ends = _PARAMETERS_OF_MOD if types[-1] == "ngram-mod" else _PARAMETERS
            words[f"spec-{types[-1]}-{ends.get(key, key)}"] = value
        elif equals:
            words[f"spec-draft-{key.replace('_', '-')}"] = value
        if part != types[-1]:
            command.note(
                f"--spec-type {part}", f"--spec-type {types[-1]}", "today's name and flags", "renamed", _RENAMED
            )
    if words.pop("spec-default", False):
        types.append("ngram-mod")
        for key, number in {"n-match": 24, "n-min": 48, "n-max": 64}.items():  # common/arg.cpp
            words.setdefault(f"spec-ngram-mod-{key}", number)
        command.note("--spec-default", "--spec-type ngram-mod", "it stands for this lookup and its sizes", "renamed")
    return list(dict.fromkeys(types))


def _default_type(draft: str, words: Settings) -> str:
    """The type of a command with a draft and without --spec-type, by the name of the draft, or of a flag."""
    for pattern, spec_type in _DRAFT_FILES:
        if re.search(pattern, " ".join([draft, *words]), re.IGNORECASE):
            return spec_type
    return "draft-simple"


def _answer_line(match: re.Match[str]) -> LogLine:
    """The figures of one answer's line; the drafts follow from the mean length, which is 1 + accepted / drafts."""
    accepted = int(match["accepted"])
    length = float(match["length"] or 1)
    rates = [float(rate) for rate in (match["rates"] or "").split(",") if rate.strip()]
    drafts = accepted / (length - 1) if length > 1 else None  # None: nothing was accepted, or no length was logged
    return LogLine(drafts, int(match["drafted"]), accepted, rates)


def _rename_lookup_flags(spec_type: str, words: Settings, command: Command) -> None:
    """Rename the flags in ``words`` that a lookup has under its own name now; tell the user where that is not plain."""
    for old, new in _flag_renames(spec_type, words):
        if new.endswith("-size-m") and old == "spec-draft-n-max":  # another word, not only another prefix
            why = "this lookup's draft length; --spec-draft-n-max is for the others, and ignored here now"
            command.note(f"--{old} {words[old]}", f"--{new} {words[old]}", why, "renamed", _RENAMED)
        words[new] = words.pop(old)


def _flag_renames(spec_type: str, words: Settings) -> list[tuple[str, str]]:
    """Old and new names of flags in ``words``: since PR 22397 each lookup has flags of its own.

    `ngram-mod` has its own names for the draft length, unless a draft model beside it needs the common ones; other
    lookups have a length of their own in place of the common one; the map lookups once used those of `ngram-simple`.
    """
    renames = []
    for name in words:
        if (
            spec_type == "ngram-mod"
            and name in ("spec-draft-n-max", "spec-draft-n-min")
            and not words.get("spec-draft-model")
        ):
            renames.append((name, name.replace("spec-draft", "spec-ngram-mod")))
        elif name == "spec-draft-n-max" and spec_type in _SIZES and not any(word.endswith("-size-m") for word in words):
            renames.append((name, f"spec-{spec_type}-size-m"))
        elif name.startswith("spec-ngram-simple-") and spec_type.startswith("ngram-map-k"):
            renames.append((name, name.replace("ngram-simple", spec_type)))
    return renames
