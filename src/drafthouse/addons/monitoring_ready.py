"""Check on the box that Prometheus reads its targets and that Grafana answers. Standard library only, Python 3.10."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.errors import DrafthouseError, Problem
from ..core.http import opener

# The jobs of Prometheus, which are its kinds of targets.
ENGINE = "engine"  # the engine's counters
HEALTH = "health"  # a probe of the engine's health page, by the blackbox exporter
NODE = "node"  # the node exporter
GPU = "gpu"  # DCGM's exporter
GATEWAY = "gateway"  # a probe of the gateway's TLS certificate, by the blackbox exporter
_CHECK_EVERY_S = 0.5
_TIMEOUT_S = 10.0  # of one request
_DO = {  # by job: what to do if its target is down
    ENGINE: "run site.yml --tags report, which leaves an arm serving, and then site.yml --tags monitoring",
    HEALTH: "read the log of the blackbox exporter",
    NODE: "read the log of the node exporter",
    GPU: "read `docker logs drafthouse-dcgm`; nvidia-smi on the box shows whether the driver works",
    GATEWAY: "read the log of the blackbox exporter",
}
#: URL -> status and text of the answer. Raises OSError if there is no answer.
Get = Callable[[str], "tuple[int, str]"]

if TYPE_CHECKING:
    from typing import NotRequired


# What is read of the answers of Prometheus's HTTP API (/api/v1/rules and /api/v1/targets).
class _Rule(TypedDict):
    name: str
    health: str
    lastError: NotRequired[str]


class _Group(TypedDict):
    rules: list[_Rule]


class _Rules(TypedDict):
    groups: list[_Group]


class _Target(TypedDict):
    labels: dict[str, str]
    health: str
    lastError: NotRequired[str]


class _Targets(TypedDict):
    activeTargets: list[_Target]


@dataclass
class Seen:
    """The state of Prometheus at one check."""

    down: dict[str, str] = field(default_factory=dict)  # job -> why its target cannot be scraped
    rules: int = 0  # the number of rules, good or bad


def ask(url: str) -> tuple[int, str]:
    """The status and the text of a page. Raises OSError, also if the port is not an HTTP server's."""
    try:
        with opener().open(url, timeout=_TIMEOUT_S) as answer:
            return int(answer.status), answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise OSError(f"not an HTTP server: {error}") from error


def wait_for_monitoring(
    prometheus: str,
    jobs: Sequence[str],
    *,
    grafana: str,
    log: str,
    timeout_s: float,
    ask: Get = ask,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Wait until all ``jobs`` are scraped, all rules are evaluated, and Grafana answers ('': there is no Grafana).

    ``prometheus``, ``grafana``: base URLs. ``log``: the file or command for Prometheus's log. Raises DrafthouseError
    with all problems of the last check after ``timeout_s``.
    """
    end = clock() + timeout_s
    while True:
        problems, seen = _check(prometheus, jobs, grafana, log, ask)
        if not problems:
            return seen
        if clock() > end:
            raise DrafthouseError(problems)
        sleep(_CHECK_EVERY_S)


def _check(prometheus: str, jobs: Sequence[str], grafana: str, log: str, ask: Get) -> tuple[list[Problem], Seen]:
    """The problems of one check, and the state of Prometheus. Without Prometheus, Grafana is not asked."""
    seen = Seen()
    try:
        status, text = ask(f"{prometheus}/-/ready")
        if status != 200:
            raise OSError(f"{status}: {text.strip()[:200]}")
        problems = _rule_problems(_api_data(prometheus, "rules", ask), seen)
        problems += _target_problems(_api_data(prometheus, "targets?state=active", ask), jobs, seen)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [
            Problem("monitoring-not-ready", f"Prometheus at {prometheus}: {error}", "one that is ready", f"read {log}")
        ], seen
    if grafana:
        problems += _grafana_problems(grafana, ask)
    return problems, seen


def _api_data(prometheus: str, path: str, ask: Get) -> Any:
    """The `data` of an answer of Prometheus's HTTP API. Raises OSError, ValueError or KeyError."""
    status, text = ask(f"{prometheus}/api/v1/{path}")
    if status != 200:
        raise OSError(f"{status} for {path}")
    return json.loads(text)["data"]


def _rule_problems(data: _Rules, seen: Seen) -> list[Problem]:
    """A problem for each rule that was not evaluated, or one if there are no rules; ``seen`` gets their number."""
    problems = []
    for rule in chain.from_iterable(group["rules"] for group in data["groups"]):
        seen.rules += 1
        if rule["health"] != "ok":
            # The health is "unknown" before the first evaluation.
            found = f"the rule {rule['name']} is {rule['health']}: {rule.get('lastError') or 'not evaluated yet'}"
            problems.append(
                Problem(
                    "prometheus-rules-not-evaluated",
                    found,
                    "every rule evaluated",
                    "please report this, with the box's monitoring/rules.yml",
                )
            )
    if not seen.rules:
        problems.append(
            Problem(
                "prometheus-rules-not-evaluated",
                "no rules",
                "those of monitoring/rules.yml",
                "run site.yml --tags monitoring again",
            )
        )
    return problems


def _target_problems(data: _Targets, jobs: Sequence[str], seen: Seen) -> list[Problem]:
    """A problem for each of ``jobs`` whose target is down or missing; ``seen`` gets the reasons."""
    targets = {target["labels"]["job"]: target for target in data["activeTargets"]}
    for job in jobs:
        target: _Target = targets.get(job, {"health": "missing", "lastError": "no such target", "labels": {}})
        if target["health"] != "up":
            seen.down[job] = target.get("lastError") or "not read yet"
    problems = []
    for job, why in seen.down.items():
        found = f"nothing can be read from the {job}: {why}"
        problems.append(Problem("prometheus-target-down", found, "a target that Prometheus reads", _DO[job]))
    return problems


def _grafana_problems(url: str, ask: Get) -> list[Problem]:
    """The problem of the Grafana at ``url``, in a list; [] if it answers."""
    try:
        status, text = ask(f"{url}/api/health")
        if status == 200:
            return []
        why = f"{status}: {text.strip()[:200]}"
    except OSError as error:
        why = str(error)
    return [
        Problem(
            "monitoring-not-ready",
            f"Grafana at {url}: {why}",
            "one that answers",
            "read `docker logs drafthouse-grafana`",
        )
    ]
