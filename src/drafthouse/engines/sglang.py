"""SGLang: its counters, its log, and its speculation flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from ..core.prometheus_text import Sample
from .base import Drafted, Engine, LogLine, Series, by_field
from .pasted import Command, Speculation, json_value, whole_number

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Method, Settings

_SINCE = "0.5.15"  # the first version that counts verifications
_STEPS = "--speculative-num-steps"
_TO_VERIFY = "--speculative-num-draft-tokens"  # tokens that a step verifies: one more than the draft has
_DRAFT = "--speculative-draft-model-path"
_LOG_LINE = re.compile(r"Decode batch.*?accept len: ([\d.]+)")


class SGLang(Engine):
    """SGLang's server. The series are named in `srt/observability/metrics_collector.py` of 0.5.23.

    When a request ends, it adds the answer's tokens to its counters and, since 0.5.15, the number of times that drafts
    were verified (`sglang:spec_verify_calls_total`). A verification yields the accepted tokens and one more, and the
    first token of a request comes from the prefill. So accepted = tokens - requests - verifications. Draft tokens are
    not counted. A counter is missing from the metrics until it first increases.

    Older versions have only the mean acceptance length of their last steps, as a gauge and in their log.
    """

    name = "sglang"
    prefixes = ("sglang:",)
    drafting_words = ("sglang:spec_", "sglang:generation_tokens", "sglang:num_requests")
    shows_zeros = False
    no_sign = (
        f"the server has neither sglang:spec_verify_calls_total (SGLang has it since {_SINCE}, once something was "
        "drafted) nor sglang:spec_accept_length, and its answers lack counts (return_spec_tokens_details, since 0.5.20)"
    )
    see_drafts = f"sglang:spec_verify_calls_total, since SGLang {_SINCE}"
    # It counts neither draft tokens nor accepted tokens by position.
    series = Series(
        drafts="sglang:spec_verify_calls_total",
        draft_tokens="",
        accepted_tokens="sglang:generation_tokens_total",
        not_accepted="sglang:num_requests_total sglang:spec_verify_calls_total",
        accepted_at="",
        output_tokens="sglang:generation_tokens_total",
        input_tokens="sglang:prompt_tokens_total",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        kv_cache="sglang:token_usage",
        ttft="sglang:time_to_first_token_seconds",
        tpot="sglang:inter_token_latency_seconds",
        queue="sglang:queue_time_seconds",
    )
    traffic: ClassVar[Mapping[str, str]] = {
        "sglang:num_requests": "requests",
        "sglang:prompt_tokens": "input_tokens",
        "sglang:generation_tokens": "output_tokens",
        "sglang:num_running_reqs": "running",
        "sglang:num_queue_reqs": "running",
    }
    programs: ClassVar[Mapping[str, str]] = {"sglang": "serve"}
    python_modules = ("sglang.launch_server", "dynamo.sglang")
    python_calls = ("ServerArgs", "Engine")
    images = ((r"(?:.*/)?lmsysorg/sglang", ()),)
    forms = ("python -m sglang.launch_server", "sglang serve")
    flags_in_file = True
    _FIELDS: ClassVar[Mapping[str, str]] = {
        "spec_verify_calls": "verified",
        "generation_tokens": "tokens",
        "num_requests": "requests",
        "spec_accept_length": "length",
    }

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The verifications and accepted tokens, or else the gauge, or else None; see `Engine.drafted`."""
        sums = {name: counts.get(0, 0) for name, counts in by_field(samples, self._FIELDS, self.prefixes, "").items()}
        if "verified" in sums:
            accepted = sums.get("tokens", 0) - sums.get("requests", 0) - sums["verified"]
            return Drafted(num_drafts=sums["verified"], draft_tokens=None, accepted_tokens=max(0, accepted))
        if "length" not in sums:
            return None
        # Not from ``sums``, which are whole numbers, added up over labels: this is a mean.
        gauges = [sample.value for sample in samples if sample.name == "sglang:spec_accept_length" and sample.finite]
        length = max(gauges, default=0)
        # The gauge is 0 before the first draft, and always without speculation.
        if not length:
            return Drafted()
        return Drafted(num_drafts=None, draft_tokens=None, accepted_tokens=None, length=length)

    def log_lines(self, text: str) -> list[LogLine]:
        """The lines `Decode batch, …`, with a mean acceptance length each; see `Engine.log_lines`."""
        no_counts = LogLine(num_drafts=None, draft_tokens=0, accepted_tokens=0, rates=[])
        return [replace(no_counts, length=float(length)) for length in _LOG_LINE.findall(text)]

    def read_speculation(self, command: Command) -> Speculation | None:
        """Take the ``--speculative-…`` flags out of a command; see `Engine.read_speculation`."""
        words: Settings = {flag.flag: flag.value for flag in command.take("speculative-")}
        typed = str(words.get("--speculative-algorithm", ""))
        if not typed:
            return None
        algorithm = typed.upper()  # SGLang does the same
        draft = str(words.get(_DRAFT, "")).rstrip("/")
        if draft == command.target and algorithm in ("EAGLE", "NEXTN"):
            draft = ""  # the path of the target stands for the head inside it
        methods = command.engine["methods"]
        method = _method_of(algorithm, draft, methods)
        entry = methods.get(method)
        if entry and entry["draft"] in ("head", "model") and not draft:
            why = f"it exits at its start without a separate draft: {_DRAFT}"
            command.note(f"--speculative-algorithm {typed}", "", why, "kept")
        names = command.names(method)
        tokens = _tokens_of(words, names.get("num_speculative_tokens", _STEPS), entry)
        if entry and _STEPS in names.values():
            if tokens is None:
                why = "it chooses by the model: 5 with 4 branches for Llama and Grok, else 3 with one"
                command.note(f"(no {_STEPS})", "", why, "chosen")
            else:
                self._complete(command, words, tokens, entry)
        words["--speculative-algorithm"] = algorithm
        needed = dict(words)
        if entry:
            for name, value in _implied(entry, tokens).items():
                if str(words.get(name)) == str(value):
                    needed.pop(name, None)  # the method in the catalogue implies this flag
        basic = [*names.values()]
        if _DRAFT in words:
            basic.append(_DRAFT)
        # A profile needs only ``needed``; today's command gets all flags.
        result = Speculation(method, draft, tokens, needed).sort_words(command.option_names(method), basic, json_value)
        result.words = words
        return result

    def _complete(self, command: Command, words: Settings, tokens: int, entry: Method) -> None:
        """Add missing flags for steps, branches and tokens to verify: SGLang exits with a TypeError for steps alone."""
        for name, value in {_STEPS: tokens, **_implied(entry, tokens)}.items():
            if name not in words:
                words[name] = str(value)
                why = "steps, branches and tokens to verify go together: it chooses all of them or none"
                command.note(f"(no {name})", f"{name} {value}", why, "chosen")


def _method_of(algorithm: str, draft: str, methods: Mapping[str, Method]) -> str:
    """The catalogue's method for ``algorithm``, which is in capitals."""
    if algorithm == "EAGLE" and not draft:
        return "nextn"  # SGLang treats both alike (speculative_hook.py): without a draft it uses the target's head
    for name, entry in methods.items():
        if entry.get("value") == algorithm:
            return name
    return algorithm.lower()


def _tokens_of(words: Settings, flag: str, entry: Method | None) -> int | None:
    """The draft tokens per step: the value of ``flag``, or else the tokens to verify minus 1; None without both.

    The tokens to verify do not tell for a method whose entry does not derive them from K.
    """
    if flag in words:
        return whole_number(words[flag], flag)
    if _TO_VERIFY in words and (entry is None or _TO_VERIFY in entry.get("follows", {})):
        return whole_number(words[_TO_VERIFY], _TO_VERIFY) - 1
    return None


def _implied(entry: Method, tokens: int | None) -> Settings:
    """The flags that a method implies: its constant ones, and those that are the draft tokens plus a constant."""
    flags: Settings = dict(entry.get("always", {}))
    if tokens is not None:
        for name, constant in entry.get("follows", {}).items():
            flags[name] = tokens + constant
    return flags
