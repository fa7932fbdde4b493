"""Score answers with the baseline server: how likely each token was to the target model without speculation.

The prompt and the answer are sent together as one prompt of token ids to ``/v1/completions`` with ``prompt_logprobs``.
vLLM then returns the log-probability of each token and of the token it would have chosen. One answer costs one prefill,
outside every timed group. The ids come from the engine (``return_token_ids``), because tokenising the text again might
give different ones. An arm is one of the two compared servers, "baseline" or "speculative".

The cost is limited: `ANSWERS` answers of each arm in a round, short prompts first; prompt and answer together have at
most `scores.tokens` tokens of the catalogue (each takes logits over the whole vocabulary); `SECONDS` in total.
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

    from drafthouse.bench.chat_request import ChatRequest
    from drafthouse.bench.client import Endpoint, Recording
    from drafthouse.bench.result_types import Request, StepResult

#: Identifies an answer within an arm: the round, the group (prompt kind and temperature) and the prompt id.
AnswerKey = tuple[int, str, str]

#: Answers of each arm that are scored in a round.
ANSWERS = 24
#: Time limit of a step's scoring, and of each of its requests, in seconds. The first request may compile a kernel:
#: vLLM 0.32.0 on two cores took 18 s for it.
SECONDS = 120.0
ARMS = ("baseline", "speculative")
#: The request field that makes vLLM return the token ids of prompt and answer.
_IDS_FIELD = "return_token_ids"


class TokenIds(TypedDict):
    """The token ids of a prompt and its answer."""

    round: int
    group: str  # from `groups.group_key`
    prompt_id: str
    temperature: float
    prompt: str  # decimal ids, separated by spaces
    answer: str  # decimal ids, separated by spaces


class Scoring(TypedDict):
    """The scoring of a step."""

    answers: list[ScoredAnswer]  # those scored in this step, also from earlier steps
    left: int  # answers that are still unscored
    seconds: float  # time that the scoring took
    why: str | None  # why some are unscored, the last reason; None: none failed


class ScoringTotal(TypedDict):
    """The sums over all steps."""

    answers: int  # scored
    left: int  # still unscored after the last step
    seconds: float
    why: str | None  # the last step's reason that has one; None: none failed


class Score(TypedDict):
    """The figures of a scored answer; log-probabilities are in nats."""

    tokens: int  # that were scored
    misses: int  # of these, the ones less likely than the token that the target would have chosen
    worst: float  # the largest gap to that token's log-probability
    mean_logprob: float  # per token
    same_text: bool | None  # True if the ids are those of the answer's text; None: not scored to its end


class ScoredAnswer(Score):
    """The score of one answer with what identifies the answer; ``arm`` is the server that generated it."""

    arm: NotRequired[str]
    round: int
    group: str
    prompt_id: str
    temperature: float


class Logprobs(TypedDict):
    """Log-probabilities in nats, one for each scored token of an answer."""

    own: list[float]  # of the answer's token
    best: list[float]  # of the token that the target would have chosen
    decoded: str  # the text of the scored tokens
    whole: bool  # True if the answer was scored to its end


# --- which answers --------------------------------------------------------------------------------


def asking_token_ids(groups: Sequence[Sequence[ChatRequest]], max_answers: int) -> list[tuple[ChatRequest, ...]]:
    """The groups of a round, with token ids requested for at most ``max_answers``, spread evenly over the groups.

    Short prompts come first, each prompt once. Answers that a schema or tools constrain are left out, because the
    model did not choose their tokens freely.
    """
    queues = [_short_first(group) for group in groups]
    chosen: set[int] = set()  # by id()
    for position in range(max(map(len, queues), default=0)):  # the first of each group, then the second of each, ...
        left = max(0, max_answers - len(chosen))
        for queue in queues[:left]:  # one answer of each group, while any are left
            if position < len(queue):
                chosen.add(id(queue[position]))

    def with_token_ids(request: ChatRequest) -> ChatRequest:
        if id(request) not in chosen:
            return request
        return replace(request, extra={**(request.extra or {}), _IDS_FIELD: True})

    return [tuple(map(with_token_ids, group)) for group in groups]


def _short_first(group: Sequence[ChatRequest]) -> list[ChatRequest]:
    """The requests of a group without schema and tools, each prompt once, the shortest messages first."""
    by_prompt: dict[str, ChatRequest] = {}
    for request in reversed(group):  # reversed, so that the first of a prompt's repeats stays
        if request.stream and not request.tools and not request.response_format:
            by_prompt[whole_prompt(request.prompt_id)] = request
    return sorted(by_prompt.values(), key=lambda request: len(json.dumps(list(request.messages))))


def token_ids_of(record: Recording) -> TokenIds | None:
    """The token ids of a recorded answer and its prompt; None if they were not requested or are incomplete.

    Events that are no JSON are skipped: `outcome_of` reports them.
    """
    if not (record.request.extra or {}).get(_IDS_FIELD) or not record.stream:
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
    # Some vLLM versions leave the ids out of some chunks (vLLM issue 28246); the remaining ids are another text.
    if not prompt or not answer or len(answer) != read_answer(events).output_tokens:
        return None
    request = record.request
    return {
        "round": request.round,
        "group": request.group,
        "prompt_id": request.prompt_id,
        "temperature": request.temperature,
        # Stored as text: as JSON lists they would take one line of the step's file for each id.
        "prompt": " ".join(map(str, prompt)),
        "answer": " ".join(map(str, answer)),
    }


def _ids(value: object) -> list[int]:
    """The token ids in a value of an event; [] if it is no list."""
    if not isinstance(value, list):
        return []
    return [token for token in value if isinstance(token, int)]


# --- asking the baseline --------------------------------------------------------------------------


def score_answers(endpoint: Endpoint, steps: Iterable[StepResult], tokens: int) -> Scoring:
    """Let the baseline server at ``endpoint`` score all answers that both arms gave and no step has scored yet.

    ``steps`` are all steps measured so far, the current one last. ``tokens`` is the largest length of a prompt with its
    answer. A failed request raises nothing: its error is the ``why`` of the result. After an HTTP status below 500 the
    next answer is scored; any other error ends the scoring, as does the end of its time.
    """
    began_s = time.monotonic()
    scores: list[ScoredAnswer] = []
    by_token_ids: dict[tuple[str, str], Logprobs] = {}  # answers of both arms are often equal: one request for both
    why: str | None = None
    unscored = _unscored_answers(list(steps))
    for arm, ids, prompt, texts in unscored:
        if time.monotonic() - began_s > SECONDS:
            why = f"the limit of {SECONDS:.0f} s was reached"
            break
        try:
            scored = by_token_ids.get((prompt, ids["answer"])) or _score(endpoint, prompt, ids["answer"], tokens)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            why = endpoint.without_key(_error_text(error))
            # An engine that refuses this request, for its length for example, may still score the next answer.
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                continue
            break
        by_token_ids[prompt, ids["answer"]] = scored
        scores.append(
            {
                "arm": arm,
                "round": ids["round"],
                "group": ids["group"],
                "prompt_id": ids["prompt_id"],
                "temperature": ids["temperature"],
                **score_row(scored, texts),
            }
        )
    if not unscored:
        why = "the server sent no token ids with its answers"
    left = len(unscored) - len(scores)
    return {"answers": scores, "left": left, "seconds": round(time.monotonic() - began_s, 1), "why": why}


def _unscored_answers(steps: Sequence[StepResult]) -> list[tuple[str, TokenIds, str, tuple[str, str]]]:
    """Unscored answers to prompts that both arms answered: (arm, token ids, prompt's ids, (reasoning, text)).

    The prompt's ids are decimal numbers separated by spaces, as in `TokenIds`.
    """
    ids_by_key: dict[AnswerKey, dict[str, TokenIds]] = {}
    texts: dict[tuple[str, AnswerKey], tuple[str, str]] = {}
    prompts: dict[tuple[str, str], str] = {}
    for step in steps:
        for arm in ARMS:
            measured = step["arms"].get(arm)
            if not measured or not measured.get("token_ids"):
                continue
            for ids in measured["token_ids"]:
                ids_by_key.setdefault(_answer_key(ids), {})[arm] = ids
                if arm == "baseline":
                    prompts.setdefault((ids["group"], ids["prompt_id"]), ids["prompt"])
            for request in measured["requests"]:
                texts[arm, _answer_key(request)] = str(request["reasoning_text"]), str(request["text"])
    scored = set()
    for scoring in _scorings(steps):
        scored |= {(answer["arm"], _answer_key(answer)) for answer in scoring["answers"]}
    unscored = []
    for key, by_arm in ids_by_key.items():
        if len(by_arm) < len(ARMS):
            continue
        # Both answers are scored behind the same prompt ids, those that the baseline reported.
        prompt = prompts[key[1], key[2]]
        for arm in ARMS:
            if (arm, key) not in scored:
                unscored.append((arm, by_arm[arm], prompt, texts.get((arm, key), ("", ""))))
    return unscored


def _answer_key(item: ScoredAnswer | TokenIds | Request) -> AnswerKey:
    return item["round"], str(item["group"]), str(item["prompt_id"])


def _scorings(steps: Iterable[StepResult]) -> list[Scoring]:
    """The scorings of the steps; a step without one is left out."""
    return [step["scoring"] for step in steps if step.get("scoring")]


def _score(endpoint: Endpoint, prompt: str, answer: str, tokens: int) -> Logprobs:
    """Request the log-probabilities of one answer. Raises what `score_answers` catches, for an unusable reply.

    ``prompt`` and ``answer`` are token ids as in `TokenIds`; the answer is cut so that both have at most ``tokens``.
    """
    prefix = list(map(int, prompt.split()))
    # At least one token, because a mean over no tokens does not exist; the engine refuses what is too long for it.
    scored = list(map(int, answer.split()))[: max(1, tokens - len(prefix))]
    body = {"model": endpoint.model, "prompt": prefix + scored, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}
    request = urllib.request.Request(  # noqa: S310
        f"{endpoint.root}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **endpoint.headers},
    )
    with opener().open(request, timeout=SECONDS) as reply:
        logprobs = json.load(reply)["choices"][0]["prompt_logprobs"][len(prefix) :]
    own: list[float] = []
    best: list[float] = []
    decoded = ""
    for token, entry in zip(scored, logprobs, strict=True):
        chosen = entry[str(token)]
        own.append(float(chosen["logprob"]))
        best.append(max(float(candidate["logprob"]) for candidate in entry.values()))
        decoded += str(chosen.get("decoded_token") or "")
    return {"own": own, "best": best, "decoded": decoded, "whole": len(scored) == len(answer.split())}


def score_row(scored: Logprobs, texts: Sequence[str]) -> Score:
    """The figures of one scored answer; ``texts`` are its reasoning and text, which the decoded ids have to contain."""
    gaps = [best - own for own, best in zip(scored["own"], scored["best"], strict=True)]
    misses = sum(gap > 0 for gap in gaps)
    same_text = None
    if scored["whole"]:
        decoded = _printable_ascii(scored["decoded"])
        same_text = all(_printable_ascii(text) in decoded for text in texts)
    return {
        "tokens": len(gaps),
        "misses": misses,
        "worst": round(max(gaps), 4),
        "mean_logprob": round(sum(scored["own"]) / len(gaps), 5),
        "same_text": same_text,
    }


def scored_rows(steps: Iterable[StepResult], arm: str) -> list[ScoredAnswer]:
    """The scores of an arm's answers, without the key ``arm``, from the steps in which the baseline scored them."""
    scores = []
    for scoring in _scorings(steps):
        for answer in scoring["answers"]:
            if answer["arm"] == arm:
                score = answer.copy()
                del score["arm"]
                scores.append(score)
    return scores


def scoring_of(steps: Iterable[StepResult]) -> ScoringTotal | None:
    """The sums over the scorings of all steps; None if no step has one."""
    scorings = _scorings(steps)
    if not scorings:
        return None
    answers = 0
    seconds = 0.0
    last_why = None
    for scoring in scorings:
        answers += len(scoring["answers"])
        seconds += scoring["seconds"]
        last_why = scoring["why"] or last_why
    # The next step scores what one step left, so only the last ``left`` counts.
    return {"answers": answers, "left": scorings[-1]["left"], "seconds": round(seconds, 1), "why": last_why}


def _printable_ascii(text: str) -> str:
    """The printable ASCII of a text: decoding token by token breaks characters that take several tokens."""
    return "".join(character for character in text if "!" <= character <= "~")


def _error_text(error: Exception) -> str:
    """An error in words, with the beginning of the server's answer if it is an HTTP status."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}: {' '.join(error.read().decode('utf-8', 'replace').split())[:200]}"
    return f"{type(error).__name__}: {error}"
