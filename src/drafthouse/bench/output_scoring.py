"""The baseline's server scores answers, token by token: how likely each token was to the target itself.

A scored answer is sent back as token ids, behind the prompt that it answered, to a server that says the log-probability
of every token of a prompt and of the one it would have chosen (vLLM: ``prompt_logprobs`` of ``/v1/completions``). It is
one prefill an answer, outside of every timed group, on the server that runs anyway. The ids are the engine's own
(``return_token_ids``): the text is not tokenised again, which might give others.

The cost is bounded: `ANSWERS` answers of each arm in a round, short prompts first, so many tokens an answer as the
catalogue grants (`scores.tokens`: logits of a whole vocabulary for each), and `SECONDS` in all.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from ..core.http import opener
from .samples import whole_prompt
from .sse import read_answer, split_events

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.bench.ask import Ask
    from drafthouse.bench.client import Endpoint, Recording
    from drafthouse.bench.result_types import Request, StepResult

#: The round, the group and the id of a prompt.
Place = tuple[int, str, str]

#: Answers of each arm that are scored in a round.
ANSWERS = 24
#: No further answer is scored after so long, in seconds, and none is waited for any longer: the first one may compile
#: a kernel (vLLM 0.32.0 on two cores took 18 s for it).
SECONDS = 120.0
ARMS = ("baseline", "speculative")
#: What asks a server for token ids beside its text.
_ASKING = "return_token_ids"


class TokenIds(TypedDict):
    """The token ids of an answer and of its prompt, as text."""

    round: int
    group: str
    prompt_id: str
    temperature: float
    prompt: str
    answer: str


class Scoring(TypedDict):
    """What a step scored, how many answers are left, and what ended it."""

    answers: list[ScoredAnswer]
    left: int
    seconds: float
    why: str | None


class ScoringTotal(TypedDict):
    """What scoring took in all."""

    answers: int
    left: int
    seconds: float
    why: str | None


class Score(TypedDict):
    """The figures of a scored answer; log-probabilities in nats (`score_row`)."""

    tokens: int
    misses: int
    worst: float
    mean_logprob: float
    same_text: bool | None


class ScoredAnswer(Score):
    """An answer that the baseline scored."""

    arm: NotRequired[str]
    round: int
    group: str
    prompt_id: str
    temperature: float


class Logprobs(TypedDict):
    """The log-probabilities (nats) of an answer's own tokens and of the likeliest ones, and what the ids say."""

    own: list[float]
    best: list[float]
    decoded: str
    whole: bool


# --- which answers --------------------------------------------------------------------------------


def asking_token_ids(groups: Sequence[Sequence[Ask]], most: int) -> list[tuple[Ask, ...]]:
    """The groups of a round with token ids asked for ``most`` of their answers, as many of each group.

    Short prompts first, each once. Answers that are held to a schema or a call are not the model's free choice: none
    of them.
    """
    queues = [_short_first(group) for group in groups]
    chosen: set[int] = set()
    for turn in range(max(map(len, queues), default=0)):
        left = max(0, most - len(chosen))
        for queue in queues[:left]:
            if turn < len(queue):
                chosen.add(id(queue[turn]))

    def marked(ask: Ask) -> Ask:
        if id(ask) not in chosen:
            return ask
        return replace(ask, extra={**(ask.extra or {}), _ASKING: True})

    return [tuple(map(marked, group)) for group in groups]


def _short_first(group: Sequence[Ask]) -> list[Ask]:
    """The requests of a group that a model answers freely, each prompt once, by the length of their messages."""
    by_prompt: dict[str, Ask] = {}
    for ask in reversed(group):
        if ask.stream and not ask.tools and not ask.response_format:
            by_prompt[whole_prompt(ask.prompt_id)] = ask
    return sorted(by_prompt.values(), key=lambda ask: len(json.dumps(list(ask.messages))))


def token_ids_of(record: Recording) -> TokenIds | None:
    """The token ids of an answer and of its prompt, as text; None if not asked for, or not all came."""
    if not (record.ask.extra or {}).get(_ASKING) or not record.stream:
        return None
    prompt: list[int] = []
    answer: list[int] = []
    events = split_events(bytes(record.body), record.times_s, record.ends)
    for event in events:
        try:
            document = json.loads(event.data)
        except ValueError:
            continue
        if isinstance(document, dict):
            prompt = prompt or _ids(document.get("prompt_token_ids"))
            for choice in document.get("choices") or []:
                if isinstance(choice, dict):
                    answer += _ids(choice.get("token_ids"))
    # Some versions send no ids with some of the chunks (vLLM issue 28246): what is left would be another text.
    if not prompt or not answer or len(answer) != read_answer(events).output_tokens:
        return None
    ask = record.ask
    return {
        "round": ask.round,
        "group": ask.group,
        "prompt_id": ask.prompt_id,
        "temperature": ask.temperature,
        # As text: a step's file is written a number a line.
        "prompt": " ".join(map(str, prompt)),
        "answer": " ".join(map(str, answer)),
    }


def _ids(value: object) -> list[int]:
    if not isinstance(value, list):
        return []
    return [token for token in value if isinstance(token, int)]


# --- asking the baseline --------------------------------------------------------------------------


def score_answers(endpoint: Endpoint, steps: Iterable[StepResult], tokens: int) -> Scoring:
    """Have the server at ``endpoint`` score what both arms answered to the same prompts and no step has scored yet.

    ``steps`` are those measured so far, this one last; at most ``tokens`` tokens an answer with its prompt. Returns
    ``answers`` (a row each, `score_row`), ``left`` (how many there was no time for), ``seconds`` and ``why`` nothing
    was scored, or what ended it; raises nothing for what a server says.
    """
    began_s = time.monotonic()
    rows: list[ScoredAnswer] = []
    known: dict[tuple[str, str], Logprobs] = {}
    why: str | None = None
    waiting = _waiting(list(steps))
    for arm, ids, prompt, texts in waiting:
        if time.monotonic() - began_s > SECONDS:
            why = f"the limit of {SECONDS:.0f} s was reached"
            break
        try:
            scored = known.get((prompt, ids["answer"])) or _score(endpoint, prompt, ids["answer"], tokens)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            why = endpoint.without_key(_words(error))
            # An engine that refuses one answer (too long, say) may well score the next; one that is gone does not.
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                continue
            break
        known[prompt, ids["answer"]] = scored
        rows.append(
            {
                "arm": arm,
                "round": ids["round"],
                "group": ids["group"],
                "prompt_id": ids["prompt_id"],
                "temperature": ids["temperature"],
                **score_row(scored, texts),
            }
        )
    if not waiting:
        why = "the server sent no token ids with its answers"
    left = len(waiting) - len(rows)
    return {"answers": rows, "left": left, "seconds": round(time.monotonic() - began_s, 1), "why": why}


def _waiting(steps: Sequence[StepResult]) -> list[tuple[str, TokenIds, str, tuple[str, str]]]:
    """What is to be scored, both arms' answers to a prompt next to each other: arm, ids, prompt's ids, texts."""
    answers: dict[Place, dict[str, TokenIds]] = {}
    texts: dict[tuple[str, Place], tuple[str, str]] = {}
    prompts: dict[tuple[str, str], str] = {}
    for step in steps:
        for arm in ARMS:
            measured = step["arms"].get(arm)
            if not measured or not measured.get("token_ids"):
                continue
            for ids in measured["token_ids"]:
                answers.setdefault(_place(ids), {})[arm] = ids
                if arm == "baseline":
                    prompts.setdefault((ids["group"], ids["prompt_id"]), ids["prompt"])
            for request in measured["requests"]:
                texts[arm, _place(request)] = str(request["reasoning_text"]), str(request["text"])
    scored = set()
    for scoring in _scorings(steps):
        scored |= {(answer["arm"], _place(answer)) for answer in scoring["answers"]}
    waiting = []
    for place, by_arm in answers.items():
        if len(by_arm) < len(ARMS):
            continue
        # The prompt as the baseline read it, for both: what the target would have said to that.
        prompt = prompts[place[1], place[2]]
        for arm in ARMS:
            if (arm, place) not in scored:
                waiting.append((arm, by_arm[arm], prompt, texts.get((arm, place), ("", ""))))
    return waiting


def _place(row: ScoredAnswer | TokenIds | Request) -> Place:
    return row["round"], str(row["group"]), str(row["prompt_id"])


def _scorings(steps: Iterable[StepResult]) -> list[Scoring]:
    """The scoring of each step that has one."""
    return [step["scoring"] for step in steps if step.get("scoring")]


def _score(endpoint: Endpoint, prompt: str, answer: str, tokens: int) -> Logprobs:
    """Ask for the log-probabilities of one answer; see `score_row` for what raises."""
    ids = list(map(int, prompt.split()))
    asked = list(map(int, answer.split()))[: max(1, tokens - len(ids))]
    body = {"model": endpoint.model, "prompt": ids + asked, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    request = urllib.request.Request(  # noqa: S310
        f"{endpoint.root}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **endpoint.headers},
    )
    with opener().open(request, timeout=SECONDS) as reply:
        logprobs = json.load(reply)["choices"][0]["prompt_logprobs"][len(ids) :]
    own: list[float] = []
    best: list[float] = []
    decoded = ""
    for token, entry in zip(asked, logprobs, strict=True):
        chosen = entry[str(token)]
        own.append(float(chosen["logprob"]))
        best.append(max(float(candidate["logprob"]) for candidate in entry.values()))
        decoded += str(chosen.get("decoded_token") or "")
    return {"own": own, "best": best, "decoded": decoded, "whole": len(asked) == len(answer.split())}


def score_row(scored: Logprobs, texts: Sequence[str]) -> Score:
    """The figures of one scored answer.

    ``tokens`` scored, ``misses`` (of them, those less likely than the target's own choice), ``worst`` (the largest
    such gap, in nats of log-probability), ``mean_logprob`` a token in nats, and ``same_text``: whether the ids say what
    ``texts`` say, thoughts and answer (None where that was not compared: an answer longer than what was scored).
    """
    gaps = [best - own for own, best in zip(scored["own"], scored["best"], strict=True)]
    misses = sum(gap > 0 for gap in gaps)
    same_text = None
    if scored["whole"]:
        decoded = _plain(scored["decoded"])
        same_text = all(_plain(text) in decoded for text in texts)
    return {
        "tokens": len(gaps),
        "misses": misses,
        "worst": round(max(gaps), 4),
        "mean_logprob": round(sum(scored["own"]) / len(gaps), 5),
        "same_text": same_text,
    }


def scored_rows(steps: Iterable[StepResult], arm: str) -> list[ScoredAnswer]:
    """The rows of an arm's scored answers; they stand in the steps of the baseline, which scored them."""
    rows = []
    for scoring in _scorings(steps):
        for answer in scoring["answers"]:
            if answer["arm"] == arm:
                row = answer.copy()
                del row["arm"]
                rows.append(row)
    return rows


def scoring_of(steps: Iterable[StepResult]) -> ScoringTotal | None:
    """What scoring took in all; None where no step scored."""
    scorings = _scorings(steps)
    if not scorings:
        return None
    answers, seconds, last_why = 0, 0.0, None
    for scoring in scorings:
        answers += len(scoring["answers"])
        seconds += scoring["seconds"]
        last_why = scoring["why"] or last_why
    # What one step leaves the next one takes up.
    return {"answers": answers, "left": scorings[-1]["left"], "seconds": round(seconds, 1), "why": last_why}


def _plain(text: str) -> str:
    """The printable ASCII of a text: a letter of several tokens is decoded otherwise token by token."""
    return "".join(character for character in text if "!" <= character <= "~")


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}: {' '.join(error.read().decode('utf-8', 'replace').split())[:200]}"
    return f"{type(error).__name__}: {error}"
