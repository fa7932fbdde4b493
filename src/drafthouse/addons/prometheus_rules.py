"""What is recorded and what is warned of, under the same names for every engine. Pure; the controller's part.

Prometheus reads the engine's own counters (`Engine.series` has their names) and records from them series called
`drafthouse:...`, which the alerts and the dashboard are made of. What an engine does not count is not recorded for it.

Formulas are vLLM's (`vllm/v1/spec_decode/metrics.py`), as in `bench/spec_metrics.py`: rate = accepted / drafted tokens,
mean acceptance length = 1 + accepted / drafts, acceptance at a position = accepted there / drafts. All ratios are
fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engines.base import Series
from ..engines.registry import DIALECTS

if TYPE_CHECKING:
    from ..core.documents import Json

# The jobs that Prometheus scrapes. `health` asks the engine's path for it, through the blackbox exporter.
ENGINE, HEALTH, NODE, GPU, GATEWAY = "engine", "health", "node", "gpu", "gateway"
QUANTILES = (0.5, 0.95, 0.99)
_DAY_S = 86_400


@dataclass(frozen=True)
class Pace:
    """How often is looked, over how long a rate is taken, and how long something holds before it is said: seconds."""

    interval_s: int = 15
    window_s: int = 300
    hold_s: int = 600


@dataclass(frozen=True)
class Limits:
    """From where on something is said. Fractions, unless said otherwise."""

    acceptance: float = 0.15  # the articles say: below 10 to 20 % you are better off without
    restarts: int = 3  # in six times the hold: an hour
    kv_cache: float = 0.95
    memory: float = 0.95
    gpu_memory: float = 0.98  # vLLM takes nine tenths at once, by design
    hot: float = 0.1  # of the time
    power: float = 0.9  # of the time; a GPU at work may well run at its power limit
    certificate_days: int = 7  # Caddy renews when a third of a certificate's life is left


#: By the name of the engine whose counters they are.
SERIES = {name: engine.series for name, engine in DIALECTS.items() if engine.series}


@dataclass(frozen=True)
class Watched:
    """What there is to watch on a box. ``dialect`` is '' where the engine shows no counters.

    ``log`` is where a person reads what the engine printed.
    """

    dialect: str = ""
    node: bool = False
    gpu: bool = False
    gateway: bool = False
    log: str = ""


@dataclass(frozen=True)
class Rule:
    """A recorded series."""

    name: str
    expr: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Alert:
    """Something to be told: what was found, and what to do. ``after_s``: how long it must hold."""

    name: str
    expr: str
    after_s: int
    found: str
    do: str
    severity: str = "warning"


def duration(seconds: float) -> str:
    """Return seconds as Prometheus writes them: 1h, 10m, 90s."""
    whole = max(1, round(seconds))
    for unit, size in (("h", 3600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


# --- what is recorded -------------------------------------------------------------------------------


def recorded(watched: Watched, pace: Pace) -> list[Rule]:
    """Return the recorded series of a box, each after those that it is made of."""
    rules = list(_health(pace))
    if watched.dialect:
        rules += [*_speculation(SERIES[watched.dialect], pace), *_traffic(SERIES[watched.dialect], pace)]
    rules.append(_restarts(SERIES.get(watched.dialect), pace))
    if watched.node:
        rules += _node(pace)
    if watched.gpu:
        rules += _gpu()
    if watched.gateway:
        rules += _gateway()
    rules.append(Rule("drafthouse:alerts_firing:count", 'count(ALERTS{alertstate="firing"}) or vector(0)'))
    return rules


def _of(name: str, where: str = "") -> str:
    return f'{name}{{job="{ENGINE}"{"," + where if where else ""}}}'


def _rate(name: str, pace: Pace, where: str = "", by: str = "profile") -> str:
    return f"sum by ({by}) (rate({_of(name, where)}[{duration(pace.window_s)}]))"


def _health(pace: Pace) -> Iterator[Rule]:
    yield Rule("drafthouse:engine_up:bool", f'max by (profile) (probe_success{{job="{HEALTH}"}})')


def _speculation(names: Series, pace: Pace) -> Iterator[Rule]:
    yield Rule("drafthouse:drafts:rate", _rate(names.drafts, pace, names.drafts_where))
    yield Rule("drafthouse:draft_tokens:rate", _rate(names.draft_tokens, pace))
    # TensorRT-LLM has no line for what never moved: drafted and never accepted is none accepted.
    yield Rule(
        "drafthouse:accepted_tokens:rate", f"{_rate(names.accepted_tokens, pace)} or 0 * drafthouse:draft_tokens:rate"
    )
    # `> 0`: where nothing was drafted there is no acceptance, instead of one of 0 or NaN.
    yield Rule(
        "drafthouse:acceptance_rate:ratio", "drafthouse:accepted_tokens:rate / (drafthouse:draft_tokens:rate > 0)"
    )
    yield Rule(
        "drafthouse:acceptance_length:mean", "1 + drafthouse:accepted_tokens:rate / (drafthouse:drafts:rate > 0)"
    )
    rate = f"rate({_of(names.accepted_at)}[{duration(pace.window_s)}])"
    if names.position != "position":
        rate = f'label_replace({rate}, "position", "$1", "{names.position}", "(.*)")'
    yield Rule(
        "drafthouse:acceptance_at_position:ratio",
        f"sum by (profile, position) ({rate}) / on (profile) group_left () (drafthouse:drafts:rate > 0)",
    )


def _traffic(names: Series, pace: Pace) -> Iterator[Rule]:
    yield Rule("drafthouse:output_tokens:rate", _rate(names.output_tokens, pace))
    yield Rule("drafthouse:input_tokens:rate", _rate(names.input_tokens, pace))
    for name, histogram in (("ttft", names.ttft), ("tpot", names.tpot)):
        for quantile in QUANTILES if histogram else ():
            buckets = _rate(f"{histogram}_bucket", pace, by="profile, le")
            yield Rule(
                f"drafthouse:{name}_seconds:quantile",
                f"histogram_quantile({quantile:g}, {buckets})",
                {"quantile": f"{quantile:g}"},
            )
    for name, histogram in (("ttft", names.ttft), ("tpot", names.tpot), ("queue", names.queue)):
        if histogram:
            mean = f"{_rate(f'{histogram}_sum', pace)} / ({_rate(f'{histogram}_count', pace)} > 0)"
            yield Rule(f"drafthouse:{name}_seconds:mean", mean)
    if names.output_seconds:
        mean = f"{_rate(names.output_seconds, pace)} / ({_rate(names.output_tokens, pace)} > 0)"
        yield Rule("drafthouse:tpot_seconds:mean", mean)
    if names.running:
        yield Rule("drafthouse:requests_running:sum", f"sum by (profile) ({_of(names.running)})")
    if names.waiting:
        yield Rule("drafthouse:requests_waiting:sum", f"sum by (profile) ({_of(names.waiting)})")
    if names.kv_cache:
        yield Rule("drafthouse:kv_cache_used:ratio", f"max by (profile) ({_of(names.kv_cache)})")


def _restarts(names: Series | None, pace: Pace) -> Rule:
    """Return how often the engine began anew: its counters did, or its health went and came.

    A restart between two looks of an engine that had answered nothing yet is not seen.
    """
    long = duration(6 * pace.hold_s)
    seen = [f"resets({_of(names.output_tokens)}[{long}])"] if names else []
    # Of another job: `or` keeps both.
    seen.append(f'floor(changes(probe_success{{job="{HEALTH}"}}[{long}]) / 2)')
    return Rule("drafthouse:engine_restarts:count", f"max by (profile) ({' or '.join(seen)})")


def _node(pace: Pace) -> Iterator[Rule]:
    at, rate = f'{{job="{NODE}"}}', duration(pace.window_s)
    available, total = f"node_memory_MemAvailable_bytes{at}", f"node_memory_MemTotal_bytes{at}"
    yield Rule("drafthouse:memory_used:ratio", f"max(1 - {available} / {total})")
    idle = f'rate(node_cpu_seconds_total{{job="{NODE}",mode="idle"}}[{rate}])'
    yield Rule("drafthouse:cpu_busy:ratio", f"1 - avg({idle})")


def _gpu() -> Iterator[Rule]:
    """Return what DCGM's exporter shows, GPU by GPU. Memory is MiB, power watts; reasons are a mask (`nvml.h`)."""
    at = f'{{job="{GPU}"}}'
    used, free = f"DCGM_FI_DEV_FB_USED{at}", f"DCGM_FI_DEV_FB_FREE{at}"
    yield Rule("drafthouse:gpu_memory_used:ratio", f"max by (gpu) ({used} / ({used} + {free}))")
    yield Rule("drafthouse:gpu_busy:ratio", f"max by (gpu) (DCGM_FI_DEV_GPU_UTIL{at}) / 100")
    yield Rule("drafthouse:gpu_temperature:celsius", f"max by (gpu) (DCGM_FI_DEV_GPU_TEMP{at})")
    yield Rule("drafthouse:gpu_power:watts", f"max by (gpu) (DCGM_FI_DEV_POWER_USAGE{at})")
    # 0x20 and 0x40: software and hardware lower the clocks for the heat. 0x04 and 0x80: for the power.
    yield Rule("drafthouse:gpu_slowed_by_heat:bool", _bits(at, 0x20, 0x40))
    yield Rule("drafthouse:gpu_slowed_by_power:bool", _bits(at, 0x04, 0x80))


def _bits(at: str, *masks: int) -> str:
    """Return 1 where one of the bits is set; PromQL has no operators for bits."""
    bits = " + ".join(f"floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS{at} / {mask}) % 2" for mask in masks)
    return f"max by (gpu) (clamp_max({bits}, 1))"


def _gateway() -> Iterator[Rule]:
    at = f'{{job="{GATEWAY}"}}'
    yield Rule("drafthouse:gateway_up:bool", f"max(probe_success{at})")
    yield Rule("drafthouse:certificate_left:seconds", f"min(probe_ssl_earliest_cert_expiry{at}) - time()")


# --- what is told -----------------------------------------------------------------------------------


def alerts(watched: Watched, pace: Pace, limits: Limits) -> list[Alert]:
    """Return the alerts of a box. What they say to do are commands of the clone."""
    hold = pace.hold_s
    found = [
        Alert(
            "EngineDown",
            "drafthouse:engine_up:bool == 0",
            hold // 5,
            "the engine of {{ $labels.profile }} does not answer",
            f"make doctor says what is wrong; its last words: {watched.log}; make rollback brings the last good one"
            " back (while arms are measured this is no fault)",
            "critical",
        ),
        Alert(
            "EngineRestarts",
            f"drafthouse:engine_restarts:count >= {limits.restarts}",
            0,
            f"the engine of {{{{ $labels.profile }}}} began anew {{{{ $value }}}} times in {duration(6 * hold)}",
            f"read why it ended: {watched.log}; make rollback, or give it less: a shorter context, fewer sequences"
            " (measuring and changing arms begin it anew too)",
        ),
        Alert(
            "TargetUnreadable",
            "up == 0",
            hold // 2,
            "nothing can be read from {{ $labels.job }} at {{ $labels.instance }}",
            "make doctor; for a changed API key or an exporter that ended:"
            " ansible-playbook playbooks/monitoring.yml -i INVENTORY",
        ),
    ]
    if watched.dialect:
        found += _engine_alerts(SERIES[watched.dialect], pace, limits)
    if watched.node:
        found.append(
            Alert(
                "MemoryNearFull",
                f"drafthouse:memory_used:ratio > {limits.memory:g}",
                hold // 5,
                "{{ $value | humanizePercentage }} of the machine's memory is taken",
                "end what else runs there, or serve with a shorter context: the kernel ends the largest process next",
                "critical",
            )
        )
    if watched.gpu:
        found += _gpu_alerts(pace, limits)
    if watched.gateway:
        found += _gateway_alerts(pace, limits)
    return found


def _engine_alerts(names: Series, pace: Pace, limits: Limits) -> Iterator[Alert]:
    yield Alert(
        "AcceptanceLow",
        f"drafthouse:acceptance_rate:ratio < {limits.acceptance:g}",
        pace.hold_s,
        "only {{ $value | humanizePercentage }} of what is drafted for {{ $labels.profile }} is accepted",
        "speculation hardly pays for this traffic: serve without it (ansible-playbook playbooks/report.yml"
        " -i INVENTORY -e profile={{ $labels.profile }} -e serve_arm=baseline), or look for a better draft"
        " (make tune PROFILE={{ $labels.profile }})",
    )
    if names.waiting:
        queue, over = "drafthouse:requests_waiting:sum", duration(pace.hold_s)
        yield Alert(
            "QueueGrowing",
            f"min_over_time({queue}[{over}]) > 0 and deriv({queue}[{over}]) > 0",
            pace.hold_s // 10,
            "{{ $value }} requests or more have been waiting all the time, and they become more",
            "send fewer, or let more in at once (fewer tokens of context each); at this load the baseline may be the"
            " faster arm: make PROFILE with experiment.ladder says from where on",
        )
    elif names.queue:
        yield Alert(
            "QueueGrowing",
            f"drafthouse:queue_seconds:mean > 1 and deriv(drafthouse:queue_seconds:mean[{duration(pace.hold_s)}]) > 0",
            pace.hold_s // 10,
            "a request waits {{ $value | humanizeDuration }} before it is begun, and ever longer",
            "send fewer, or let more in at once (max_batch_size); at this load the baseline may be the faster arm",
        )
    if names.kv_cache:
        yield Alert(
            "KvCacheNearFull",
            f"drafthouse:kv_cache_used:ratio > {limits.kv_cache:g}",
            pace.hold_s,
            "{{ $value | humanizePercentage }} of the KV cache is taken; from here on requests wait or are done again",
            "let fewer requests in at once, shorten the context, or give the cache a smaller type (kv_cache_dtype)",
        )


def _gpu_alerts(pace: Pace, limits: Limits) -> Iterator[Alert]:
    over = duration(pace.hold_s)
    yield Alert(
        "GpuMemoryNearFull",
        f"drafthouse:gpu_memory_used:ratio > {limits.gpu_memory:g}",
        pace.hold_s,
        "{{ $value | humanizePercentage }} of the memory of GPU {{ $labels.gpu }} is taken",
        "nvidia-smi shows by whom; lower gpu_memory_utilization, or end what else computes there",
    )
    yield Alert(
        "GpuSlowedByHeat",
        f"avg_over_time(drafthouse:gpu_slowed_by_heat:bool[{over}]) > {limits.hot:g}",
        0,
        f"GPU {{{{ $labels.gpu }}}} was too hot for {{{{ $value | humanizePercentage }}}} of {over}, and slowed itself",
        "see to its air: fans, dust, the room; until then lower its power (nvidia-smi -pl WATTS). What is measured"
        " meanwhile is too slow",
    )
    yield Alert(
        "GpuSlowedByPower",
        f"avg_over_time(drafthouse:gpu_slowed_by_power:bool[{over}]) > {limits.power:g}",
        0,
        f"GPU {{{{ $labels.gpu }}}} ran at its power limit for {{{{ $value | humanizePercentage }}}} of {over}",
        "no fault where the limit was set on purpose; else raise it (nvidia-smi -pl WATTS) or look at the supply",
        "info",
    )


def _gateway_alerts(pace: Pace, limits: Limits) -> Iterator[Alert]:
    yield Alert(
        "GatewayDown",
        "drafthouse:gateway_up:bool == 0",
        pace.hold_s // 5,
        "the gateway does not answer over TLS",
        "ansible-playbook playbooks/gateway.yml -i INVENTORY starts it again, and says what is in its way",
        "critical",
    )
    yield Alert(
        "CertificateEnds",
        f"drafthouse:certificate_left:seconds < {limits.certificate_days * _DAY_S}",
        0,
        "the gateway's certificate ends in {{ $value | humanizeDuration }}",
        "with drafthouse_gateway_name: see that the authority reaches port 80 or 443, the gateway renews it by itself;"
        " without: remove gateway/tls on the box, then ansible-playbook playbooks/gateway.yml -i INVENTORY makes"
        " another",
    )


# --- the file ---------------------------------------------------------------------------------------


def rules_file(rules: Sequence[Rule], told: Sequence[Alert], pace: Pace) -> dict[str, Json]:
    """Return the rules as Prometheus reads them.

    One group, because only a group is evaluated in order: alerts come after what they ask.
    """
    written = [*(_record(rule) for rule in rules), *(_alert(alert) for alert in told)]
    return {"groups": [{"name": "drafthouse", "interval": duration(pace.interval_s), "rules": written}]}


def _record(rule: Rule) -> Json:
    return {"record": rule.name, "expr": rule.expr, **({"labels": rule.labels} if rule.labels else {})}


def _alert(alert: Alert) -> Json:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": duration(alert.after_s)} if alert.after_s else {}),
        "labels": {"severity": alert.severity},
        "annotations": {"found": alert.found, "do": alert.do},
    }
