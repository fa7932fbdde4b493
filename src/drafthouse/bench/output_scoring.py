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
    queues = []
    for group in groups:
        free = [ask for ask in reversed(group) if ask.stream and not ask.tools and not ask.response_format]
        once = {whole_prompt(ask.prompt_id): ask for ask in free}
        queues.append(sorted(once.values(), key=lambda ask: len(json.dumps(list(ask.messages)))))
    chosen: set[int] = set()
    for turn in range(max(map(len, queues), default=0)):
        chosen |= {id(queue[turn]) for queue in queues[: max(0, most - len(chosen))] if turn < len(queue)}

    def marked(ask: Ask) -> Ask:
        return replace(ask, extra={**(ask.extra or {}), _ASKING: True}) if id(ask) in chosen else ask

    return [tuple(map(marked, group)) for group in groups]


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
                answer += _ids(choice.get("token_ids")) if isinstance(choice, dict) else []
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
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []


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
    for arm, one, prompt, texts in waiting:
        if time.monotonic() - began_s > SECONDS:
            why = f"the limit of {SECONDS:.0f} s was reached"
            break
        try:
            scored = known.get((prompt, one["answer"])) or _score(endpoint, prompt, one["answer"], tokens)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            why = endpoint.without_key(_words(error))
            # An engine that refuses one answer (too long, say) may well score the next; one that is gone does not.
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                continue
            break
        known[prompt, one["answer"]] = scored
        rows.append(
            {
                "arm": arm,
                "round": one["round"],
                "group": one["group"],
                "prompt_id": one["prompt_id"],
                "temperature": one["temperature"],
                **score_row(scored, texts),
            }
        )
    if not waiting:
        why = "the server sent no token ids with its answers"
    left = len(waiting) - len(rows)
    return {"answers": rows, "left": left, "seconds": round(time.monotonic() - began_s, 1), "why": why}


def _waiting(steps: Sequence[StepResult]) -> list[tuple[str, TokenIds, str, tuple[str, str]]]:
    """What is to be scored, both arms' answers to a prompt next to each other: arm, ids, prompt's ids, texts."""
    kept: dict[Place, dict[str, TokenIds]] = {}
    texts: dict[tuple[str, Place], tuple[str, str]] = {}
    prompts: dict[tuple[str, str], str] = {}
    done = set()
    for step in steps:
        done |= {(row["arm"], _key(row)) for row in (step["scoring"]["answers"] if step.get("scoring") else [])}
        for arm in ARMS:
            measured = step["arms"].get(arm)
            if not measured or not measured.get("token_ids"):
                continue
            for one in measured["token_ids"]:
                kept.setdefault(_key(one), {})[arm] = one
                if arm == "baseline":
                    prompts.setdefault((one["group"], one["prompt_id"]), one["prompt"])
            texts |= {(arm, _key(r)): (str(r["reasoning_text"]), str(r["text"])) for r in measured["requests"]}
    return [
        # The prompt as the baseline read it, for both: what the target would have said to that.
        (arm, both[arm], prompts[key[1], key[2]], texts.get((arm, key), ("", "")))
        for key, both in kept.items()
        if len(both) == len(ARMS)
        for arm in ARMS
        if (arm, key) not in done
    ]


def _key(row: ScoredAnswer | TokenIds | Request) -> Place:
    return row["round"], str(row["group"]), str(row["prompt_id"])


def _score(endpoint: Endpoint, prompt: str, answer: str, tokens: int) -> Logprobs:
    """Ask for the log-probabilities of one answer; see `score_row` for what raises."""
    ids = [int(one) for one in prompt.split()]
    asked = [int(one) for one in answer.split()][: max(1, tokens - len(ids))]
    body = {"model": endpoint.model, "prompt": ids + asked, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    request = urllib.request.Request(  # noqa: S310
        f"{endpoint.root}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **endpoint.headers},
    )
    with opener().open(request, timeout=SECONDS) as reply:
        told = json.load(reply)["choices"][0]["prompt_logprobs"][len(ids) :]
    own: list[float] = []
    best: list[float] = []
    decoded = ""
    for token, entry in zip(asked, told, strict=True):
        chosen = entry[str(token)]
        own.append(float(chosen["logprob"]))
        best.append(max(float(one["logprob"]) for one in entry.values()))
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
    told = [step["scoring"] for step in steps if step.get("scoring")]
    rows = [row.copy() for one in told for row in one["answers"] if row["arm"] == arm]
    for row in rows:
        del row["arm"]
    return rows


def scoring_of(steps: Iterable[StepResult]) -> ScoringTotal | None:
    """What scoring took in all; None where no step scored."""
    told = [step["scoring"] for step in steps if step.get("scoring")]
    if not told:
        return None
    answers = sum(len(one["answers"]) for one in told)
    seconds = sum(one["seconds"] for one in told)
    last_why = next((one["why"] for one in reversed(told) if one["why"]), None)
    # What one step leaves the next one takes up.
    return {"answers": answers, "left": told[-1]["left"], "seconds": round(seconds, 1), "why": last_why}


def _plain(text: str) -> str:
    """The printable ASCII of a text: a letter of several tokens is decoded otherwise token by token."""
    return "".join(character for character in text if "!" <= character <= "~")


def _words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}: {' '.join(error.read().decode('utf-8', 'replace').split())[:200]}"
    return f"{type(error).__name__}: {error}"
