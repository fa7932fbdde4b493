"""What an arm costs: energy and money per token, memory, and its share of what the memory's bandwidth allows.

Pure functions over results and the resolved profile. Prices are of the whole box and count the time in which
requests were answered: the figure of a box that is always this busy. An idle hour costs as much and gives nothing.
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

# What is to be known of a row, where it is long.
_ADDS = "what answering requests adds"
_INPUT = "the share of time spent before first tokens"
_BUSY = "if the box is always this busy, over all prompts of the run"
_TEXT = "over all text that was answered, which no server's token count can move"
_READ = "weights, draft and KV cache read, as a share of the data sheet's figure"
_LIMIT = "at full bandwidth and the measured tokens per step"

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
    """What an engine's log says of the memory of its last start: weights_bytes, kv_bytes, kv_tokens.

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
    result: ArmResult, power: Power | None, price_per_hour: float | None = None, currency: str | None = None
) -> TokenCosts:
    """What the tokens and the text of a result cost, in ``currency`` (None: the one of the price).

    ``energy`` has the idle power inside and without it; the reading of the prompts is in both. ``money`` lays the whole
    price on the output tokens (``output_alone``), or shares it by time: requests wait for their first token (TTFT) for
    the input, and the rest of their time for the output. What stands per byte of text no server's count can move.
    ``why`` says why one of them is None.
    """
    why: list[str] = []
    text_bytes = sum(len(content_of(r).encode("utf-8", "replace")) for r in whole_answers(result))
    return {
        "energy": _energy(power, result.get("total_output_tokens") or 0, text_bytes, why),
        "money": _money(result, text_bytes, price_per_hour, currency, why),
        "why": why,
    }


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _energy(power: Power | None, tokens: int, text_bytes: int, why: list[str]) -> Energy | None:
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
        "j_per_output_token_above_idle": _over(power.get("energy_above_idle_j"), tokens),
        "kwh_per_million_output_tokens": joules / tokens * MILLION / JOULES_PER_KWH,
        "j_per_byte_of_text": _over(joules, text_bytes),
    }


def _money(
    result: ArmResult, text_bytes: int, price: float | None, currency: str | None, why: list[str]
) -> Money | None:
    if price is None:
        why.append(
            "money: this box has no price; set drafthouse_price_per_hour, and drafthouse_currency as its "
            "label, in the inventory (group_vars/all.yml, or the host's entry)"
        )
        return None
    duration = result.get("duration")
    tokens_in, tokens_out = result.get("total_input_tokens") or 0, result.get("total_output_tokens") or 0
    if not duration or not tokens_out:
        why.append("money: no tokens were counted")
        return None
    millions = price * duration / 3600 * MILLION
    money: Money = {
        "currency": currency,
        "price_per_hour": price,
        "per_million_output_alone": millions / tokens_out,
        "per_million_bytes_of_text": _over(millions, text_bytes),
        "per_million_input": None,
        "per_million_output": None,
    }
    share = _waiting_share(result)
    if share is not None:
        money["per_million_input"] = _over(millions * share, tokens_in)
        money["per_million_output"] = millions * (1 - share) / tokens_out
    return money


def _waiting_share(result: ArmResult) -> float | None:
    """The part of the requests' time that went by before their first token."""
    waited = whole = 0.0
    for request in whole_answers(result):
        ttft, e2el = request.get("ttft_ms"), request.get("e2el_ms")
        if ttft is not None and e2el:
            waited, whole = waited + ttft, whole + e2el
    return _over(waited, whole)


def devices_of(resolved: ResolvedProfile) -> int:
    """Over how many devices the resolved profile splits the target."""
    one = float(resolved["hardware"]["bandwidth_gb_s"]) * GB
    return max(1, round(float(resolved["expectation"]["bandwidth_bytes_s"]) / one))


def bandwidth_share(result: ArmResult, resolved: ResolvedProfile, arm: str) -> Bandwidth | None:
    """How near an arm's decoding comes to what the memory's bandwidth allows; None where a part is missing.

    The roofline argument (as `memory_fit.decode_limit`): every decode step reads the target's weights once, the KV
    cache of the streams that run, and for each drafted token the draft's weights. steps/s of a stream = (1000 / median
    TPOT in ms) / tokens a step; bytes/s = steps/s x bytes a step; share = bytes/s over the hardware's bandwidth (data
    sheet). A head that drafts all its tokens in one pass reads less than is counted here, a mixture of experts under
    load reads more: a share is an estimate, best for one stream and a dense model.
    """
    expectation = resolved.get("expectation") or {}
    tpot, bandwidth = result.get("median_tpot_ms"), expectation.get("bandwidth_bytes_s")
    target, length, read = expectation.get("bytes_per_token"), 1.0, 0.0
    if arm == "speculative":
        # Without the mean acceptance length nobody knows how many steps the tokens took.
        length = result.get("spec_decode_acceptance_length") or 0.0
        read = drafted_tokens(result, resolved) * expectation.get("draft_cost", 0.0)
    if not tpot or not bandwidth or not target or not length:
        return None
    per_second = 1000 / tpot
    bytes_per_step = target * (1 + read) + _kv_read(result, resolved, arm)
    bytes_s = per_second / length * bytes_per_step
    return {
        "tok_s": per_second,
        "tokens_per_step": length,
        "steps_per_s": per_second / length,
        "bytes_per_step": bytes_per_step,
        "bytes_s": bytes_s,
        "bandwidth_bytes_s": bandwidth,
        "share": bytes_s / bandwidth,
        # What one stream could do at the very most with as many tokens a step, every byte at full speed.
        "limit_tok_s": bandwidth / bytes_per_step * length,
    }


def drafted_tokens(result: ArmResult, resolved: ResolvedProfile) -> float:
    """The tokens drafted a step: counted where the engine tells it, else what the profile asks for."""
    drafted, drafts = result.get("spec_decode_draft_tokens"), result.get("spec_decode_num_drafts")
    if drafted is not None and drafts:
        return float(drafted) / float(drafts)
    return float((resolved.get("method") or {}).get("num_speculative_tokens") or 0)


def _kv_read(result: ArmResult, resolved: ResolvedProfile, arm: str) -> float:
    """The bytes of KV cache that one step of the whole batch reads: streams x mean context x bytes a token."""
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
    """The memory of an arm in bytes.

    ``planned``: weights, draft, kv, overhead (on one device). ``told``: what the engine's own log says
    (`memory_told`), {} where it says nothing. ``gpus``: the most that each GPU showed as used around a group of
    requests; it holds whatever else runs there.
    """
    fit, told = _fit(resolved, arm), dict(result.get("memory") or {})
    planned: dict[str, float | None] = {}
    if fit:
        planned = {"weights": fit.get("weights"), "draft": fit.get("draft"), "kv": fit.get("kv_needed")}
        planned |= {"overhead": fit.get("overhead"), "reserved": fit.get("reserved")}
        if "kv_tokens" in told:
            # Some builds tell the room in tokens alone.
            told.setdefault("kv_bytes", int(told["kv_tokens"] * fit["kv_per_token"]))
    return {"planned": planned, "told": told, "gpus": _gpu_memory(result)}


def _gpu_memory(result: ArmResult) -> list[GpuMemory]:
    machine = result.get("machine")
    if not machine:
        return []
    most: dict[int | None, GpuMemory] = {}
    for around in (machine, *(machine.get("groups") or [])):
        for state in (around.get("before"), around.get("after")):
            for gpu in (state and state.get("gpus")) or []:
                first: GpuMemory = {"name": gpu.get("name"), "used": None, "total": gpu.get("memory_total_bytes")}
                kept, used = most.setdefault(gpu.get("index"), first), gpu.get("memory_used_bytes")
                if used is not None and used >= (kept["used"] or 0):
                    kept["used"] = used
    return list(most.values())


def cost_table(results: Mapping[str, ArmResult], resolved: ResolvedProfile) -> dict[str, ArmCost]:
    """Everything of this module for each arm, JSON-serialisable: the report's `cost`."""
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
    """What speculation saves of the box's price; None where an arm's cost is not known, or the box is free.

    Below 0 it costs more. ``share`` is of the baseline's price, ``per_hour`` of an hour of the baseline's work: the
    same work needs so much less of the box. ``by_text``: the work is bytes of text, where the token counts are in
    doubt, and not tokens.
    """
    if "baseline" not in table or "speculative" not in table:
        return None
    one, two = table["baseline"]["money"], table["speculative"]["money"]
    if not one or not two:
        return None
    before, after = one["per_million_output_alone"], two["per_million_output_alone"]
    if by_text:
        before, after = one["per_million_bytes_of_text"] or 0.0, two["per_million_bytes_of_text"] or 0.0
    if not before or not after:
        return None
    share, hour = 1 - after / before, one["price_per_hour"]
    unit = f" {one['currency']}" if one["currency"] else ""
    word = "less" if share >= 0 else "more"
    what = "bytes of text" if by_text else "output tokens"
    return {
        "share": share,
        "per_hour": share * hour,
        "per_million_output": one["per_million_output_alone"] - two["per_million_output_alone"],
        "said": (
            f"At {number(hour)}{unit} an hour a million {what} cost {number(before)}{unit} without speculation "
            f"and {number(after)}{unit} with it: {percent(abs(share))} {word}, or {number(abs(share) * hour)}{unit} "
            f"{word} per hour of the baseline's work"
        ),
    }


def cost_rows(table: Mapping[str, ArmCost]) -> list[CostRow]:
    """The table as rows to print; rows that nobody fills are left out."""
    currency = "money"
    for entry in table.values():
        money = entry.get("money")
        if money and money["currency"]:
            currency = money["currency"]
            break
    rows: list[CostRow] = []
    for what, unit, place, factor, note in _ROWS:
        values = {arm: _at(entry, place, factor) for arm, entry in table.items()}
        if any(value is not None for value in values.values()):
            one, two = values.get("baseline"), values.get("speculative")
            shown = unit.format(currency=currency)
            rows.append({"what": what, "unit": shown, "baseline": one, "speculative": two, "note": note})
    return rows


def _at(entry: object, place: str, factor: float) -> float | None:
    """What stands at a place of an arm's entry, times a factor; None where there is no number."""
    value = entry
    for key in place.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) * factor if isinstance(value, int | float) and not isinstance(value, bool) else None
