"""The cost of an arm: energy and money per token, memory, and how much of the memory bandwidth decoding uses.

Prices are those of the whole machine over the time in which it answered requests, as if it were always this busy; an
idle hour costs the same and answers nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..bench.result_types import ArmResult, Power
from ..bench.samples import whole_answers
from ..bench.usage_check import content_of
from ..core.format import number, percent
from ..profiles.memory_fit import GB
from ..profiles.resolved_types import Fit, ResolvedProfile
from .verdict_types import ArmCost, Bandwidth, CostRow, Energy, GpuMemory, Memory, Money, Saving, TokenCosts

MILLION = 1_000_000
JOULES_PER_KWH = 3_600_000

# Long notes of the rows in `_ROWS`.
_ADDS = "what answering requests adds"
_INPUT = "the share of time spent before first tokens"
_BUSY = "if the box is always this busy, over all prompts of the run"
_TEXT = "over all text that was answered, which no server's token count can move"
_READ = "weights, draft and KV cache read, as a share of the data sheet's figure"
_LIMIT = "at full bandwidth and the measured tokens per step"

# Memory figures in engine logs: the key in `memory_in_log`, the pattern, and the unit of the figure in bytes.
_GIB, _MIB = 1024**3, 1024**2
_LOG_FIGURES: tuple[tuple[str, re.Pattern[str], int], ...] = (
    # vLLM: "Model loading took 0.2512 GiB memory and 1.2 seconds"; older: "Model loading took 15.0 GB"
    ("weights_bytes", re.compile(r"[Mm]odel loading took ([\d.]+) Gi?B"), _GIB),
    ("kv_bytes", re.compile(r"Available KV cache memory: ([\d.]+) GiB"), _GIB),
    ("kv_tokens", re.compile(r"KV cache size: ([\d,]+) tokens"), 1),
    # llama.cpp: one line per buffer, for target and draft each
    ("weights_bytes", re.compile(r"model buffer size *= *([\d.]+) MiB"), _MIB),
    ("kv_bytes", re.compile(r"KV buffer size *= *([\d.]+) MiB"), _MIB),
    # TensorRT-LLM: "[MemUsageChange] Allocated 10.50 GiB for max tokens in paged KV cache"
    ("kv_bytes", re.compile(r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"), _GIB),
)

# The line that an engine prints once per start, when it begins to serve.
_SERVING_LINE = re.compile(r"Application startup complete|(?:server is|init:) listening on")


def memory_in_log(log: str) -> dict[str, int]:
    """The memory figures of the last start in an engine's log: weights_bytes, kv_bytes, kv_tokens.

    They are sums over the devices, target and draft together; figures without a log line are missing. A log
    may hold several starts: everything up to the end of the second last serving line belongs to earlier ones.
    """
    serving_ends = [match.end() for match in _SERVING_LINE.finditer(log)]
    if len(serving_ends) > 1:
        log = log[serving_ends[-2] :]
    memory: dict[str, int] = {}
    for name, pattern, unit in _LOG_FIGURES:
        values = [float(text.replace(",", "")) for text in pattern.findall(log)]
        if values:
            # Devices and models print a line each: bytes add up, of kv_tokens the largest figure counts.
            value = max(values) if name == "kv_tokens" else math.fsum(values)
            memory[name] = memory.get(name, 0) + int(unit * value)
    return memory


def costs(
    result: ArmResult, power: Power | None, price_per_hour: float | None = None, currency: str | None = None
) -> TokenCosts:
    """The cost of a result's tokens and text, in ``currency`` (None: the unnamed currency of the price).

    ``energy`` is given with and without the idle power; both include prefill. ``money`` charges the
    whole price to the output tokens (``output_alone``), or splits it by time: the wait for the
    first token (TTFT) pays for the input, the rest for the output. Figures per byte of text do not
    depend on the server's token counts; the text is that of complete answers only. ``why`` has the reasons for None.
    """
    why: list[str] = []
    text_bytes = sum(len(content_of(r).encode("utf-8", "replace")) for r in whole_answers(result))
    return {
        "energy": _energy(power, result.get("total_output_tokens") or 0, text_bytes, why),
        "money": _money(result, text_bytes, price_per_hour, currency, why),
        "why": why,
    }


def _quotient(numerator: float | None, denominator: float | None) -> float | None:
    """The quotient of two figures; None if one is unknown or the denominator is 0."""
    return numerator / denominator if numerator is not None and denominator else None


def _energy(power: Power | None, tokens: int, text_bytes: int, why: list[str]) -> Energy | None:
    """The energy of an arm over ``tokens`` output tokens; None if it is unknown, with the reason added to ``why``."""
    joules = power.get("energy_j") if power else None
    if not power or joules is None:
        why.append(f"energy: {(power and power.get('why')) or 'no power was read'}")
        return None
    if not tokens:
        why.append("energy: no tokens were counted")
        return None
    return {
        "source": power["source"],
        "mean_w": power["mean_w"],
        "idle_w": power["idle_w"],
        "j_per_output_token": joules / tokens,
        "j_per_output_token_above_idle": _quotient(power.get("energy_above_idle_j"), tokens),
        "kwh_per_million_output_tokens": joules / tokens * MILLION / JOULES_PER_KWH,
        "j_per_byte_of_text": _quotient(joules, text_bytes),
    }


def _money(
    result: ArmResult, text_bytes: int, price_per_hour: float | None, currency: str | None, why: list[str]
) -> Money | None:
    """The prices of an arm's tokens and text; None if they are unknown, with the reason added to ``why``."""
    if price_per_hour is None:
        why.append(
            "money: this box has no price; set drafthouse_price_per_hour, and drafthouse_currency as its "
            "label, in the inventory (group_vars/all.yml, or the host's entry)"
        )
        return None
    duration = result.get("duration")
    tokens_in = result.get("total_input_tokens") or 0
    tokens_out = result.get("total_output_tokens") or 0
    if not duration or not tokens_out:
        why.append("money: no tokens were counted")
        return None
    # The price of the run times one million: divided by its n tokens, this is the price per million tokens.
    millionfold_price = price_per_hour * duration / 3600 * MILLION
    money: Money = {
        "currency": currency,
        "price_per_hour": price_per_hour,
        "per_million_output_alone": millionfold_price / tokens_out,
        "per_million_bytes_of_text": _quotient(millionfold_price, text_bytes),
        "per_million_input": None,
        "per_million_output": None,
    }
    share = _waiting_share(result)
    if share is not None:
        money["per_million_input"] = _quotient(millionfold_price * share, tokens_in)
        money["per_million_output"] = millionfold_price * (1 - share) / tokens_out
    return money


def _waiting_share(result: ArmResult) -> float | None:
    """The fraction of the requests' time before their first token; None without times."""
    waited_ms = total_ms = 0.0
    for request in whole_answers(result):
        ttft_ms = request.get("ttft_ms")
        e2el_ms = request.get("e2el_ms")
        if ttft_ms is not None and e2el_ms:
            waited_ms += ttft_ms
            total_ms += e2el_ms
    return _quotient(waited_ms, total_ms)


def devices_of(resolved: ResolvedProfile) -> int:
    """The number of devices over which the resolved profile splits the target model."""
    device_bandwidth = float(resolved["hardware"]["bandwidth_gb_s"]) * GB
    return max(1, round(float(resolved["expectation"]["bandwidth_bytes_s"]) / device_bandwidth))


def bandwidth_share(result: ArmResult, resolved: ResolvedProfile, arm: str) -> Bandwidth | None:
    """How much of the memory bandwidth an arm's decoding uses; None if a figure is missing.

    The roofline argument (as in `memory_fit.decode_limit`): each decode step reads the target's weights once,
    the KV cache of the running streams, and the draft's weights once per draft token. steps/s of a stream =
    (1000 / median TPOT in ms) / tokens per step; bytes/s = steps/s x bytes per step; share = bytes/s over the
    data sheet's bandwidth. The share is an estimate, best for one stream and a dense model: a head that drafts
    all tokens in one pass reads less than counted here, and a mixture of experts under load reads more.
    """
    expectation = resolved.get("expectation") or {}
    tpot = result.get("median_tpot_ms")
    bandwidth = expectation.get("bandwidth_bytes_s")
    target_bytes = expectation.get("bytes_per_token")  # the target's weights that a decode step reads
    # The baseline: one token per step, and no draft is read.
    tokens_per_step = 1.0
    draft_reads = 0.0  # bytes of the draft that a step reads, over those of the target
    if arm == "speculative":
        # Without the mean acceptance length the number of steps is unknown.
        tokens_per_step = result.get("spec_decode_acceptance_length") or 0.0
        draft_reads = drafted_tokens(result, resolved) * expectation.get("draft_cost", 0.0)
    if not tpot or not bandwidth or not target_bytes or not tokens_per_step:
        return None
    tokens_per_s = 1000 / tpot
    bytes_per_step = target_bytes * (1 + draft_reads) + _kv_bytes_read(result, resolved, arm)
    bytes_s = tokens_per_s / tokens_per_step * bytes_per_step
    return {
        "tok_s": tokens_per_s,
        "tokens_per_step": tokens_per_step,
        "steps_per_s": tokens_per_s / tokens_per_step,
        "bytes_per_step": bytes_per_step,
        "bytes_s": bytes_s,
        "bandwidth_bytes_s": bandwidth,
        "share": bytes_s / bandwidth,
        # The most that one stream could reach with these tokens per step, reading at full bandwidth.
        "limit_tok_s": bandwidth / bytes_per_step * tokens_per_step,
    }


def drafted_tokens(result: ArmResult, resolved: ResolvedProfile) -> float:
    """Draft tokens per step: counted by the engine, else as configured by the profile (K)."""
    drafted = result.get("spec_decode_draft_tokens")
    drafts = result.get("spec_decode_num_drafts")
    if drafted is not None and drafts:
        return float(drafted) / float(drafts)
    return float((resolved.get("method") or {}).get("num_speculative_tokens") or 0)


def _kv_bytes_read(result: ArmResult, resolved: ResolvedProfile, arm: str) -> float:
    """KV cache bytes that a batch step reads: streams x mean context (input, half the answer) x bytes per token.

    0 if the profile's memory was not fitted, or if no request was completed.
    """
    fit = _fit(resolved, arm)
    completed = result.get("completed")
    if not fit or not completed:
        return 0.0
    context_tokens = float(result.get("total_input_tokens") or 0) + float(result.get("total_output_tokens") or 0) / 2
    streams = min(int(result.get("max_concurrency") or 1), int(completed))
    return float(fit["kv_per_token"]) * devices_of(resolved) * context_tokens / int(completed) * streams


def _fit(resolved: ResolvedProfile, arm: str) -> Fit | None:
    """The planned memory of an arm; None without one."""
    resolved_arm = (resolved.get("arms") or {}).get(arm)
    return resolved_arm.get("fit") if resolved_arm else None


def memory_used(resolved: ResolvedProfile, arm: str, result: ArmResult) -> Memory:
    """The memory of an arm in bytes.

    ``planned``: weights, draft, kv, overhead, reserved (on one device), {} without a plan. ``told``: the
    figures of the engine's log (`memory_in_log`), {} without any. ``gpus``: the peak use of each GPU in
    the readings around groups of requests, including other programs.
    """
    fit = _fit(resolved, arm)
    log_figures = dict(result.get("memory") or {})
    planned: dict[str, float | None] = {}
    if fit:
        planned = {"weights": fit.get("weights"), "draft": fit.get("draft"), "kv": fit.get("kv_needed")}
        planned |= {"overhead": fit.get("overhead"), "reserved": fit.get("reserved")}
        if "kv_tokens" in log_figures:
            # Some builds log the KV cache size in tokens only.
            log_figures.setdefault("kv_bytes", int(log_figures["kv_tokens"] * fit["kv_per_token"]))
    return {"planned": planned, "told": log_figures, "gpus": _gpu_memory(result)}


def _gpu_memory(result: ArmResult) -> list[GpuMemory]:
    """The peak memory of each GPU, over the readings around the arm and around its groups of requests."""
    machine = result.get("machine")
    if not machine:
        return []
    peaks: dict[int | None, GpuMemory] = {}
    for snapshots in (machine, *(machine.get("groups") or [])):
        for state in (snapshots.get("before"), snapshots.get("after")):
            for gpu in (state and state.get("gpus")) or []:
                unread: GpuMemory = {"name": gpu.get("name"), "used": None, "total": gpu.get("memory_total_bytes")}
                peak = peaks.setdefault(gpu.get("index"), unread)
                used_bytes = gpu.get("memory_used_bytes")
                if used_bytes is not None and used_bytes >= (peak["used"] or 0):  # None: no reading yet
                    peak["used"] = used_bytes
    return list(peaks.values())


def cost_table(results: Mapping[str, ArmResult], resolved: ResolvedProfile) -> dict[str, ArmCost]:
    """The cost of each arm, JSON-serialisable: the report's `cost`."""
    site = resolved.get("site") or {}
    table: dict[str, ArmCost] = {}
    for arm, result in results.items():
        power = result.get("power")
        engine = result.get("engine") or {}
        table[arm] = {
            **costs(result, power, site.get("price_per_hour"), site.get("currency")),
            "power": power,
            "bandwidth": bandwidth_share(result, resolved, arm),
            "memory": memory_used(resolved, arm, result),
            "ready_s": engine.get("ready_s"),
            "ready_at_most": bool(engine.get("ready_at_most")),
        }
    return table


# Title, unit, dotted key in an arm's entry, factor from the entry's unit to the row's, note.
_ROWS: tuple[tuple[str, str, str, float, str], ...] = (
    ("Start-up to ready", "s", "ready_s", 1, "from process start until it answers for the model"),
    ("Mean power", "W", "power.mean_w", 1, "while requests were answered"),
    ("Idle power", "W", "power.idle_w", 1, "engine loaded, no requests"),
    ("Energy", "J per output token", "energy.j_per_output_token", 1, "includes idle power and prefill"),
    ("Energy above idle", "J per output token", "energy.j_per_output_token_above_idle", 1, _ADDS),
    ("Energy", "kWh per million output tokens", "energy.kwh_per_million_output_tokens", 1, "includes idle power"),
    ("Energy", "J per 1,000 bytes of text", "energy.j_per_byte_of_text", 1000, _TEXT),
    ("Price of the box", "{currency} an hour", "money.price_per_hour", 1, "as the inventory says"),
    ("Price of input", "{currency} per million", "money.per_million_input", 1, _INPUT),
    ("Price of output", "{currency} per million", "money.per_million_output", 1, "the rest of the time"),
    ("Whole price charged to output", "{currency} per million", "money.per_million_output_alone", 1, _BUSY),
    ("Whole price charged to text", "{currency} per million bytes", "money.per_million_bytes_of_text", 1, _TEXT),
    ("Share of the bandwidth", "%", "bandwidth.share", 100, _READ),
    ("Limit of one stream", "tok/s", "bandwidth.limit_tok_s", 1, _LIMIT),
    ("Weights", "GB", "memory.planned.weights", 1 / GB, "planned, on one device"),
    ("Draft", "GB", "memory.planned.draft", 1 / GB, "planned, on one device"),
    ("KV cache", "GB", "memory.planned.kv", 1 / GB, "planned for full contexts, on one device"),
    ("Weights, from the engine's log", "GB", "memory.told.weights_bytes", 1 / GB, "target and draft"),
    ("KV cache, from the engine's log", "GB", "memory.told.kv_bytes", 1 / GB, "what the engine reserved"),
)


def saving_of(table: Mapping[str, ArmCost], *, by_text: bool = False) -> Saving | None:
    """What speculation saves of the price of the machine; None if an arm's cost is unknown or the machine is free.

    A negative saving is an extra cost. ``share`` is a fraction of the baseline's price. ``per_hour`` is that share of
    the price of one hour in which the baseline works: the speculative arm does the same work in less time.
    ``by_text``: ``share``, ``per_hour`` and the sentence count work in bytes of text instead of tokens, for results
    whose token counts are in doubt.
    """
    if "baseline" not in table or "speculative" not in table:
        return None
    base, spec = table["baseline"]["money"], table["speculative"]["money"]
    if not base or not spec:
        return None
    price_a, price_b = base["per_million_output_alone"], spec["per_million_output_alone"]
    if by_text:
        price_a, price_b = base["per_million_bytes_of_text"] or 0.0, spec["per_million_bytes_of_text"] or 0.0
    if not price_a or not price_b:
        return None
    share = 1 - price_b / price_a
    price_per_hour = base["price_per_hour"]
    unit = f" {base['currency']}" if base["currency"] else ""
    word = "less" if share >= 0 else "more"
    work = "bytes of text" if by_text else "output tokens"
    return {
        "share": share,
        "per_hour": share * price_per_hour,
        "per_million_output": base["per_million_output_alone"] - spec["per_million_output_alone"],
        "said": (
            f"At {number(price_per_hour)}{unit} an hour a million {work} cost {number(price_a)}{unit} without "
            f"speculation and {number(price_b)}{unit} with it: {percent(abs(share))} {word}, or "
            f"{number(abs(share) * price_per_hour)}{unit} {word} per hour of the baseline's work"
        ),
    }


def cost_rows(table: Mapping[str, ArmCost]) -> list[CostRow]:
    """The table as rows to print, without rows that have no figure in either arm."""
    currency = "money"  # in the place of a currency that the inventory does not name
    for entry in table.values():
        money = entry.get("money")
        if money and money["currency"]:
            currency = money["currency"]
            break
    rows: list[CostRow] = []
    for what, unit, place, factor, note in _ROWS:
        values = {arm: _figure_at(entry, place, factor) for arm, entry in table.items()}
        if any(value is not None for value in values.values()):
            base, spec = values.get("baseline"), values.get("speculative")
            label = unit.format(currency=currency)
            rows.append({"what": what, "unit": label, "baseline": base, "speculative": spec, "note": note})
    return rows


def _figure_at(entry: object, place: str, factor: float) -> float | None:
    """The number at a dotted key of an arm's entry, times a factor; None if there is no number."""
    value = entry
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) * factor if isinstance(value, int | float) and not isinstance(value, bool) else None
