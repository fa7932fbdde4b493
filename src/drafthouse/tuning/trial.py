"""One trial of the tuner on the box: an arm that runs is asked some prompts, and a loser is not asked the rest.

Clock, warm-up, counters and requests are those of every other measurement (client, measure, counters, results).
What differs is the end: after each answer its time per token is set beside the leader's on the same prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from ..bench.client import Ask, Endpoint, Recording, closed_loop, open_session, raw_request
from ..bench.machine_state import between, read_cpu
from ..bench.outcome import OK as REQUEST_OK
from ..bench.own_processes import own_pids
from ..bench.results import acceptance_of
from ..bench.spec_metrics import read_counters
from ..bench.step import warm_up
from ..core.errors import one_problem
from .paired_stats import hopeless, pair_key
from .types import FAILED, OK, STOPPED, TOO_LATE, Answer, TrialResult

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request, Snapshot
    from drafthouse.core.progress import Tell
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.tuning.prompt_split import TuneAsk

SCHEMA = "drafthouse.trial/1"

# No request takes longer; a trial's own time is usually up before.
_REQUEST_S = 600.0
# How much of an answer's fingerprint is kept: enough to tell answers apart, and no text.
_FINGERPRINT = 16


@dataclass(frozen=True)
class TrialOptions:
    """How a trial is measured; ``seconds`` is for warm-up and answers together."""

    concurrency: int = 1
    seconds: float = _REQUEST_S
    seed: int = 1
    reference: Mapping[str, float] = field(default_factory=dict)
    """TPOT in ms of the leader, by prompt as `pair_key` names it. Empty: every prompt is asked."""
    label: str = ""
    texts: bool = False
    """Whether the answers at temperature 0 come back too, for the gate that sets outputs beside each other."""


def _pair(request: Request) -> str:
    return pair_key(request["suite"], request["prompt_id"], request["temperature"])


def endpoint_of(resolved: Run, arm: str) -> Endpoint:
    """The address of an arm that the role `serve` started on the site's port.

    Raises DrafthouseError when the key it was started with cannot be read.
    """
    site = resolved["site"]
    try:
        key = Path(resolved["key_file"]).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise one_problem(
            "api-key-unreadable",
            f"a key file that cannot be read: {why}",
            "the key with which the server was started",
            "serve again, which rewrites it: make with the profile's name",
            str(resolved["key_file"]),
        ) from None
    metrics = resolved["engine"]["metrics"]
    return Endpoint(
        arm,
        f"http://{site['host']}:{site['port']}",
        resolved["target"]["served_name"],
        key,
        metrics_path=metrics.get("path", "/metrics"),
        asks=metrics.get("ask", ""),
    )


def run_trial(
    endpoint: Endpoint, asks: Sequence[TuneAsk], options: TrialOptions, tell: Tell = lambda event: None
) -> TrialResult:
    """Measure and return plain data; see `measure_trial`."""
    return asyncio.run(measure_trial(endpoint, asks, options, tell))


async def measure_trial(
    endpoint: Endpoint, asks: Sequence[TuneAsk], options: TrialOptions, tell: Tell = lambda event: None
) -> TrialResult:
    """Ask a running arm and return what it showed, as plain data.

    ``asks`` are prompts as `tune_prompts` gives them. ``tell`` gets {done, total, text} as answers end. ``status`` is
    ok, stopped (a loser: ``why`` says by how much), failed (an answer was not whole: ``why`` names it) or too late.
    Raises DrafthouseError when the warm-up gets no answer.
    """
    trial = _Trial(endpoint, [_ask(ask, options.seed, number) for number, ask in enumerate(asks)], options, tell)
    async with open_session(_REQUEST_S) as session:
        return await trial.measure(session)


def _ask(ask: TuneAsk, seed: int, number: int) -> Ask:
    # Arms of a turn sample alike: the seed depends on the turn and the place, and not on the arm.
    return Ask(**ask, group="trial", seed=10_000 * seed + number)


class _Trial:
    """A trial while it runs."""

    def __init__(self, endpoint: Endpoint, asks: list[Ask], options: TrialOptions, tell: Tell) -> None:
        self.endpoint, self.asks, self.options, self.tell = endpoint, asks, options, tell
        self.streams = max(1, min(options.concurrency, len(asks)))
        self.requests: list[Request] = []
        self.ratios: list[float] = []
        self.why = ""

    async def measure(self, session: aiohttp.ClientSession) -> TrialResult:
        end = time.monotonic() + self.options.seconds
        await self.warm_up(session)
        state = await asyncio.to_thread(read_cpu)
        before = await read_counters(session, self.endpoint)
        begun_s = time.perf_counter()
        answers = closed_loop(
            session, self.endpoint, self.asks, self.streams, self.look_at, until=lambda: bool(self.why)
        )
        status = OK
        try:
            await asyncio.wait_for(answers, max(0.0, end - time.monotonic()))
        except asyncio.TimeoutError:  # a class of its own on Python 3.10
            status = TOO_LATE
        measured_s = time.perf_counter() - begun_s
        after = await read_counters(session, self.endpoint)
        later = await asyncio.to_thread(read_cpu)
        own = own_pids([self.endpoint], state) | own_pids([self.endpoint], later)
        busy = between(state, later, own)["other_cpu_percent"]
        if self.why:
            status = STOPPED
        return self.result(status, measured_s, before, after, busy)

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        """Send one request for each stream. Raises DrafthouseError when none is answered in the trial's time."""
        self.tell({"text": f"{self.options.label}: warm-up"})
        sent = warm_up(session, self.endpoint, self.streams, concurrency=self.streams, seed=0, ignore_eos=False)
        try:
            warmed = await asyncio.wait_for(sent, self.options.seconds)
        except asyncio.TimeoutError:
            error = f"no answer to the warm-up in {self.options.seconds:.0f} s"
        else:
            if warmed["failed"] < warmed["sent"]:
                return
            error = str(warmed["error"])
        raise one_problem(
            "request-failed",
            error,
            "a server that answers chat requests",
            "check the engine's last log lines",
            self.endpoint.chat_url,
        )

    def look_at(self, record: Recording) -> None:
        """Set an answer beside the leader's, and let nothing more be asked where it is hopeless."""
        request = raw_request(record, self.endpoint, 0.0)
        self.requests.append(request)
        leader_ms = self.options.reference.get(_pair(request))
        own_ms = _tpot(request)
        beside = ""
        if leader_ms and own_ms:
            self.ratios.append(leader_ms / own_ms)
            beside = f", {self.ratios[-1]:.2f} x the leader's speed"
        done, total = len(self.requests), len(self.asks)
        self.tell({"text": f"{self.options.label}{beside}", "done": done, "total": total})
        if done < total and not self.why and hopeless(self.ratios):
            middle = sorted(self.ratios)[len(self.ratios) // 2]
            self.why = f"{middle:.2f} x the leader's speed after {done} of {total} prompts"

    def result(
        self, status: str, measured_s: float, before: Snapshot, after: Snapshot, busy: float | None
    ) -> TrialResult:
        """The trial as plain data; no texts but where they are asked for: it travels and is kept."""
        output_tokens = 0
        tpot_ms: dict[str, float] = {}
        greedy: list[Request] = []
        outputs: dict[str, str] = {}
        bad: list[Request] = []
        for request in self.requests:
            output_tokens += request["output_tokens"] or 0
            if request["status"] != REQUEST_OK:
                bad.append(request)
                continue
            if request["temperature"] == 0:
                greedy.append(request)
                outputs[_pair(request)] = _fingerprint(request)
            if value := _tpot(request):
                tpot_ms[_pair(request)] = value
        acceptance = acceptance_of(self.requests, [{"before": before, "after": after}], None) if self.requests else None
        drafted = (acceptance and acceptance["spec_decode_draft_tokens"]) or 0
        length = (acceptance and acceptance["spec_decode_acceptance_length"]) or 0
        if bad:
            status, self.why = FAILED, f"{bad[0]['prompt_id']}: {bad[0]['error']}"
        result: TrialResult = {
            "schema": SCHEMA,
            "arm": self.endpoint.arm,
            "status": status,
            "why": self.why,
            "asked": len(self.requests),
            "failed": len(bad),
            "measured_s": measured_s,
            "ended_unix_s": time.time(),
            "tpot_ms": tpot_ms,
            "output_tokens": output_tokens,
            "drafted": bool(drafted) or length > 1.0,
            "acceptance": acceptance,
            "outputs": outputs,
            "other_cpu_percent": busy,
        }
        if self.options.texts:
            result["answers"] = list(map(_answer, greedy))
        return result


def _answer(request: Request) -> Answer:
    return {
        "group": "final",
        "prompt_id": _pair(request),
        "status": request["status"],
        "temperature": request["temperature"],
        "text": request["text"],
        "reasoning_text": request["reasoning_text"],
        "tool_calls": request["tool_calls"],
        "pieces": request["pieces"],
        "output_tokens": request["output_tokens"],
    }


def _tpot(request: Request) -> float | None:
    value = request["tpot_ms"]
    if request["status"] == REQUEST_OK and value and value > 0:
        return float(value)
    return None


def _fingerprint(request: Request) -> str:
    text = f"{request['reasoning_text']}{request['text']}"
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]
