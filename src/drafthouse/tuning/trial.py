"""A trial of the tuner, on the host that serves: send prompts to a running arm, and stop early if it is far too slow.

Clock, warm-up, counters and requests are those of the A/B measurement in `bench`. In addition, each answer's time per
output token (TPOT) is compared with the leader's, the fastest candidate's so far, on the same prompt.
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

from ..bench.client import ChatRequest, Endpoint, Recording, closed_loop, open_session, raw_request
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
    from drafthouse.tuning.prompt_split import TuneRequest

#: The schema of a trial's result.
SCHEMA = "drafthouse.trial/1"

_REQUEST_S = 600.0  # time limit of a request; a trial's own limit usually comes first
_FINGERPRINT = 16  # hex digits of an answer's SHA-256: enough to tell answers apart


@dataclass(frozen=True)
class TrialOptions:
    """Options of a trial."""

    concurrency: int = 1  # requests at a time
    seconds: float = _REQUEST_S  # time limit of warm-up and answers together
    seed: int = 1  # the seeds of the requests follow from this and their position
    #: The leader's TPOT in ms by prompt, as `pair_key` names it. Empty: the trial never stops early.
    reference: Mapping[str, float] = field(default_factory=dict)
    label: str = ""  # the beginning of progress lines
    texts: bool = False  # True: also return the answers at temperature 0, for the outputs gate


def _pair(request: Request) -> str:
    """The `pair_key` of a request."""
    return pair_key(request["suite"], request["prompt_id"], request["temperature"])


def endpoint_of(resolved: Run, arm: str) -> Endpoint:
    """The endpoint of an arm that the role `serve` started on the site's port.

    Raises DrafthouseError if the server's API key file cannot be read.
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
        draft_fields=metrics.get("ask", ""),
    )


def run_trial(
    endpoint: Endpoint, requests: Sequence[TuneRequest], options: TrialOptions, tell: Tell = lambda event: None
) -> TrialResult:
    """Run `measure_trial` in a new event loop."""
    return asyncio.run(measure_trial(endpoint, requests, options, tell))


async def measure_trial(
    endpoint: Endpoint, requests: Sequence[TuneRequest], options: TrialOptions, tell: Tell = lambda event: None
) -> TrialResult:
    """Send requests to a running arm and return the result as plain data.

    ``requests`` come from `prompt_split.prompts_for`. ``tell`` receives {done, total, text} after each answer. The
    result's ``status`` is, by the first case that applies: failed (``why`` names the first failed answer), stopped (far
    too slow; ``why`` gives the ratio), too late, or ok. Raises DrafthouseError if no warm-up request is answered.
    """
    to_send = [_chat_request(request, options.seed, position) for position, request in enumerate(requests)]
    trial = _Trial(endpoint, to_send, options, tell)
    async with open_session(_REQUEST_S) as session:
        return await trial.measure(session)


def _chat_request(request: TuneRequest, seed: int, position: int) -> ChatRequest:
    """The request at a position of a trial."""
    # The seed depends on the trial's seed and the position only, so that two arms of a round sample alike.
    return ChatRequest(**request, group="trial", seed=10_000 * seed + position)


class _Trial:
    """A running trial."""

    def __init__(self, endpoint: Endpoint, to_send: list[ChatRequest], options: TrialOptions, tell: Tell) -> None:
        self.endpoint = endpoint
        self.to_send = to_send
        self.options = options
        self.tell = tell
        self.streams = max(1, min(options.concurrency, len(to_send)))  # concurrent requests
        self.requests: list[Request] = []  # those that ended
        self.ratios: list[float] = []  # the speeds of their answers over the leader's
        self.why = ""  # why the trial ends early; "" while it goes on

    async def measure(self, session: aiohttp.ClientSession) -> TrialResult:
        """Warm up, send the prompts until they are answered, the time is over or the candidate is hopeless.

        Counters and CPU use are read before and after the prompts. Returns the result.
        """
        end = time.monotonic() + self.options.seconds
        await self.warm_up(session)
        cpu_before = await asyncio.to_thread(read_cpu)
        before = await read_counters(session, self.endpoint)
        start_s = time.perf_counter()
        answers = closed_loop(
            session, self.endpoint, self.to_send, self.streams, self.record_answer, should_stop=lambda: bool(self.why)
        )
        status = OK
        try:
            await asyncio.wait_for(answers, max(0.0, end - time.monotonic()))
        except asyncio.TimeoutError:  # not yet the built-in TimeoutError on Python 3.10
            status = TOO_LATE
        measured_s = time.perf_counter() - start_s
        after = await read_counters(session, self.endpoint)
        cpu_after = await asyncio.to_thread(read_cpu)
        own_processes = own_pids([self.endpoint], cpu_before) | own_pids([self.endpoint], cpu_after)
        other_cpu_percent = between(cpu_before, cpu_after, own_processes)["other_cpu_percent"]
        if self.why:
            status = STOPPED
        return self.result(status, measured_s, before, after, other_cpu_percent)

    async def warm_up(self, session: aiohttp.ClientSession) -> None:
        """Send a warm-up request per concurrent stream. Raises DrafthouseError if none is answered in time."""
        self.tell({"text": f"{self.options.label}: warm-up"})
        warming = warm_up(session, self.endpoint, self.streams, concurrency=self.streams, seed=0, ignore_eos=False)
        try:
            warmed = await asyncio.wait_for(warming, self.options.seconds)
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

    def record_answer(self, record: Recording) -> None:
        """Record an ended request; set ``why``, which ends the trial, if the candidate is hopelessly slow."""
        request = raw_request(record, self.endpoint, 0.0)
        self.requests.append(request)
        leader_ms = self.options.reference.get(_pair(request))
        answer_ms = _tpot(request)
        speed_text = ""
        if leader_ms and answer_ms:
            self.ratios.append(leader_ms / answer_ms)
            speed_text = f", {self.ratios[-1]:.2f} x the leader's speed"
        done = len(self.requests)
        total = len(self.to_send)
        self.tell({"text": f"{self.options.label}{speed_text}", "done": done, "total": total})
        if done < total and not self.why and hopeless(self.ratios):
            middle = sorted(self.ratios)[len(self.ratios) // 2]
            self.why = f"{middle:.2f} x the leader's speed after {done} of {total} prompts"

    def result(
        self, status: str, measured_s: float, before: Snapshot, after: Snapshot, other_cpu_percent: float | None
    ) -> TrialResult:
        """The result as plain data, without answer texts unless the option `texts` is set.

        A failed answer makes the ``status`` failed. ``before`` and ``after`` are the engine's counters.
        """
        output_tokens = 0
        tpot_ms: dict[str, float] = {}  # by prompt, see `pair_key`
        at_temperature_0: list[Request] = []
        outputs: dict[str, str] = {}  # fingerprints by prompt
        failed: list[Request] = []
        for request in self.requests:
            output_tokens += request["output_tokens"] or 0
            if request["gate"]:
                # The answer is checked, even if it is empty or the request was refused; its speed does not count.
                at_temperature_0.append(request)
                continue
            if request["status"] != REQUEST_OK:
                failed.append(request)
                continue
            if request["temperature"] == 0:
                at_temperature_0.append(request)
                outputs[_pair(request)] = _fingerprint(request)
            if tpot := _tpot(request):
                tpot_ms[_pair(request)] = tpot
        acceptance = None
        if self.requests:
            acceptance = acceptance_of(self.requests, [{"before": before, "after": after}], log=None)
        draft_tokens = (acceptance and acceptance["spec_decode_draft_tokens"]) or 0
        acceptance_length = (acceptance and acceptance["spec_decode_acceptance_length"]) or 0
        if failed:
            status = FAILED
            self.why = f"{failed[0]['prompt_id']}: {failed[0]['error']}"
        result: TrialResult = {
            "schema": SCHEMA,
            "arm": self.endpoint.arm,
            "status": status,
            "why": self.why,
            "asked": len(self.requests),
            "failed": len(failed),
            "measured_s": measured_s,
            "ended_unix_s": time.time(),
            "tpot_ms": tpot_ms,
            "output_tokens": output_tokens,
            "drafted": bool(draft_tokens) or acceptance_length > 1.0,  # some engines report the length alone
            "acceptance": acceptance,
            "outputs": outputs,
            "other_cpu_percent": other_cpu_percent,
        }
        if self.options.texts:
            result["answers"] = list(map(_answer, at_temperature_0))
        return result


def _answer(request: Request) -> Answer:
    """An answer as the outputs gate reads it; its prompt id includes suite and temperature."""
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
        "http_status": request["http_status"],
        "error": request["error"],
        "finish_reason": request["finish_reason"],
        "gate": request["gate"],
    }


def _tpot(request: Request) -> float | None:
    """The TPOT in ms; None if the request failed or the answer is too short to have one."""
    value = request["tpot_ms"]
    if request["status"] == REQUEST_OK and value and value > 0:
        return float(value)
    return None


def _fingerprint(request: Request) -> str:
    """A short hash of an answer's reasoning and text."""
    text = f"{request['reasoning_text']}{request['text']}"
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]
