"""The rules, by Prometheus's own promtool: what is recorded for each engine, and when each alert fires and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.prometheus_rules import SERIES, Limits, Pace, Watched, duration_text, recorded_series
from drafthouse.bench.spec_metrics import parse_counters
from drafthouse.engines.base import Series as Names
from tests.support.prometheus import alerts_of, checked, rules_of, rules_text, write

pytestmark = pytest.mark.processes

EVERYTHING = {name: Watched(name, node=True, gpu=True, gateway=True, log="the log") for name in SERIES}
E = 'job="engine",instance="e",profile="p"'
ALWAYS = 'probe_success{job="health",instance="b",profile="p"}'
Series = tuple[str, str]
Alert = Mapping[str, Any]


def judged(folder: Path, watched: Watched, *tests: Mapping[str, Any]) -> None:
    """Have promtool run tests against the rules of a box."""
    (folder / "rules.yml").write_text(rules_text(watched))
    checked("check", "rules", "rules.yml", folder=folder)
    data = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": list(tests)}
    write(folder / "test.yml", data)
    checked("test", "rules", "test.yml", folder=folder)


def scene(series: Sequence[Series], **tests: Any) -> dict[str, Any]:
    return {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series],
        **{f"{name}_test": value for name, value in tests.items()},
    }


def near(name: str, value: float, at: str = "10m", **labels: str) -> dict[str, Any]:
    """Expect a number, but for its last digits."""
    shown = ",".join(f'{key}="{word}"' for key, word in labels.items())
    expr = f"abs({name}{{{shown}}} - {value}) < bool 1e-9"
    return {"expr": expr, "eval_time": at, "exp_samples": [{"labels": f"{{{shown}}}", "value": 1}]}


def nothing(name: str, at: str = "10m") -> dict[str, Any]:
    return {"expr": name, "eval_time": at}


# --- what is recorded -------------------------------------------------------------------------------


def drafting(names: Names, each: Sequence[int] = (12, 9, 6, 3), start: int = 0) -> list[Series]:
    """One draft of four tokens a second for half an hour; ``each``: accepted at each position in 15 s."""
    accepted = [
        (f'{names.accepted_at}{{{E},{names.position}="{at}"}}', f"{start}+{count}x120") for at, count in enumerate(each)
    ]
    if names.drafts_where:
        drafted = [(f'{names.draft_tokens}{{{E},{names.position}="{at}"}}', f"{start}+15x120") for at in range(4)]
        return drafted + accepted
    if names.not_accepted:  # of 10 tokens a second 7 are of the prefill and one is of each draft; see `traffic`
        requests, drafts = names.not_accepted.split()
        return [(f"{drafts}{{{E}}}", f"{start}+15x120"), (f"{requests}{{{E}}}", f"{start}+105x120")]
    return [
        (f"{names.drafts}{{{E}}}", f"{start}+15x120"),
        (f"{names.draft_tokens}{{{E}}}", f"{start}+60x120"),
        (f"{names.accepted_tokens}{{{E}}}", f"{start}+{sum(each)}x120"),
        *accepted,
    ]


def traffic(names: Names) -> list[Series]:
    """10 tokens a second out, 20 in, 2 requests running, 3 waiting, half the cache taken, times of known quantiles."""
    found = [(f"{names.output_tokens}{{{E}}}", "0+150x120"), (f"{names.input_tokens}{{{E}}}", "0+300x120")]
    for name, values in ((names.running, "2+0x120"), (names.waiting, "3+0x120"), (names.kv_cache, "0.5+0x120")):
        found += [(f"{name}{{{E}}}", values)] if name else []
    found += [(f"{names.output_seconds}{{{E}}}", "0+3x120")] if names.output_seconds else []
    for name in filter(None, (names.ttft, names.tpot, names.queue)):
        buckets = (("0.1", 5), ("0.5", 10), ("+Inf", 10))
        found += [(f'{name}_bucket{{{E},le="{le}"}}', f"0+{count}x120") for le, count in buckets]
        found += [(f"{name}_sum{{{E}}}", "0+2x120"), (f"{name}_count{{{E}}}", "0+10x120")]
    return found


@pytest.mark.parametrize("dialect", SERIES)
def test_the_same_names_hold_the_same_numbers_for_every_engine(dialect: str, tmp_path: Path) -> None:
    names = SERIES[dialect]
    wanted = [
        near("drafthouse:engine_up:bool", 1, profile="p"),
        near("drafthouse:drafts:rate", 1, profile="p"),
        near("drafthouse:accepted_tokens:rate", 2, profile="p"),
        near("drafthouse:acceptance_length:mean", 3, profile="p"),
        *(
            near("drafthouse:acceptance_at_position:ratio", rate, profile="p", position=str(at))
            for at, rate in enumerate((0.8, 0.6, 0.4, 0.2))
            if names.accepted_at
        ),
        near("drafthouse:output_tokens:rate", 10, profile="p"),
        near("drafthouse:input_tokens:rate", 20, profile="p"),
        near("drafthouse:engine_restarts:count", 0, profile="p"),
        near("drafthouse:alerts_firing:count", 0),
    ]
    if names.draft_tokens:
        wanted.append(near("drafthouse:draft_tokens:rate", 4, profile="p"))
        wanted.append(near("drafthouse:acceptance_rate:ratio", 0.5, profile="p"))
    for name, histogram in (("ttft", names.ttft), ("tpot", names.tpot)):
        expected = ((0.5, 0.1), (0.95, 0.46), (0.99, 0.492)) if histogram else ()
        wanted += [
            near(f"drafthouse:{name}_seconds:quantile", value, profile="p", quantile=f"{q:g}") for q, value in expected
        ]
    wanted += [near("drafthouse:ttft_seconds:mean", 0.2, profile="p")] if names.ttft else []
    if names.tpot or names.output_seconds:
        wanted.append(near("drafthouse:tpot_seconds:mean", 0.02 if names.output_seconds else 0.2, profile="p"))
    wanted += [near("drafthouse:queue_seconds:mean", 0.2, profile="p")] if names.queue else []
    wanted += [near("drafthouse:requests_running:sum", 2, profile="p")] if names.running else []
    wanted += [near("drafthouse:requests_waiting:sum", 3, profile="p")] if names.waiting else []
    wanted += [near("drafthouse:kv_cache_used:ratio", 0.5, profile="p")] if names.kv_cache else []
    series = [(ALWAYS, "1+0x120"), *drafting(names), *traffic(names)]
    watched = Watched(dialect, log="the log")
    judged(tmp_path, watched, scene(series, promql_expr=wanted))
    # No rule without a number of its own here.
    assert set(recorded_series(rules_text(watched))) == {test["expr"].split("{")[0][4:] for test in wanted}


@pytest.mark.parametrize("dialect", SERIES)
def test_without_drafts_there_is_no_acceptance_instead_of_one_of_0(dialect: str, tmp_path: Path) -> None:
    names = SERIES[dialect]
    series = [(name, values.replace("15x", "0x").replace("60x", "0x")) for name, values in drafting(names, [0] * 4, 7)]
    wanted = [nothing("drafthouse:acceptance_rate:ratio"), nothing("drafthouse:acceptance_length:mean")]
    judged(tmp_path, Watched(dialect), scene(series, promql_expr=wanted))


def test_drafts_of_which_none_was_ever_accepted_have_a_rate_of_0(tmp_path: Path) -> None:
    """TensorRT-LLM has no line of accepted tokens then."""
    series = drafting(SERIES["trtllm"], each=())
    wanted = [
        near("drafthouse:acceptance_rate:ratio", 0, profile="p"),
        near("drafthouse:acceptance_length:mean", 1, profile="p"),
    ]
    judged(tmp_path, Watched("trtllm"), scene(series, promql_expr=wanted))


def test_several_engines_of_one_server_are_one(tmp_path: Path) -> None:
    """vLLM with data parallelism has a line for each of its engines."""
    both = [(name.replace("}", f',engine="{at}"}}'), values) for at in "01" for name, values in traffic(SERIES["vllm"])]
    wanted = [
        near("drafthouse:output_tokens:rate", 20, profile="p"),
        near("drafthouse:requests_running:sum", 4, profile="p"),
        near("drafthouse:kv_cache_used:ratio", 0.5, profile="p"),
        near("drafthouse:ttft_seconds:quantile", 0.46, profile="p", quantile="0.95"),
    ]
    judged(tmp_path, Watched("vllm"), scene(both, promql_expr=wanted))


def test_the_machine(tmp_path: Path) -> None:
    node, gpu, gateway = 'job="node",instance="n"', 'job="gpu",instance="d"', 'job="gateway",instance="b"'
    series = [
        (f"node_memory_MemTotal_bytes{{{node}}}", "1000+0x120"),
        (f"node_memory_MemAvailable_bytes{{{node}}}", "250+0x120"),
        *(
            (f'node_cpu_seconds_total{{{node},mode="idle",cpu="{at}"}}', f"0+{idle}x120")
            for at, idle in ((0, 12), (1, 3))
        ),
        *((f'node_cpu_seconds_total{{{node},mode="user",cpu="{at}"}}', "0+9x120") for at in (0, 1)),
        *((f'DCGM_FI_DEV_FB_USED{{{gpu},gpu="{at}"}}', f"{used}+0x120") for at, used in ((0, 90), (1, 10))),
        *((f'DCGM_FI_DEV_FB_FREE{{{gpu},gpu="{at}"}}', f"{free}+0x120") for at, free in ((0, 10), (1, 90))),
        (f'DCGM_FI_DEV_GPU_UTIL{{{gpu},gpu="0"}}', "75+0x120"),
        (f'DCGM_FI_DEV_GPU_TEMP{{{gpu},gpu="0"}}', "66+0x120"),
        (f'DCGM_FI_DEV_POWER_USAGE{{{gpu},gpu="0"}}', "321+0x120"),
        # Idle; software heat and power; hardware heat; the power brake; the application's clocks.
        *(
            (f'DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{gpu},gpu="{at}"}}', f"{mask}+0x120")
            for at, mask in enumerate((0x1, 0x24, 0x40, 0x80, 0x2))
        ),
        (f"probe_success{{{gateway}}}", "1+0x120"),
        (f"probe_ssl_earliest_cert_expiry{{{gateway}}}", "10600+0x120"),
    ]
    wanted = [
        near("drafthouse:memory_used:ratio", 0.75),
        near("drafthouse:cpu_busy:ratio", 0.5),
        near("drafthouse:gpu_memory_used:ratio", 0.9, gpu="0"),
        near("drafthouse:gpu_memory_used:ratio", 0.1, gpu="1"),
        near("drafthouse:gpu_busy:ratio", 0.75, gpu="0"),
        near("drafthouse:gpu_temperature:celsius", 66, gpu="0"),
        near("drafthouse:gpu_power:watts", 321, gpu="0"),
        *(near("drafthouse:gpu_slowed_by_heat:bool", v, gpu=str(at)) for at, v in enumerate((0, 1, 1, 0, 0))),
        *(near("drafthouse:gpu_slowed_by_power:bool", v, gpu=str(at)) for at, v in enumerate((0, 1, 0, 1, 0))),
        near("drafthouse:gateway_up:bool", 1),
        near("drafthouse:certificate_left:seconds", 10_000),
    ]
    judged(tmp_path, Watched(node=True, gpu=True, gateway=True), scene(series, promql_expr=wanted))


def test_restarts_are_seen_by_the_counters_and_by_the_health(tmp_path: Path) -> None:
    name = f"{SERIES['llamacpp'].output_tokens}{{{E}}}"
    restarts = "drafthouse:engine_restarts:count"
    one, two = ([near(restarts, count, "15m", profile="p")] for count in (1, 2))
    by_counter = scene([(ALWAYS, "1+0x60"), (name, "0+9x20 0+9x20 0+9x20")], promql_expr=two)
    by_health = scene([(ALWAYS, "1 1 0 0 1 1 0 1 1 1+0x60"), (name, "0+0x60")], promql_expr=two)
    both = scene([(ALWAYS, "1+0x20 0 1+0x40"), (name, "0+9x20 _ 0+9x40")], promql_expr=one)
    judged(tmp_path, Watched("llamacpp"), by_counter, by_health, both)
    # An engine without counters has its health.
    judged(tmp_path, Watched(), by_health)


@pytest.mark.parametrize("dialect", SERIES)
def test_the_names_are_those_that_counters_reads(dialect: str) -> None:
    """The watchdog, the benchmark and Prometheus look at the same lines."""
    names = SERIES[dialect]
    lines = []
    output = traffic(names)[:1] if names.not_accepted else []
    for series, values in [*drafting(names), *output]:
        lines.append(f"{series} {values.partition('+')[2].partition('x')[0]}")
    snapshot = parse_counters("\n".join(lines))
    counted = {key: snapshot[key] for key in ("num_drafts", "draft_tokens", "accepted_tokens", "per_position")}
    assert counted == {
        "num_drafts": 15,
        "draft_tokens": 60 if names.draft_tokens else None,
        "accepted_tokens": 30,
        "per_position": [12, 9, 6, 3] if names.accepted_at else [],
    }


# --- what is told -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """What makes an alert fire, when it does not yet, does, and does no more; and how its text ends up."""

    series: Sequence[Series]
    before: str
    fires: str
    after: str
    labels: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)


G, D, W = 'job="gateway",instance="b"', 'job="gpu",instance="d",gpu="0"', 'job="node",instance="n"'
V = SERIES["vllm"]
TAKEN = {"$value | humanizePercentage": "97%"}
CAUSES = {
    "EngineDown": Cause(
        [(ALWAYS, "1+0x40 0+0x40 1+0x40")], "12m", "15m", "25m", {"severity": "critical", "profile": "p"}
    ),
    "EngineRestarts": Cause(
        [(f"{V.output_tokens}{{{E}}}", "0+150x20 0+150x20 0+150x20 0+150x220")],
        "10m", "20m", "66m", {"severity": "warning", "profile": "p"}, {"$value": "3"},
    ),
    "TargetUnreadable": Cause(
        [(f"up{{{W}}}", "1+0x40 0+0x60 1+0x40")], "14m", "20m", "30m",
        {"severity": "warning", "job": "node", "instance": "n"},
    ),
    "AcceptanceLow": Cause(
        # From a half to a twentieth, and back.
        [
            (f"{V.drafts}{{{E}}}", "0+15x240"), (f"{V.draft_tokens}{{{E}}}", "0+60x240"),
            (f"{V.accepted_tokens}{{{E}}}", "0+30x40 1200+3x80 1440+30x100"),
        ],
        "20m", "29m", "45m", {"severity": "warning", "profile": "p"}, {"$value | humanizePercentage": "5%"},
    ),
    "QueueGrowing": Cause(
        [(f"{V.waiting}{{{E}}}", "0+0x20 5+0x20 5+1x40 0+0x60")], "14m", "19m", "30m",
        {"severity": "warning", "profile": "p"}, {"$value": "5"},
    ),
    "KvCacheNearFull": Cause(
        [(f"{V.kv_cache}{{{E}}}", "0.5+0x40 0.97+0x80 0.5+0x40")], "20m", "25m", "35m",
        {"severity": "warning", "profile": "p"}, TAKEN,
    ),
    "MemoryNearFull": Cause(
        [
            (f"node_memory_MemTotal_bytes{{{W}}}", "100+0x160"),
            (f"node_memory_MemAvailable_bytes{{{W}}}", "50+0x40 3+0x40 50+0x60"),
        ],
        "12m", "15m", "25m", {"severity": "critical"}, TAKEN,
    ),
    "GpuMemoryNearFull": Cause(
        [
            (f"DCGM_FI_DEV_FB_USED{{{D}}}", "50+0x40 99+0x80 50+0x40"),
            (f"DCGM_FI_DEV_FB_FREE{{{D}}}", "50+0x40 1+0x80 50+0x40"),
        ],
        "20m", "25m", "35m", {"severity": "warning", "gpu": "0"}, {"$value | humanizePercentage": "99%"},
    ),
    "GpuSlowedByHeat": Cause(
        [(f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{D}}}", "0+0x40 64+0x40 1+0x80")], "10m", "20m15s", "35m",
        {"severity": "warning", "gpu": "0"}, {"$value | humanizePercentage": "100%"},
    ),
    "GpuSlowedByPower": Cause(
        [(f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{D}}}", "0+0x40 4+0x40 0+0x80")], "15m", "20m15s", "35m",
        {"severity": "info", "gpu": "0"}, {"$value | humanizePercentage": "100%"},
    ),
    "GatewayDown": Cause(
        [(f"probe_success{{{G}}}", "1+0x40 0+0x40 1+0x40")], "12m", "15m", "25m", {"severity": "critical"}
    ),
    "CertificateEnds": Cause(
        # promtool's clock begins at 0: 604000 s less 15 minutes, where 604800 are a week.
        [(f"probe_ssl_earliest_cert_expiry{{{G}}}", "700000+0x40 604000+0x40 9000000+0x40")], "5m", "15m", "25m",
        {"severity": "warning"}, {"$value | humanizeDuration": "6d 23h 31m 40s"},
    ),
}  # fmt: skip


def told(alert: Alert, cause: Cause) -> dict[str, str]:
    """The annotations as they are shown."""
    words = {**{f"$labels.{name}": word for name, word in cause.labels.items()}, **cause.words}
    shown = dict(alert["annotations"])
    for name, word in words.items():
        shown = {key: text.replace("{{ " + name + " }}", word) for key, text in shown.items()}
    return shown


def expected(alert: Alert, cause: Cause) -> list[dict[str, Any]]:
    return [
        {"eval_time": cause.before, "alertname": alert["alert"], "exp_alerts": []},
        {
            "eval_time": cause.fires,
            "alertname": alert["alert"],
            "exp_alerts": [{"exp_labels": dict(cause.labels), "exp_annotations": told(alert, cause)}],
        },
        {"eval_time": cause.after, "alertname": alert["alert"], "exp_alerts": []},
    ]


def alert_of(name: str, dialect: str = "vllm") -> Alert:
    return next(alert for alert in alerts_of(EVERYTHING[dialect]) if alert["alert"] == name)


def test_every_alert_has_a_cause_here() -> None:
    for watched in EVERYTHING.values():
        assert {alert["alert"] for alert in alerts_of(watched)} <= set(CAUSES)
    assert {alert["alert"] for alert in alerts_of(EVERYTHING["vllm"])} == set(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_an_alert_fires_and_ends(name: str, tmp_path: Path) -> None:
    alert, cause = alert_of(name), CAUSES[name]
    judged(tmp_path, EVERYTHING["vllm"], scene(cause.series, alert_rule=expected(alert, cause)))


def test_tensorrt_llm_tells_of_its_queue_by_the_time_in_it(tmp_path: Path) -> None:
    queue = SERIES["trtllm"].queue
    # A request waits one second, then four, then ten; then a tenth of one.
    cause = Cause(
        [
            (f"{queue}_count{{{E}}}", "0+10x220"),
            (f"{queue}_sum{{{E}}}", "0+10x40 400+40x40 2000+100x60 8000+1x80"),
        ],
        "8m", "30m", "50m", {"severity": "warning", "profile": "p"}, {"$value | humanizeDuration": "10s"},
    )  # fmt: skip
    alert = alert_of("QueueGrowing", "trtllm")
    judged(tmp_path, EVERYTHING["trtllm"], scene(cause.series, alert_rule=expected(alert, cause)))


@pytest.mark.parametrize("dialect", ["", *SERIES])
def test_every_alert_says_what_to_do_in_words_that_are_whole(dialect: str) -> None:
    watched = Watched(dialect, node=True, gpu=True, gateway=True, log="`docker logs drafthouse-ARM`")
    names = set(recorded_series(rules_text(watched)))
    for alert in alerts_of(watched):
        assert set(alert["annotations"]) == {"summary", "description"}
        assert all(alert["annotations"].values()), alert
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        for name in (word for word in alert["expr"].replace("(", " ").replace("[", " ").split() if ":" in word):
            assert name in names, (alert["alert"], name)


@pytest.mark.parametrize("dialect", ["", *SERIES])
def test_what_is_asked_was_recorded_before(dialect: str) -> None:
    """Prometheus evaluates a group in order, and groups in none."""
    before: set[str] = set()
    for rule in rules_of(Watched(dialect, node=True, gpu=True, gateway=True)):
        assert set(re.findall(r"drafthouse:[a-z_]+:[a-z]+", rule["expr"])) <= before, rule
        before.add(rule.get("record", ""))


def test_a_threshold_and_a_pace_are_taken_up() -> None:
    found = rules_of(EVERYTHING["llamacpp"], Pace(1, 15, 10), Limits(acceptance=0.4))
    low = next(rule for rule in found if rule.get("alert") == "AcceptanceLow")
    assert (low["expr"], low["for"]) == ("drafthouse:acceptance_rate:ratio < 0.4", "10s")
    assert "[15s]" in "".join(rule["expr"] for rule in found if "record" in rule)


@pytest.mark.parametrize(("seconds", "words"), [(3600, "1h"), (600, "10m"), (90, "90s"), (1, "1s"), (0, "1s")])
def test_durations_as_prometheus_writes_them(seconds: int, words: str) -> None:
    assert duration_text(seconds) == words
