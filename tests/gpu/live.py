"""What level 1 asks of a server that it leaves serving: its load sweep, the watchdog, and the doctor.

The traffic is sent by `drafthouse bench`, first copied text that drafts well, then text of a high temperature, of which
hardly a drafted token is accepted: the watchdog has to see the difference in the engine's counters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

from drafthouse.addons.watchdog.journal import FOLDER, JOURNAL, STATE, Line, Order, read_state
from drafthouse.addons.watchdog.run import SAVE_S
from drafthouse.core.places import ORDER
from drafthouse.operate.checks.finding import FAIL, OK, WARN
from drafthouse.report.archive import Kept
from tests.gpu.clock import Clock
from tests.gpu.level1 import DRAFTHOUSE, Place

#: Requests at a time of the load sweep; the server has as many slots as the last.
LEVELS = (1, 2, 4)
#: It only reports: nothing changes the server while it is asked. A look a second, and a decision within half a minute.
WATCHDOG = {"mode": "report", "every_s": 1, "look_s": 10, "patience_s": 3, "dwell_s": 10, "least_drafted": 60}


class Traffic(NamedTuple):
    """What is sent: its temperature, the code that the watchdog has to write for it, and bounds of its acceptance rate.

    The bounds hold by making: the target is its draft, so at temperature 0 all is accepted, and at 2 next to nothing.
    """

    temperature: float
    due: str
    acceptance: tuple[float, float]


TRAFFIC: Mapping[str, Traffic] = {
    "drafts well": Traffic(0.0, "pays", (0.8, 1.0)),
    "hardly drafts": Traffic(2.0, "does_not_pay", (0.0, 0.4)),
}
_TRAFFIC_S = 15
_MOST_S = 180.0
#: How often traffic is sent where the watchdog does not write what it has to.
_SENDS = 3


class Level(TypedDict):
    """A level of the load sweep: requests at a time, tokens/s by arm, the speed-up's median, the crossover's word."""

    level: float
    tokens_per_s: dict[str, float | None]
    speedup: float | None
    verdict: str | None


class Seen(TypedDict):
    """What the watchdog wrote while some traffic ran, the codes in turn, and the acceptance rate that it read."""

    traffic: str
    due: str
    codes: list[str]
    acceptance: float | None


class Sweep(TypedDict):
    """A load sweep of one category; ``pays_until`` in requests at a time."""

    levels: list[Level]
    crossover: str | None
    pays_until: float | None


class Live(Sweep):
    """A server under load, and what watched it. ``checks``: how many of the doctor's by status."""

    watchdog: list[Seen]
    checks: dict[str, int]
    not_ok: list[str]


def settings() -> list[str]:
    """The words with which site.yml leaves the speculative arm serving, and a watchdog beside it."""
    return ["-e", "serve_arm=speculative", "-e", json.dumps({"drafthouse_watchdog": WATCHDOG})]


def ask(kept: Kept, place: Place, clock: Clock) -> Live:
    """Ask the doctor, then send both kinds of traffic and read the watchdog's journal. Raises DrafthouseError."""
    checks = _doctor(place, kept.report["profile"], clock)
    order: Order = json.loads((place.home / FOLDER / ORDER).read_text("utf-8"))
    seen = [_watched(place, order, kind, clock) for kind in TRAFFIC]
    return {
        **sweep_of(kept),
        "watchdog": seen,
        "checks": {status: sum(one["status"] == status for one in checks) for status in (OK, WARN, FAIL)},
        "not_ok": sorted(f"{one['status']}: {one['id']}" for one in checks if one["status"] in (WARN, FAIL)),
    }


def sweep_of(kept: Kept) -> Sweep:
    """The part of `Live` that the report has: levels and crossover of its one category. Pure."""
    load = kept.report["load"]
    if not load:
        return {"levels": [], "crossover": None, "pays_until": None}
    kind = load["kinds"][0]
    levels: list[Level] = [
        {
            "level": row["level"],
            "tokens_per_s": {
                arm: measured["output_throughput"] if measured else None
                for arm, measured in (("baseline", row["baseline"]), ("speculative", row["speculative"]))
            },
            "speedup": row["speedup"]["gain"] if row["speedup"] else None,
            "verdict": row["word"],
        }
        for row in load["rows"]
    ]
    return {"levels": levels, "crossover": kind["word"], "pays_until": kind["pays_until"]}


def problems(live: Live, *, on_gpu: bool = True) -> list[str]:
    """What of a served server is not as it has to be. Pure.

    What a drafted token costs in four seconds of a machine that does other work too may be anything: of a CPU only the
    acceptance rate that the watchdog read is looked at.
    """
    wrong = [f"the doctor: {line}" for line in live["not_ok"] if line.startswith(FAIL)]
    if not live["checks"].get(OK):
        wrong.append("the doctor: no check is ok")
    if [level["level"] for level in live["levels"]] != list(LEVELS):
        wrong.append(f"load sweep: the levels {[level['level'] for level in live['levels']]} of {list(LEVELS)}")
    for level in live["levels"]:
        wrong += [
            f"load sweep, {level['level']:g} at a time, {arm}: nothing measured"
            for arm, speed in level["tokens_per_s"].items()
            if not speed
        ]
    if live["crossover"] is None:
        wrong.append("load sweep: no crossover")
    for seen in live["watchdog"]:
        where, codes = f"the watchdog, text that {seen['traffic']}", seen["codes"]
        if on_gpu and seen["due"] not in codes:
            wrong.append(f"{where}: {', '.join(codes) or 'no word'}")
        low, high = TRAFFIC[seen["traffic"]].acceptance
        if not low <= (-1 if seen["acceptance"] is None else seen["acceptance"]) <= high:
            wrong.append(f"{where}: acceptance rate {seen['acceptance']}, where {low} to {high} was made")
    return wrong


def _doctor(place: Place, name: str, clock: Clock) -> list[dict[str, str]]:
    out = place.work / "doctor.json"
    out.unlink(missing_ok=True)
    words = [*DRAFTHOUSE, "doctor", "--inventory", "local", "--profile", name, "--json", "--", *place.words]
    clock.run(words, _MOST_S, log=out)
    text = out.read_text("utf-8")
    # Behind it may stand what the command says beside.
    data, _ = json.JSONDecoder().raw_decode(text[text.index("{\n") :])
    found: list[dict[str, str]] = data["checks"]
    return found


def _watched(place: Place, order: Order, kind: str, clock: Clock) -> Seen:
    """Send traffic of a kind; return what the watchdog wrote meanwhile, and what it is due to write."""
    traffic = TRAFFIC[kind]
    journal = place.home / FOLDER / JOURNAL
    before = len(_lines(journal))
    ends_s = time.monotonic() + min(clock.left_s(), _MOST_S)
    codes: list[str] = []
    # As long as it takes to be told: on a slow machine a request is long, and only its end is counted.
    for _ in range(_SENDS):
        _send(place, order, traffic.temperature, clock)
        codes = [line["code"] for line in _lines(journal)[before:]]
        if traffic.due in codes or time.monotonic() + 2 * _TRAFFIC_S > ends_s:
            break
    return {"traffic": kind, "due": traffic.due, "codes": codes, "acceptance": _acceptance(place.home / FOLDER)}


def _acceptance(folder: Path) -> float | None:
    """The acceptance rate of the last traffic that the watchdog weighed.

    From its state, which it saves every 20 s: a `hold` is written to the journal once in five minutes.
    """
    sent_s = time.time()
    while time.time() < sent_s + SAVE_S + 10 and (folder / STATE).stat().st_mtime < sent_s:
        time.sleep(0.5)
    state = read_state(folder)
    seen = state.memory.seen if state else None
    return seen[2] / seen[1] if seen and seen[1] else None


def _send(place: Place, order: Order, temperature: float, clock: Clock) -> None:
    words = ["bench", "--base-url", order["base_url"], "--model", order["model"], "--suite", "mixed"]
    words += ["--kind", "copy-edit", "--output-tokens", "96", "--time", str(_TRAFFIC_S), "--narrow", "0.0001"]
    words += ["--temperature", str(temperature), *(["--api-key-file", order["key_file"]] if order["key_file"] else [])]
    clock.run([*DRAFTHOUSE, *words], _MOST_S, log=place.work / "traffic.log")


def _lines(journal: Path) -> list[Line]:
    """The journal's whole lines: the last may still be written."""
    if not journal.is_file():
        return []
    text = journal.read_text("utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
