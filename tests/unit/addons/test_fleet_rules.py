"""A fleet's rules, by Prometheus's own promtool: each replica's figures, which of them is apart, and its dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.fleet_monitoring import BOARD, UID, Fleet, Replica, files, rules_file
from drafthouse.addons.prometheus_rules import SERIES, Limits, Pace, recorded
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.json_schema import why_not
from tests.support.prometheus import LIMITS, PACE, TEMPLATES, checked, write
from tests.unit.addons.test_prometheus_rules import Series, near, nothing, scene

SCHEMA = json.loads((ROOT / "tests/grafana.schema.json").read_text("utf-8"))
RATIO = "drafthouse_fleet:acceptance_of_peers:ratio"


def replica(name: str, dialect: str = "vllm", **other: str) -> Replica:
    whole = {
        "name": name, "address": f"{name}:8443", "profile": "p", "dialect": dialect, "model": "m",
        "drafting": "ngram, 4 tokens", **other,
    }  # fmt: skip
    return whole  # type: ignore[return-value]


def labels(replica: Replica) -> dict[str, str]:
    return {
        "replica": replica["name"], "profile": replica["profile"], "model": replica["model"],
        "drafting": replica["drafting"], "dialect": replica["dialect"],
    }  # fmt: skip


def shown(replica: Replica) -> str:
    words = ",".join(f'{key}="{value}"' for key, value in labels(replica).items())
    return f'job="fleet_{replica["dialect"]}",instance="{replica["address"]}",{words}'


def drafting(replica: Replica, accepted: int, each: int = 15, times: int = 240) -> list[Series]:
    """In 15 s ``each`` drafts of four tokens, and ``accepted`` tokens in all; whatever the engine counts them by."""
    names, own = SERIES[replica["dialect"]], shown(replica)
    if names.drafts_where:  # TensorRT-LLM counts by position
        at = f'{names.position}="0"'
        found = [(f"{names.accepted_at}{{{own},{at}}}", f"0+{accepted}x{times}")]
        places = range(4)
        return found + [(f'{names.draft_tokens}{{{own},{names.position}="{n}"}}', f"0+{each}x{times}") for n in places]
    if names.not_accepted:
        requests, drafts = names.not_accepted.split()
        counted = ((drafts, each), (requests, 1), (names.accepted_tokens, accepted + each + 1))
        return [(f"{name}{{{own}}}", f"0+{count}x{times}") for name, count in counted]
    counted = ((names.drafts, each), (names.draft_tokens, 4 * each), (names.accepted_tokens, accepted))
    return [(f"{name}{{{own}}}", f"0+{count}x{times}") for name, count in counted]


def ready(name: str, values: str) -> Series:
    return (f'probe_success{{job="fleet_ready",replica="{name}",profile="p",instance="{name}"}}', values)


def rules_text(dialects: Collection[str] = ("vllm",), pace: Pace = PACE, limits: Limits = LIMITS) -> str:
    return rules_file(TEMPLATES, "rules.yml", dialects, pace, limits)["content"]


def rules_of(dialects: Collection[str] = ("vllm",)) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(rules_text(dialects))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def judged(folder: Path, dialects: Collection[str], *tests: Mapping[str, Any]) -> None:
    """Have promtool run tests against the rules of a fleet."""
    (folder / "rules.yml").write_text(rules_text(dialects))
    checked("check", "rules", "rules.yml", folder=folder)
    write(folder / "test.yml", {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": list(tests)})
    checked("test", "rules", "test.yml", folder=folder)


@pytest.mark.processes
@pytest.mark.parametrize("dialect", SERIES)
def test_each_replica_has_its_own_figures(dialect: str, tmp_path: Path) -> None:
    one, two = replica("a", dialect), replica("b", dialect)
    names = SERIES[dialect]
    series = [*drafting(one, 30), *drafting(two, 15), ready("a", "1+0x120"), ready("b", "0+0x120")]
    if not names.not_accepted:  # there it counts the drafted as well
        series += [(f"{names.output_tokens}{{{shown(one)}}}", "0+150x120")]
    wanted = [
        near("drafthouse_fleet:acceptance_length:mean", 3, **labels(one)),
        near("drafthouse_fleet:acceptance_length:mean", 2, **labels(two)),
        near("drafthouse_fleet:accepted_per_draft:mean", 2, **labels(one)),
        near(RATIO, 2 / 1.5, **labels(one)),
        near(RATIO, 1 / 1.5, **labels(two)),
        near("drafthouse_fleet:replica_ready:bool", 1, replica="a", profile="p"),
        near("drafthouse_fleet:replica_ready:bool", 0, replica="b", profile="p"),
        near("drafthouse_fleet:replicas_ready:count", 1),
    ]
    if names.draft_tokens:
        wanted.append(near("drafthouse_fleet:acceptance_rate:ratio", 0.5, **labels(one)))
    if not names.not_accepted:
        wanted.append(near("drafthouse_fleet:output_tokens:rate", 10, **labels(one)))
    judged(tmp_path, [dialect], scene(series, promql_expr=wanted))


@pytest.mark.processes
def test_two_engines_in_one_fleet_do_not_touch_each_other(tmp_path: Path) -> None:
    """Each engine's rules would else write 0 for what the other's replicas had accepted."""
    one, two = replica("a", "vllm"), replica("b", "trtllm")
    series = [*drafting(one, 30), *drafting(two, 15)]
    wanted = [
        near("drafthouse_fleet:acceptance_length:mean", 3, **labels(one)),
        near("drafthouse_fleet:acceptance_length:mean", 2, **labels(two)),
        nothing(RATIO),  # nobody's peers
    ]
    judged(tmp_path, SERIES, scene(series, promql_expr=wanted))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("others", "why"),
    [
        ([replica("b", model="another")], "another model"),
        ([replica("b", drafting="ngram, 8 tokens")], "another K"),
        ([], "alone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_has_no_peers_is_beside_nobody(others: Sequence[Replica], why: str, tmp_path: Path) -> None:
    series = [line for one in (replica("a"), *others) for line in drafting(one, 30 if one["name"] == "a" else 3)]
    judged(tmp_path, ["vllm"], scene(series, promql_expr=[nothing(RATIO)]))


@pytest.mark.processes
def test_a_few_drafts_say_nothing(tmp_path: Path) -> None:
    """4 drafts in 15 s are 80 in the window of 5 minutes."""
    series = [*drafting(replica("a"), 8), *drafting(replica("b"), 1, each=4)]
    wanted = [near("drafthouse_fleet:accepted_per_draft:mean", 8 / 15, **labels(replica("a"))), nothing(RATIO)]
    judged(tmp_path, ["vllm"], scene(series, promql_expr=wanted))


# --- alerts -----------------------------------------------------------------------------------------


def told(name: str, labels: Mapping[str, str], value: str = "") -> dict[str, Any]:
    """Return an alert that fires, with its text as it is shown."""
    rule = next(rule for rule in rules_of() if rule.get("alert") == name)
    words = {**{f"$labels.{key}": word for key, word in labels.items()}, "$value | humanizePercentage": value}
    texts = dict(rule["annotations"])
    for key, word in words.items():
        texts = {about: text.replace("{{ " + key + " }}", word) for about, text in texts.items()}
    assert "{{" not in "".join(texts.values())
    return {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": texts}


def at(name: str, when: str, *alerts: Mapping[str, Any]) -> dict[str, Any]:
    return {"eval_time": when, "alertname": name, "exp_alerts": list(alerts)}


@pytest.mark.processes
def test_a_replica_that_is_out_is_told_and_the_fleet_when_all_are(tmp_path: Path) -> None:
    series = [ready("a", "1+0x200"), ready("b", "1+0x40 0+0x60 1+0x100")]
    b = {"replica": "b", "profile": "p"}
    wanted = [at("ReplicaOut", "14m"), at("ReplicaOut", "20m", told("ReplicaOut", b)), at("ReplicaOut", "30m")]
    wanted += [at("FleetDown", when) for when in ("14m", "20m", "30m")]
    both = [ready("a", "1+0x40 0+0x20 1+0x100"), ready("b", "1+0x40 0+0x20 1+0x100")]
    down = [at("FleetDown", "11m"), at("FleetDown", "13m", told("FleetDown", {})), at("FleetDown", "20m")]
    judged(tmp_path, ["vllm"], scene(series, alert_rule=wanted), scene(both, alert_rule=down))


def falling(replica: Replica, accepted: int) -> list[Series]:
    """Ten minutes like the others, twenty with ``accepted`` tokens in 15 s, and then like the others again."""
    names, own = SERIES["vllm"], shown(replica)
    ends = 30 * 40 + accepted * 80
    return [
        (f"{names.drafts}{{{own}}}", "0+15x240"),
        (f"{names.draft_tokens}{{{own}}}", "0+60x240"),
        (f"{names.accepted_tokens}{{{own}}}", f"0+30x40 {1200 + accepted}+{accepted}x79 {ends + 30}+30x118"),
    ]


@pytest.mark.processes
def test_a_replica_that_drafts_worse_than_its_peers_is_told(tmp_path: Path) -> None:
    sick, peers = replica("c"), [replica("a"), replica("b")]
    series = [line for one in peers for line in drafting(one, 30)] + falling(sick, 15)
    wanted = [
        at("AcceptanceApart", "20m"),
        at("AcceptanceApart", "29m", told("AcceptanceApart", labels(sick), "50%")),
        at("AcceptanceApart", "50m"),
    ]
    # A fifth fewer is within what differs from prompt to prompt; and of two it is the worse one that is told of.
    near_by = [line for one in peers for line in drafting(one, 30)] + falling(sick, 24)
    of_two = drafting(peers[0], 30) + falling(sick, 15)
    judged(
        tmp_path,
        ["vllm"],
        scene(series, alert_rule=wanted),
        scene(near_by, alert_rule=[at("AcceptanceApart", "29m")]),
        scene(of_two, alert_rule=[at("AcceptanceApart", "29m", told("AcceptanceApart", labels(sick), "66.67%"))]),
    )


@pytest.mark.parametrize("dialects", [[], *([name] for name in SERIES), list(SERIES)], ids=str)
def test_what_is_asked_was_recorded_before_and_alerts_say_what_to_do(dialects: list[str]) -> None:
    before: set[str] = set()
    for rule in rules_of(dialects):
        assert set(re.findall(r"drafthouse_fleet:[a-z_]+:[a-z]+", rule["expr"])) <= before, rule
        before.add(rule.get("record", ""))
        if "alert" in rule:
            assert set(rule["annotations"]) == {"summary", "description"}
            assert all(rule["annotations"].values())


# --- the dashboard ----------------------------------------------------------------------------------


def board(*dialects: str) -> Any:
    fleet: Fleet = {"replicas": [replica(name, name) for name in dialects], "trust": ""}
    file = next(file for file in files(TEMPLATES, "/m", fleet, PACE, LIMITS) if file["path"].endswith(f"{UID}.json"))
    return json.loads(file["content"])


def queries(board: Any) -> set[str]:
    return {target["expr"] for panel in board["panels"] for target in panel.get("targets", [])}


@pytest.mark.parametrize("dialects", [[], *([name] for name in SERIES), list(SERIES)], ids=str)
def test_the_dashboard_shows_what_this_fleet_records_and_nothing_else(dialects: list[str]) -> None:
    shown = board(*dialects)
    assert why_not(shown, SCHEMA) is None
    assert queries(shown) == set(recorded(rules_text(dialects)))


def test_its_file_is_that_of_a_fleet_that_has_everything() -> None:
    whole = json.loads((TEMPLATES / BOARD).read_text("utf-8"))
    assert whole["uid"] == UID
    assert board("vllm") == whole


def test_a_fleets_rules_name_no_engines_counter_themselves() -> None:
    text = (TEMPLATES / "monitoring/fleet_rules.yml.j2").read_text("utf-8")
    counters = {value for names in SERIES.values() for value in vars(names).values() if ":" in str(value)}
    assert [name for name in counters if name in text] == []
