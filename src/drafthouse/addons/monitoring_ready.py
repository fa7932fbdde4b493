"""Ask the monitoring, on the box itself, whether it sees what it is for. Standard library only, Python 3.10."""

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

# The jobs that Prometheus scrapes. `health` asks the engine's path for it, through the blackbox exporter.
ENGINE, HEALTH, NODE, GPU, GATEWAY = "engine", "health", "node", "gpu", "gateway"
_ASK_EVERY_S = 0.5
_ASK_S = 10.0
_DO = {
    ENGINE: "run site.yml --tags report, which leaves an arm serving, and then site.yml --tags monitoring",
    HEALTH: "read the log of the blackbox exporter",
    NODE: "read the log of the node exporter",
    GPU: "read `docker logs drafthouse-dcgm`; nvidia-smi on the box shows whether the driver works",
    GATEWAY: "read the log of the blackbox exporter",
}
#: The status and the text of an answer; raises OSError where there is none.
Ask = Callable[[str], "tuple[int, str]"]

if TYPE_CHECKING:
    from typing import NotRequired


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
    """What Prometheus said of itself. ``down``: job -> why its target cannot be read; ``rules``: how many it has."""

    down: dict[str, str] = field(default_factory=dict)
    rules: int = 0


def ask(url: str) -> tuple[int, str]:
    """The status and the text of a page. Raises OSError, also where somebody else listens there."""
    try:
        with opener().open(url, timeout=_ASK_S) as answer:
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
    ask: Ask = ask,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Seen:
    """Return when every job is read, every rule evaluated, and Grafana answers where ``grafana`` is its address.

    ``log`` is how Prometheus's log is read. Raises DrafthouseError with all that is not as it must be.
    """
    end = clock() + timeout_s
    while True:
        problems, seen = _look(prometheus, jobs, grafana, log, ask)
        if not problems:
            return seen
        if clock() > end:
            raise DrafthouseError(problems)
        sleep(_ASK_EVERY_S)


def _look(prometheus: str, jobs: Sequence[str], grafana: str, log: str, ask: Ask) -> tuple[list[Problem], Seen]:
    seen = Seen()
    try:
        status, text = ask(f"{prometheus}/-/ready")
        if status != 200:
            raise OSError(f"{status}: {text.strip()[:200]}")
        wrong = _rules(_answer(prometheus, "rules", ask), seen)
        wrong += _targets(_answer(prometheus, "targets?state=active", ask), jobs, seen)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [
            Problem("monitoring-not-ready", f"Prometheus at {prometheus}: {error}", "one that is ready", f"read {log}")
        ], seen
    if grafana:
        wrong += _grafana(grafana, ask)
    return wrong, seen


def _answer(prometheus: str, what: str, ask: Ask) -> Any:
    """The data of one of Prometheus's answers."""
    status, text = ask(f"{prometheus}/api/v1/{what}")
    if status != 200:
        raise OSError(f"{status} for {what}")
    return json.loads(text)["data"]


def _rules(data: _Rules, seen: Seen) -> list[Problem]:
    wrong = []
    for rule in chain.from_iterable(group["rules"] for group in data["groups"]):
        seen.rules += 1
        if rule["health"] != "ok":
            # "unknown" until it was evaluated for the first time.
            found = f"the rule {rule['name']} is {rule['health']}: {rule.get('lastError') or 'not evaluated yet'}"
            wrong.append(
                Problem(
                    "prometheus-rules-not-evaluated",
                    found,
                    "every rule evaluated",
                    "please report this, with the box's monitoring/rules.yml",
                )
            )
    if not seen.rules:
        wrong.append(
            Problem(
                "prometheus-rules-not-evaluated",
                "no rules",
                "those of monitoring/rules.yml",
                "run site.yml --tags monitoring again",
            )
        )
    return wrong


def _targets(data: _Targets, jobs: Sequence[str], seen: Seen) -> list[Problem]:
    health = {target["labels"]["job"]: target for target in data["activeTargets"]}
    for job in jobs:
        target: _Target = health.get(job, {"health": "missing", "lastError": "no such target", "labels": {}})
        if target["health"] != "up":
            seen.down[job] = target.get("lastError") or "not read yet"
    wrong = []
    for job, why in seen.down.items():
        found = f"nothing can be read from the {job}: {why}"
        wrong.append(Problem("prometheus-target-down", found, "a target that Prometheus reads", _DO[job]))
    return wrong


def _grafana(url: str, ask: Ask) -> list[Problem]:
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
