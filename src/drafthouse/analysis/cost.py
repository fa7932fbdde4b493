"""What an arm costs: energy and money per token, memory, and its share of what the memory's bandwidth allows.

Pure functions over results and the resolved profile. Prices are of the whole box and count the time in which
requests were answered: the figure of a box that is always this busy. An idle hour costs as much and gives nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..bench.outcome import OK
from ..bench.result_types import ArmResult, Power
from ..core.format import number, percent
from ..profiles.memory_fit import GB
from ..profiles.resolved_types import Fit, ResolvedProfile
from .verdict_types import ArmCost, Bandwidth, CostRow, Energy, GpuMemory, Memory, Money, Saving, TokenCosts

MILLION = 1_000_000
JOULES_PER_KWH = 3_600_000

# What engines say of the memory they take, in their own units.
_GIB, _MIB = 1024**3, 1024**2
_TOLD: tuple[tuple[str, re.Pattern[str], int], ...] = (
    # vLLM: "Model loading took 0.2512 GiB memory and 1.2 seconds"; older: "Model loading took 15.0 GB"
    ("weights_bytes", re.compile(r"[Mm]odel loading took ([\d.]+) Gi?B"), _GIB),
    ("kv_bytes", re.compile(r"Available KV cache memory: ([\d.]+) GiB"), _GIB),
    ("kv_tokens", re.compile(r"KV cache size: ([\d,]+) tokens"), 1),
    # llama.cpp: a line a buffer; target and draft each have theirs
    ("weights_bytes", re.compile(r"model buffer size *= *([\d.]+) MiB"), _MIB),
    ("kv_bytes", re.compile(r"KV buffer size *= *([\d.]+) MiB"), _MIB),
    # TensorRT-LLM: "[MemUsageChange] Allocated 10.50 GiB for max tokens in paged KV cache"
    ("kv_bytes", re.compile(r"Allocated ([\d.]+) GiB for max tokens in paged KV cache"), _GIB),
)

# What an engine prints once a start, when it begins to serve.
_SERVES = re.compile(r"Application startup complete|(?:server is|init:) listening on")


def memory_told(log: str) -> dict[str, int]:
    """Return what an engine's log says of the memory of its last start: weights_bytes, kv_bytes, kv_tokens.

    Bytes of all devices that printed a line, target and draft together; a figure that no line told is left out. A log
    holds earlier starts too: what stands before the last but one "it serves" line is theirs.
    """
    served = [match.end() for match in _SERVES.finditer(log)]
    if len(served) > 1:
        log = log[served[-2] :]
    found: dict[str, int] = {}
    for name, pattern, unit in _TOLD:
        values = [float(text.replace(",", "")) for text in pattern.findall(log)]
        if values:
            # Each engine has lines of one sort; a sum because devices and models print one each.
            found[name] = found.get(name, 0) + int(unit * (max(values) if name == "kv_tokens" else math.fsum(values)))
    return found


def costs(
    result: ArmResult,
    power: Power | None,
    price_per_hour: float | None = None,
    currency: str | None = None,
) -> TokenCosts:
    """Return what the tokens of a result cost.

    ``energy``: joules per output token and kWh per million of them, with the idle power inside and without it; the
    reading of the prompts is in both. None where no energy was read.
    ``money``: per million tokens, in ``currency`` (None: the one of the price). ``output_alone`` lays the whole price
    on the output tokens; ``input`` and ``output`` share it by time: requests wait for their first token (TTFT) for the
    input, and the rest of their time for the output. None without a price.
    ``why`` says what is missing.
    """
    why: list[str] = []
    tokens_in, tokens_out = result.get("total_input_tokens") or 0, result.get("total_output_tokens") or 0
    return {
        "energy": _energy(power, tokens_out, why),
        "money": _money(result, tokens_in, tokens_out, price_per_hour, currency, why),
        "why": why,
    }


def _energy(power: Power | None, tokens: int, why: list[str]) -> Energy | None:
    joules = power.get("energy_j") if power else None
    if not power or joules is None:
        why.append(f"energy: {(power and power.get('why')) or 'no power was read'}")
        return None
    if not tokens:
        why.append("energy: no tokens were counted")
        return None
    whole, above = joules / tokens, power.get("energy_above_idle_j")
    net = above / tokens if above is not None else None
    return {
        "source": power["source"],
        "mean_w": power["mean_w"],
        "idle_w": power["idle_w"],
        "j_per_output_token": whole,
        "j_per_output_token_above_idle": net,
        "kwh_per_million_output_tokens": whole * MILLION / JOULES_PER_KWH,
        "kwh_per_million_output_tokens_above_idle": net * MILLION / JOULES_PER_KWH if net is not None else None,
    }


def _money(
    result: ArmResult,
    tokens_in: int,
    tokens_out: int,
    price: float | None,
    currency: str | None,
    why: list[str],
) -> Money | None:
    if price is None:
        why.append(
            "money: this box has no price; set drafthouse_price_per_hour, and drafthouse_currency as its "
            "label, in the inventory (group_vars/all.yml, or the host's entry)"
        )
        return None
    duration = result.get("duration")
    if not duration or not tokens_out:
        why.append("money: no tokens were counted")
        return None
    whole = price * duration / 3600
    share = _waiting_share(result)
    return {
        "currency": currency,
        "price_per_hour": price,
        "per_million_output_alone": whole / tokens_out * MILLION,
        "per_million_all_tokens": whole / (tokens_in + tokens_out) * MILLION,
        "input_share_of_time": share,
        "per_million_input": whole * share / tokens_in * MILLION if share is not None and tokens_in else None,
        "per_million_output": whole * (1 - share) / tokens_out * MILLION if share is not None else None,
    }


def _waiting_share(result: ArmResult) -> float | None:
    """Return the part of the requests' time that went by before their first token."""
    good = [
        (ttft, e2el)
        for one in result.get("requests") or []
        if one.get("status") == OK and (ttft := one.get("ttft_ms")) is not None and (e2el := one.get("e2el_ms"))
    ]
    whole = math.fsum(e2el for _, e2el in good)
    return math.fsum(ttft for ttft, _ in good) / whole if whole else None


def devices_of(resolved: ResolvedProfile) -> int:
    """Return over how many devices the resolved profile splits the target."""
    one = float(resolved["hardware"]["bandwidth_gb_s"]) * GB
    return max(1, round(float(resolved["expectation"]["bandwidth_bytes_s"]) / one))


def bandwidth_share(result: ArmResult, resolved: ResolvedProfile, arm: str) -> Bandwidth | None:
    """Return how near an arm's decoding comes to what the memory's bandwidth allows; None where a part is missing.

    The roofline argument (as `memory_fit.decode_limit`): every decode step reads the target's weights once, the KV
    cache of the streams that run, and for each drafted token the draft's weights. steps/s of a stream = (1000 / median
    TPOT in ms) / tokens a step; bytes/s = steps/s x bytes a step; share = bytes/s over the hardware's bandwidth (data
    sheet). A head that drafts all its tokens in one pass reads less than is counted here, a mixture of experts under
    load reads more: a share is an estimate, best for one stream and a dense model.
    """
    tpot, expectation = result.get("median_tpot_ms"), resolved.get("expectation") or {}
    bandwidth, target = expectation.get("bandwidth_bytes_s"), expectation.get("bytes_per_token")
    if not tpot or not bandwidth or not target:
        return None
    length = result.get("spec_decode_acceptance_length") if arm == "speculative" else 1.0
    if not length:
        return None  # without it nobody knows how many steps the tokens took
    per_second = 1000 / tpot
    draft = 0.0
    if arm == "speculative":
        draft = drafted_tokens(result, resolved) * expectation.get("draft_cost", 0.0) * target
    kv = _kv_read(result, resolved, arm)
    bytes_per_step = target + draft + kv
    read = per_second / length * bytes_per_step
    return {
        "tok_s": per_second,
        "tokens_per_step": length,
        "steps_per_s": per_second / length,
        "bytes_per_step": bytes_per_step,
        "bytes_s": read,
        "bandwidth_bytes_s": bandwidth,
        "share": read / bandwidth,
        # What one stream could do at the very most with as many tokens a step, every byte at full speed.
        "limit_tok_s": bandwidth / bytes_per_step * length,
    }


def drafted_tokens(result: ArmResult, resolved: ResolvedProfile) -> float:
    """Return the tokens drafted a step: counted where the engine tells it, else what the profile asks for."""
    drafted, drafts = result.get("spec_decode_draft_tokens"), result.get("spec_decode_num_drafts")
    if drafted is not None and drafts:
        return float(drafted) / float(drafts)
    return float((resolved.get("method") or {}).get("num_speculative_tokens") or 0)


def _kv_read(result: ArmResult, resolved: ResolvedProfile, arm: str) -> float:
    """Return the bytes of KV cache that one step of the whole batch reads: streams x mean context x bytes a token."""
    fit = _fit(resolved, arm)
    done = result.get("completed")
    if not fit or not done:
        return 0.0
    # On average half of the answer is there already.
    tokens = float(result.get("total_input_tokens") or 0) + float(result.get("total_output_tokens") or 0) / 2
    streams = min(int(result.get("max_concurrency") or 1), int(done))
    return float(fit["kv_per_token"]) * devices_of(resolved) * tokens / int(done) * streams


def _fit(resolved: ResolvedProfile, arm: str) -> Fit | None:
    built = (resolved.get("arms") or {}).get(arm)
    return built.get("fit") if built else None


def memory_used(resolved: ResolvedProfile, arm: str, result: ArmResult) -> Memory:
    """Return the memory of an arm in bytes: what was planned on one device, what the engine told, what the GPUs showed.

    ``planned``: weights, draft, kv, overhead (on one device). ``told``: what the engine's own log says
    (`memory_told`), {} where it says nothing. ``gpus``: the most that each GPU showed as used around a group of
    requests; it holds whatever else runs there.
    """
    fit = _fit(resolved, arm)
    told = dict(result.get("memory") or {})
    if "kv_tokens" in told and fit:
        # Some builds tell the room in tokens alone.
        told.setdefault("kv_bytes", int(told["kv_tokens"] * fit["kv_per_token"]))
    return {
        "planned": {
            "weights": fit.get("weights"),
            "draft": fit.get("draft"),
            "kv": fit.get("kv_needed"),
            "overhead": fit.get("overhead"),
            "reserved": fit.get("reserved"),
        }
        if fit
        else {},
        "told": told,
        "gpus": _gpu_memory(result),
    }


def _gpu_memory(result: ArmResult) -> list[GpuMemory]:
    machine = result.get("machine")
    if not machine:
        return []
    states = [machine.get("before"), machine.get("after")]
    for group in machine.get("groups") or []:
        states += [group.get("before"), group.get("after")]
    most: dict[int | None, GpuMemory] = {}
    for state in states:
        for gpu in (state.get("gpus") or []) if state else []:
            used = gpu.get("memory_used_bytes")
            kept = most.setdefault(
                gpu.get("index"), {"name": gpu.get("name"), "used": used, "total": gpu.get("memory_total_bytes")}
            )
            if used is not None and used > (kept["used"] or 0):
                kept["used"] = used
    return list(most.values())


def cost_table(results: Mapping[str, ArmResult], resolved: ResolvedProfile) -> dict[str, ArmCost]:
    """Return everything of this module for each arm, JSON-serialisable: the report's `cost`."""
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


# Title, unit, place in an arm's entry, factor, what is to be known of it.
_ROWS: tuple[tuple[str, str, tuple[str, ...], float, str], ...] = (
    ("Start-up to ready", "s", ("ready_s",), 1, "from process start until it answers for the model"),
    ("Mean power", "W", ("power", "mean_w"), 1, "while requests were answered"),
    ("Idle power", "W", ("power", "idle_w"), 1, "engine loaded, no requests"),
    ("Energy", "J per output token", ("energy", "j_per_output_token"), 1, "includes idle power and prefill"),
    (
        "Energy above idle",
        "J per output token",
        ("energy", "j_per_output_token_above_idle"),
        1,
        "what answering requests adds",
    ),
    ("Energy", "kWh per million output tokens", ("energy", "kwh_per_million_output_tokens"), 1, "includes idle power"),
    ("Price of the box", "{currency} an hour", ("money", "price_per_hour"), 1, "as the inventory says"),
    (
        "Price of input",
        "{currency} per million",
        ("money", "per_million_input"),
        1,
        "the share of time spent before first tokens",
    ),
    ("Price of output", "{currency} per million", ("money", "per_million_output"), 1, "the rest of the time"),
    (
        "Whole price charged to output",
        "{currency} per million",
        ("money", "per_million_output_alone"),
        1,
        "if the box is always this busy, over all prompts of the run",
    ),
    (
        "Share of the bandwidth",
        "%",
        ("bandwidth", "share"),
        100,
        "weights, draft and KV cache read, as a share of the data sheet's figure",
    ),
    (
        "Limit of one stream",
        "tok/s",
        ("bandwidth", "limit_tok_s"),
        1,
        "at full bandwidth and the measured tokens per step",
    ),
    ("Weights", "GB", ("memory", "planned", "weights"), 1 / GB, "planned, on one device"),
    ("Draft", "GB", ("memory", "planned", "draft"), 1 / GB, "planned, on one device"),
    ("KV cache", "GB", ("memory", "planned", "kv"), 1 / GB, "planned for full contexts, on one device"),
    ("Weights, from the engine's log", "GB", ("memory", "told", "weights_bytes"), 1 / GB, "target and draft"),
    ("KV cache, from the engine's log", "GB", ("memory", "told", "kv_bytes"), 1 / GB, "what the engine reserved"),
)


def saving_of(table: Mapping[str, ArmCost]) -> Saving | None:
    """Return what speculation saves of the box's price; None where an arm's cost is not known, or the box is free.

    Below 0 it costs more. ``share`` is of the baseline's price per output token, ``per_hour`` of an hour of the
    baseline's work: the same tokens need so much less of the box.
    """
    one, two = (entry["money"] if (entry := table.get(arm)) else None for arm in ("baseline", "speculative"))
    if not one or not two or not one["per_million_output_alone"]:
        return None
    before, after, hour = one["per_million_output_alone"], two["per_million_output_alone"], one["price_per_hour"]
    share = 1 - after / before
    unit = f" {one['currency']}" if one["currency"] else ""
    word = "less" if share >= 0 else "more"
    return {
        "share": share,
        "per_hour": share * hour,
        "per_million_output": before - after,
        "said": (
            f"At {number(hour)}{unit} an hour a million output tokens cost {number(before)}{unit} without speculation "
            f"and {number(after)}{unit} with it: {percent(abs(share))} {word}, or {number(abs(share) * hour)}{unit} "
            f"{word} per hour of the baseline's work"
        ),
    }


def cost_rows(table: Mapping[str, ArmCost]) -> list[CostRow]:
    """Return the table as rows to print: what, unit, a value an arm, note; rows that nobody fills are left out."""
    named = [money["currency"] for entry in table.values() if (money := entry.get("money"))]
    currency = next((name for name in named if name), None)
    rows: list[CostRow] = []
    for what, unit, place, factor, note in _ROWS:
        values = {arm: _at(entry, place) for arm, entry in table.items()}
        if all(value is None for value in values.values()):
            continue
        shown = {arm: value * factor if value is not None else None for arm, value in values.items()}
        rows.append(
            {
                "what": what,
                "unit": unit.format(currency=currency or "money"),
                "baseline": shown.get("baseline"),
                "speculative": shown.get("speculative"),
                "note": note,
            }
        )
    return rows


def _at(entry: object, place: tuple[str, ...]) -> float | None:
    value = entry
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
