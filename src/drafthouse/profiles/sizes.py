"""Sizes of a profile on its hardware: devices, context and memory of each arm, and the expected speed-up."""

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
from .token_counts import tokens_or_word

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Options
    from drafthouse.profiles.catalog_types import BuiltinHead, ModelEntry
    from drafthouse.profiles.profile_types import Expectation
    from drafthouse.profiles.resolved_types import ExpectedSpeed, Fit, Hardware

#: Keys of an engine's entry whose value is the name of an option.
_OptionKey = Literal["context_option", "sequences_option", "share_option", "devices_option", "copies_option"]


@dataclass(frozen=True)
class Sizes:
    """A profile's models and options on its hardware."""

    engine: EngineEntry
    hardware: Hardware  # of one host
    target: ModelEntry
    draft: ModelEntry | None  # None for a method without one
    builtin: BuiltinHead | None  # the target's built-in head; None if the method does not use it
    serve: Options
    method_options: Options
    tokens: int  # K
    hosts: int = 1  # over which the model is served

    def served(self, option: _OptionKey, default: Any) -> Any:
        """The profile's value of the option whose name the engine's entry has under ``option``; else ``default``."""
        value = self.serve.get(self.engine.get(option) or "")
        if value is None:
            return default
        return value

    @property
    def context(self) -> int:
        """Tokens of the longest request: the profile's number, else the model's limit."""
        context = self._wished_context
        if isinstance(context, int):
            return context
        return self.target["context"]

    @property
    def _wished_context(self) -> int | Literal["fit", "model"]:
        """The profile's number of tokens; or the model's limit ("model"), or as much of it as fits ("fit")."""
        option = self.engine["options"].get(self.engine["context_option"])
        if option is None:
            return "model"
        return tokens_or_word(self.served("context_option", "model"), option) or "model"

    @property
    def devices(self) -> int:
        """The number of devices over which the target is split."""
        if self.engine.get("layer_split"):
            return self.hardware["devices"]
        return int(self.served("devices_option", 1))

    @property
    def devices_in_parallel(self) -> int:
        """The number of devices that work on a token at the same time: one, if each device has some of the layers."""
        if self.engine.get("layer_split"):
            return 1
        return self.devices

    @property
    def copies(self) -> int:
        """The number of copies of the target, each on separate devices."""
        return max(1, int(self.served("copies_option", 1)))

    @property
    def used(self) -> int:
        """The number of devices that serve, over all copies and hosts."""
        return self.devices * self.copies

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory that the engine needs at least; its processes, one a device, communicate in it."""
        if self.used < 2:
            return 0
        return int(self.engine.get("shared_memory_mib", 0)) * MIB

    def fit(self, arm: str) -> Fit:
        """The memory that an arm takes on one device.

        The context is the served one; where the profile says "fit" and that is too long, the longest one that fits.
        """
        engine = self.engine
        on_gpu = self.hardware["kind"] == "gpu"
        share = float(self.served("share_option", engine.get("share_default", 1)))
        utilization = cache_share = 1.0
        if engine["reserves"] == "share" and on_gpu:
            utilization = share
        elif engine["reserves"] == "share_of_free":
            cache_share = share
        devices = max(1, self.devices)
        draft: ModelEntry | None = None
        builtin: BuiltinHead | None = None
        drafted = 0
        if arm == "speculative":
            draft = self.draft
            builtin = self.builtin
            drafted = self.tokens
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
            by_layers=bool(engine.get("layer_split")),
        )
        fit = fit_with(context=self.context)
        if self._wished_context != "fit" or fit["left"] >= 0:
            return fit
        # With "fit" the engine makes room for one request of full length; the plan needs room for all concurrent ones.
        shorter = context_that_fits(fit, shared=engine["context_is_shared"])
        if shorter == 0:
            return fit
        return fit_with(context=shorter)

    def check_fits(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add problems of contexts, device counts and arms that exceed the models or the hardware."""
        self._check_contexts(findings)
        self._check_device_count(findings)
        self._check_memory(findings, fits)
        self._check_shared_memory(findings, fits)

    def _check_contexts(self, findings: Findings) -> None:
        """Add problems of a context beyond the model's limit, and of a draft's beyond its own or the served one."""
        context = self.context
        option = self.engine["context_option"]
        if context > self.target["context"]:
            findings.add(
                "context-too-long",
                f"serve.{option}",
                f"{context} tokens",
                f"{self.target['context']} or fewer: the model's limit",
                "choose a shorter context",
            )
        draft_context = int(self.method_options.get(option, 0))
        limit = context
        if self.draft:
            limit = min(context, self.draft["context"])
        if draft_context > limit:
            findings.add(
                "context-too-long",
                f"speculation.options.{option}",
                f"{draft_context} tokens",
                f"{limit} or fewer: the served context and the draft's own limit",
                "choose a shorter context, or leave it out",
            )

    def _check_device_count(self, findings: Findings) -> None:
        """Add a problem if more devices are to serve than all hosts have."""
        available = self.hardware["devices"] * self.hosts
        if self.used <= available:
            return
        holders = f"'{self.hardware['id']}' has"
        if self.hosts > 1:
            holders = f"{self.hosts} hosts of '{self.hardware['id']}' have"
        findings.add(
            "too-many-gpus",
            f"serve.{self.engine['devices_option']}",
            f"{self.used} devices",
            f"{available}: all that {holders}",
            "lower it, or choose other hardware",
        )

    def _check_memory(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add a problem if an arm exceeds the memory: the speculative arm if it does, else the baseline."""
        arm = "baseline"
        # One problem is enough. The speculative arm needs more, so a context that fits there fits in the baseline too.
        if fits["speculative"]["left"] < 0:
            arm = "speculative"
        fit = fits[arm]
        if fit["left"] >= 0:
            return
        needs = f"{arm} arm: weights {fit['weights'] / GB:.1f}"
        if fit["draft"]:
            needs += f" + draft {fit['draft'] / GB:.1f}"
        needs += f" + KV cache {fit['kv_needed'] / GB:.1f} + overhead {fit['overhead'] / GB:.1f} GB"
        do = "choose smaller models or larger hardware"
        shorter = min(self.target["context"], context_that_fits(fit, shared=self.engine["context_is_shared"]))
        if shorter:
            do = f"shorten serve.{self.engine['context_option']} to {shorter} or less"
        findings.add(
            "gpu-memory-too-small",
            "target",
            needs,
            f"at most {fit['memory'] * fit['utilization'] / GB:.1f} GB"
            f" ({fit['utilization']:.0%} of {fit['memory'] / GB:.1f} GB on {self.hardware['name']})",
            do,
        )

    def _check_shared_memory(self, findings: Findings, fits: Mapping[str, Fit]) -> None:
        """Add a problem if CPU and GPU share a memory, and an arm takes a part of it that the system needs."""
        system = self.hardware.get("system_mib", 0) * MIB
        fit = max(fits.values(), key=self._taken)
        limit = fit["memory"] - system
        taken = self._taken(fit)
        # An arm that does not fit at all has a problem already (`_check_memory`).
        if not system or fit["left"] < 0 or taken <= limit:
            return
        # The engine's share applies to all memory, or to what weights and overhead leave.
        outside_share = 0
        if self.engine["reserves"] == "share_of_free":
            outside_share = _bytes_beside_the_cache(fit)
        largest_share = int(100 * (limit - outside_share) / (fit["memory"] - outside_share)) / 100
        option = self.engine["context_option"]
        do = "make it smaller"
        share = self.engine.get("share_option")
        if share and self.engine["reserves"] != "needed":
            option = share
            do = f"set it to {largest_share:.2f} or less"
        findings.add(
            "gpu-memory-too-small",
            f"serve.{option}",
            f"{taken / GB:.1f} GB of the memory that CPU and GPU share",
            f"at most {limit / GB:.1f} GB: of {fit['memory'] / GB:.1f} GB on {self.hardware['name']} the system keeps"
            f" {system / GB:.1f} GB",
            do,
        )

    def _taken(self, fit: Fit) -> int:
        """Bytes that an arm takes on one device; the cache of some engines fills a share of what weights leave."""
        if self.engine["reserves"] == "share_of_free" and self.hardware["kind"] == "gpu":
            return _bytes_beside_the_cache(fit) + fit["left"] + fit["kv_needed"]
        return fit["reserved"]

    def check_devices(self, findings: Findings) -> None:
        """Add problems of the tensor-parallel sizes.

        Each device gets whole attention heads, unless the engine splits by layers. The draft is on one device or all.
        """
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
        draft_devices = self.method_options.get("draft_tensor_parallel_size")
        if draft_devices is not None and draft_devices not in (1, devices):
            needed = "1"
            if devices > 1:
                needed = f"1, or the target's own {devices}: {self.engine['name']} accepts nothing else"
            findings.add(
                "tensor-parallel-size",
                "speculation.options.draft_tensor_parallel_size",
                f"{draft_devices}",
                needed,
                "correct it",
            )

    def expectation(self, expect: Expectation | None, *, users: int, one_pass: bool) -> ExpectedSpeed:
        """The speed-up for ``users`` at once, from the assumed acceptance; ``expect`` None: no estimate.

        ``one_pass``: True if one pass of the draft yields all K tokens. Where the engine's entry has costs of drafted
        tokens that were measured on this GPU, they decide; otherwise the cost model of `expected_speed` does.
        """
        k = self.tokens
        bandwidth = self.hardware["bandwidth_gb_s"] * GB * self.devices_in_parallel
        read = read_for_a_token(self.target)
        draft_read = self._bytes_per_draft()
        tokens_per_pass = k if one_pass else 1
        expected: ExpectedSpeed = {
            "bandwidth_bytes_s": bandwidth,
            "bytes_per_token": read,
            "decode_limit_tok_s": decode_limit(read, bandwidth),
            "num_speculative_tokens": k,
            "draft_cost": draft_read / read / tokens_per_pass,
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
            expected["acceptance"] = acceptance
            expected["acceptance_source"] = expect["source"]
            length = mean_acceptance_length(acceptance, k)
            if costs := self._draft_token_costs():
                # These costs were measured for one user, so the estimate is for one user only.
                expected["users"] = 1
                # Median, least and most: the least cost gives the highest speed-up.
                expected["speedup"], expected["high"], expected["low"] = (length / (1 + k * cost) for cost in costs)
                expected["best_tokens"] = max(
                    range(1, (most_tokens(self.draft, self.builtin) or MOST_TOKENS) + 1),
                    key=lambda tokens: mean_acceptance_length(acceptance, tokens) / (1 + tokens * costs[0]),
                )
            else:
                self._expect_by_load(expected, acceptance, length, draft_read, one_pass=one_pass)
        return expected

    def _bytes_per_draft(self) -> int:
        """Bytes that a pass of the draft or of the built-in head reads; 0 without either, as a lookup reads none."""
        if self.draft:
            return int(self.draft.get("read_bytes") or self.draft["weight_bytes"])
        if self.builtin:
            return read_for_a_draft(self.target, self.builtin)
        return 0

    def _draft_token_costs(self) -> list[float]:
        """The cost of a drafted token on this GPU, in target steps: median, least, most; [] if not measured."""
        capability = self.hardware.get("compute_capability", "")
        by_capability = self.engine.get("draft_step", {}).get("by_capability", {})
        return by_capability.get(capability) or by_capability.get(capability.partition(".")[0]) or []

    def _expect_by_load(
        self, expected: ExpectedSpeed, acceptance: float, length: float, read: int, *, one_pass: bool
    ) -> None:
        """Fill in ``expected`` by the cost model; ``length``: acceptance length, ``read``: bytes per pass of the draft.

        `until` stays None if the peak of the hardware is unknown.
        """
        target = self._target(expected["bandwidth_bytes_s"])
        users = expected["users"]
        k = self.tokens
        drafting = Drafting(0)
        if read:
            step = self.engine.get("draft_step", {})
            drafting = Drafting(
                read=read, seconds=step.get("ms", 0.0) / 1000, share=step.get("share", 0.0), one_pass=one_pass
            )
        gain = target.speedup(drafting, users, k, length)
        expected["speedup"] = gain
        expected["low"] = gain * (1 - REACH)
        expected["high"] = gain * (1 + REACH)
        most = most_tokens(self.draft, self.builtin) or MOST_TOKENS
        expected["best_tokens"] = target.best_tokens(drafting, users, acceptance, most)
        if target.peak:
            expected["until"] = target.pays_until(drafting, k, length)

    def _target(self, bandwidth: float) -> Target:
        """The target for the cost model; ``bandwidth`` in bytes/s.

        The bytes in experts follow from those that one token does not read.
        """
        read = read_for_a_token(self.target)
        whole = self.target["weight_bytes"] - head_weight_bytes(self.target)
        # The active parameters: as large a part of all as the bytes that a token reads.
        parameters = self.target["parameters"] * min(1.0, read / whole)
        peak = self.hardware.get("tflops", 0) * 1e12 * self.devices_in_parallel
        experts = self.target.get("experts")
        if experts is None or read >= whole:
            return Target(rest=read, parameters=parameters, bandwidth=bandwidth, peak=peak)
        # A token leaves the fraction 1 - used/of of the experts' bytes unread.
        in_experts = int((whole - read) / (1 - experts["used"] / experts["of"]))
        return Target(
            rest=whole - in_experts,
            parameters=parameters,
            bandwidth=bandwidth,
            peak=peak,
            experts=in_experts,
            used=experts["used"],
            of=experts["of"],
        )


def _bytes_beside_the_cache(fit: Fit) -> int:
    """The bytes that an arm takes besides its KV cache."""
    return fit["weights"] + fit["draft"] + fit["overhead"]
