"""What a profile needs of its hardware: devices, context, memory of each arm; and what speed may be expected. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ..core.schema import Findings
from .draft_compat import most_tokens
from .expected_speed import MOST_TOKENS, REACH, Drafting, Target, mean_acceptance_length
from .memory_fit import (
    GB,
    MIB,
    context_that_fits,
    decode_limit,
    fit_arm,
    head_weight_bytes,
    kv_value_bytes,
    read_for_a_draft,
    read_for_a_token,
)
from .token_counts import meaning

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options
    from drafthouse.profiles.catalog_types import BuiltinHead, ModelEntry
    from drafthouse.profiles.profile_types import Expectation
    from drafthouse.profiles.resolved_types import ExpectedSpeed, Fit, Hardware

_OptionKey = Literal["context_option", "sequences_option", "share_option", "devices_option", "copies_option"]


@dataclass(frozen=True)
class Sizes:
    """A profile's models and options on its hardware.

    ``draft`` is None for a method without one, ``builtin`` for one that does not draft with a head inside the target;
    ``tokens`` are drafted at once. ``hosts``: over how many such machines one model is served.
    """

    engine: EngineEntry
    hardware: Hardware
    target: ModelEntry
    draft: ModelEntry | None
    builtin: BuiltinHead | None
    serve: Options
    method_options: Options
    tokens: int
    hosts: int = 1

    def served(self, option: _OptionKey, default: Any) -> Any:
        """What the profile says of the option that the engine's entry names under ``option``."""
        value = self.serve.get(self.engine.get(option) or "")
        if value is None:
            return default
        return value

    @property
    def context(self) -> int:
        """Tokens of the longest request; the model's own where the engine takes that, or as many as fit of them."""
        wished = self._wished_context
        if isinstance(wished, int):
            return wished
        return self.target["context"]

    @property
    def _wished_context(self) -> int | Literal["fit", "model"]:
        option = self.engine["options"].get(self.engine["context_option"])
        if option is None:
            return "model"
        return meaning(self.served("context_option", "model"), option) or "model"

    @property
    def devices(self) -> int:
        """How many devices the target is split over."""
        if self.engine.get("layer_split"):
            return self.hardware["devices"]
        return int(self.served("devices_option", 1))

    @property
    def at_once(self) -> int:
        """How many of the devices work at once: of those with some layers each, one."""
        if self.engine.get("layer_split"):
            return 1
        return self.devices

    @property
    def copies(self) -> int:
        """How many copies of the target there are, each of them on devices of its own."""
        return max(1, int(self.served("copies_option", 1)))

    @property
    def used(self) -> int:
        """How many devices serve, over all hosts."""
        return self.devices * self.copies

    @property
    def shared_memory(self) -> int:
        """Bytes that the engine's processes share at least: those of several devices talk through it."""
        if self.used < 2:
            return 0
        return int(self.engine.get("shared_memory_mib", 0)) * MIB

    def fit(self, arm: str) -> Fit:
        """How an arm fits into one device's memory."""
        engine = self.engine
        on_gpu = self.hardware["kind"] == "gpu"
        share = float(self.served("share_option", engine.get("share_default", 1)))
        utilization = cache_share = 1.0
        if engine["reserves"] == "share" and on_gpu:
            utilization = share
        elif engine["reserves"] == "share_of_free":
            cache_share = share
        devices = max(1, self.devices)
        draft, builtin, drafted = None, None, 0
        if arm == "speculative":
            draft, builtin, drafted = self.draft, self.builtin, self.tokens
        fit_with = partial(
            fit_arm,
            memory=self.hardware["memory_mib"] * MIB,
            utilization=utilization,
            cache_share=cache_share,
            devices=devices,
            draft_devices=max(1, int(self.method_options.get("draft_tensor_parallel_size", devices))),
            target=self.target,
            draft=draft,
            builtin=builtin,
            overhead=engine["overhead_mib"] * MIB,
            bytes_per_value=kv_value_bytes(engine, self.serve),
            sequences=int(self.served("sequences_option", 1)),
            drafted=drafted,
            context_is_shared=engine["context_is_shared"],
            reserves_share=engine["reserves"] != "needed" and on_gpu,
        )
        fit = fit_with(context=self.context)
        if self._wished_context != "fit" or fit["left"] >= 0:
            return fit
        # The engine takes one request at its longest for enough; what the plan measures side by side must fit too.
        less = context_that_fits(fit, shared=engine["context_is_shared"])
        if less == 0:
            return fit
        return fit_with(context=less)

    def check_fits(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add to the findings contexts, device counts and arms that are too large for models and hardware."""
        self._check_contexts(findings)
        self._check_device_count(findings)
        self._check_memory(findings, fits)
        self._check_shared_memory(findings, fits)

    def _check_contexts(self, findings: Findings) -> None:
        """Add to the findings a context beyond the model's limit, and a draft's beyond the served one."""
        context, where = self.context, f"serve.{self.engine['context_option']}"
        if context > self.target["context"]:
            findings.add(
                "context-too-long",
                where,
                f"{context} tokens",
                f"{self.target['context']} or fewer: the model's limit",
                "choose a shorter context",
            )
        own = self.engine["context_option"]
        longest = int(self.method_options.get(own, 0))
        most = context
        if self.draft:
            most = min(context, self.draft["context"])
        if longest > most:
            findings.add(
                "context-too-long",
                f"speculation.options.{own}",
                f"{longest} tokens",
                f"{most} or fewer: the served context and the draft's own limit",
                "choose a shorter context, or leave it out",
            )

    def _check_device_count(self, findings: Findings) -> None:
        """Add to the findings where more devices are to serve than all hosts have."""
        most = self.hardware["devices"] * self.hosts
        if self.used <= most:
            return
        holders = f"'{self.hardware['id']}' has"
        if self.hosts > 1:
            holders = f"{self.hosts} hosts of '{self.hardware['id']}' have"
        findings.add(
            "too-many-gpus",
            f"serve.{self.engine['devices_option']}",
            f"{self.used} devices",
            f"{most}: all that {holders}",
            "lower it, or choose other hardware",
        )

    def _check_memory(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add to the findings an arm that is larger than the memory: the speculative one, else the baseline."""
        short = "baseline"
        if fits["speculative"]["left"] < 0:
            short = "speculative"
        fit = fits[short]
        if fit["left"] >= 0:
            return
        needs = f"{short} arm: weights {fit['weights'] / GB:.1f}"
        if fit["draft"]:
            needs += f" + draft {fit['draft'] / GB:.1f}"
        needs += f" + KV cache {fit['kv_needed'] / GB:.1f} + overhead {fit['overhead'] / GB:.1f} GB"
        do = "choose smaller models or larger hardware"
        less = min(self.target["context"], context_that_fits(fit, shared=self.engine["context_is_shared"]))
        if less:
            do = f"shorten serve.{self.engine['context_option']} to {less} or less"
        findings.add(
            "gpu-memory-too-small",
            "target",
            needs,
            f"at most {fit['memory'] * fit['utilization'] / GB:.1f} GB"
            f" ({fit['utilization']:.0%} of {fit['memory'] / GB:.1f} GB on {self.hardware['name']})",
            do,
        )

    def _check_shared_memory(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add to the findings when an arm would take of a memory that it shares what the system needs of it."""
        system = self.hardware.get("system_mib", 0) * MIB
        fit = max(fits.values(), key=self._taken)
        room, taken = fit["memory"] - system, self._taken(fit)
        if not system or fit["left"] < 0 or taken <= room:
            return
        # The share is one of all memory, or of what weights and overhead leave.
        beside = 0
        if self.engine["reserves"] == "share_of_free":
            beside = _bytes_beside_the_cache(fit)
        most = int(100 * (room - beside) / (fit["memory"] - beside)) / 100
        option, do = self.engine["context_option"], "make it smaller"
        share = self.engine.get("share_option")
        if share and self.engine["reserves"] != "needed":
            option, do = share, f"set it to {most:.2f} or less"
        findings.add(
            "gpu-memory-too-small",
            f"serve.{option}",
            f"{taken / GB:.1f} GB of the memory that CPU and GPU share",
            f"at most {room / GB:.1f} GB: of {fit['memory'] / GB:.1f} GB on {self.hardware['name']} the system keeps"
            f" {system / GB:.1f} GB",
            do,
        )

    def _taken(self, fit: Fit) -> int:
        """The bytes that an arm takes on one device: of what is free at its start some engines leave a share."""
        if self.engine["reserves"] == "share_of_free" and self.hardware["kind"] == "gpu":
            return _bytes_beside_the_cache(fit) + fit["left"] + fit["kv_needed"]
        return fit["reserved"]

    def check_devices(self, findings: Findings) -> None:
        """Check the tensor-parallel sizes: whole heads on every device; a draft on one device or on all."""
        devices = self.devices
        where = f"serve.{self.engine.get('devices_option')}"
        if devices < 1 or (self.target["heads"] % devices and not self.engine.get("layer_split")):
            findings.add(
                "tensor-parallel-size",
                where,
                f"{devices} devices for {self.target['heads']} attention heads",
                "a number that divides them",
                f"use one of: {', '.join(str(n) for n in range(1, 17) if self.target['heads'] % n == 0)}",
            )
        drafting = self.method_options.get("draft_tensor_parallel_size")
        if drafting is not None and drafting not in (1, devices):
            needed = "1"
            if devices > 1:
                needed = f"1, or the target's own {devices}: {self.engine['name']} accepts nothing else"
            findings.add(
                "tensor-parallel-size",
                "speculation.options.draft_tensor_parallel_size",
                f"{drafting}",
                needed,
                "correct it",
            )

    def expectation(self, expect: Expectation | None, *, users: int, one_pass: bool) -> ExpectedSpeed:
        """The speed-up to expect for ``users`` at once, from the assumed acceptance.

        ``one_pass``: all tokens of a draft come out of one pass of it.
        """
        k = self.tokens
        bandwidth = self.hardware["bandwidth_gb_s"] * GB * self.at_once
        read, drafting = read_for_a_token(self.target), 0
        if self.draft:
            drafting = int(self.draft.get("read_bytes") or self.draft["weight_bytes"])
        elif self.builtin:
            drafting = read_for_a_draft(self.target, self.builtin)
        tokens_per_pass = k if one_pass else 1
        found: ExpectedSpeed = {
            "bandwidth_bytes_s": bandwidth,
            "bytes_per_token": read,
            "decode_limit_tok_s": decode_limit(read, bandwidth),
            "num_speculative_tokens": k,
            "draft_cost": drafting / read / tokens_per_pass,
            "acceptance": None,
            "acceptance_source": None,
            "speedup": None,
            "low": None,
            "high": None,
            "users": users,
            "until": None,
            "best_tokens": None,
        }
        if expect:
            acceptance = expect["acceptance"]
            found["acceptance"], found["acceptance_source"] = acceptance, expect["source"]
            length = mean_acceptance_length(acceptance, k)
            if costs := self._cost_of_a_token():
                # What was measured for one user holds for one alone.
                found["users"] = 1
                found["speedup"], found["high"], found["low"] = (length / (1 + k * cost) for cost in costs)
                found["best_tokens"] = max(
                    range(1, (most_tokens(self.draft, self.builtin) or MOST_TOKENS) + 1),
                    key=lambda tokens: mean_acceptance_length(acceptance, tokens) / (1 + tokens * costs[0]),
                )
            else:
                self._expect_by_load(found, acceptance, length, drafting, one_pass=one_pass)
        return found

    def _cost_of_a_token(self) -> list[float]:
        """What a drafted token costs on this card, as a share of a step, where the engine's entry knows it by card."""
        capability = self.hardware.get("compute_capability", "")
        known = self.engine.get("draft_step", {}).get("by_capability", {})
        return known.get(capability) or known.get(capability.partition(".")[0]) or []

    def _expect_by_load(
        self, found: ExpectedSpeed, acceptance: float, length: float, read: int, *, one_pass: bool
    ) -> None:
        target, users, k = self._target(found["bandwidth_bytes_s"]), found["users"], self.tokens
        drafting = Drafting(0)
        if read:
            step = self.engine.get("draft_step", {})
            drafting = Drafting(read, step.get("ms", 0.0) / 1000, step.get("share", 0.0), one_pass)
        gain = target.speedup(drafting, users, k, length)
        found["speedup"], found["low"], found["high"] = gain, gain * (1 - REACH), gain * (1 + REACH)
        most = most_tokens(self.draft, self.builtin) or MOST_TOKENS
        found["best_tokens"] = target.best_tokens(drafting, users, acceptance, most)
        if target.peak:
            found["until"] = target.pays_until(drafting, k, length)

    def _target(self, bandwidth: float) -> Target:
        """What a step of the target costs: of a mixture, the experts are what one token does not read by itself."""
        read, whole = read_for_a_token(self.target), self.target["weight_bytes"] - head_weight_bytes(self.target)
        parameters = self.target["parameters"] * min(1.0, read / whole)
        peak = self.hardware.get("tflops", 0) * 1e12 * self.at_once
        experts = self.target.get("experts")
        if experts is None or read >= whole:
            return Target(read, parameters, bandwidth, peak)
        used, of = experts["used"], experts["of"]
        in_experts = int((whole - read) / (1 - used / of))
        return Target(whole - in_experts, parameters, bandwidth, peak, in_experts, used, of)


def _bytes_beside_the_cache(fit: Fit) -> int:
    """The bytes of an arm beside its KV cache."""
    return fit["weights"] + fit["draft"] + fit["overhead"]
