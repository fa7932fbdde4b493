"""How a request ended, and why when it did not end well."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urljoin

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint, Recording
    from drafthouse.bench.sse import Answer

NotWell = Literal["failed", "cut_off", "empty", "no_usage"]
Status = Literal["ok", NotWell]
OK: Final = "ok"
FAILED: Final = "failed"
CUT_OFF: Final = "cut_off"
EMPTY: Final = "empty"
NO_USAGE: Final = "no_usage"
#: How a request can end. Only "ok" is ever averaged.
STATUSES = (OK, FAILED, CUT_OFF, EMPTY, NO_USAGE)
#: Statuses that name another address (RFC 9110, section 15.4).
REDIRECTS = (301, 302, 303, 307, 308)
#: How much of a server's error message is kept.
MESSAGE_CHARACTERS = 300


def outcome_of(record: Recording, answer: Answer, endpoint: Endpoint) -> tuple[Status, str | None]:
    """How the request ended, and why when it did not end well."""
    failure = _failure(record, endpoint)
    if failure:
        return FAILED, failure
    if answer.error:
        where = "stream" if record.stream else "answer"
        return FAILED, f"an error inside the {where}: {_cut(answer.error, endpoint)}"
    if record.error and not record.body:
        return FAILED, record.error
    if not answer.done:
        # Also behind a finish_reason: what a proxy or a dying engine cut off may have been the usage, or a last chunk.
        without = "" if answer.finish_reason else " and without a finish_reason"
        return CUT_OFF, record.error or f"the stream ended without [DONE]{without}"
    if not answer.token_times_s:
        return EMPTY, "the answer contains no tokens"
    if not answer.output_tokens:
        return NO_USAGE, (
            f"the server counted {answer.output_tokens} output tokens (usage.completion_tokens), but "
            f"{len(answer.token_times_s)} chunks contained tokens"
        )
    return OK, None


def _failure(record: Recording, endpoint: Endpoint) -> str | None:
    """Why a request failed as HTTP has it: no answer, a redirect, an error's status, another form of the body."""
    if record.http_status is None:
        return record.error or "no answer"
    if record.location:
        where = _cut(urljoin(endpoint.chat_url, record.location), endpoint)
        return f"HTTP {record.http_status}: the server redirects to {where}; use that address as the base URL"
    if record.encoding:
        return (
            f"the answer is compressed (Content-Encoding: {_cut(record.encoding, endpoint)}) but was requested "
            "uncompressed; turn compression off in the server or in the proxy before it"
        )
    if record.http_status == 200 and (record.stream or not record.ask.stream):
        return None
    message = _cut(_message(bytes(record.body)), endpoint) or record.error or "no text"
    if record.http_status == 200:
        return f"the answer is not an event stream: {message}"
    if record.body and record.error:
        message += f"; {record.error}"
    return f"HTTP {record.http_status}: {message}"


def _message(body: bytes) -> str:
    """The readable part of an error document."""
    text = body.decode("utf-8", "replace").strip()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(document, dict):
        problem = document.get("error", document)
        message = problem.get("message") if isinstance(problem, dict) else problem
        text = str(message or text)
    return text


def _cut(text: str, endpoint: Endpoint) -> str:
    """As much of a server's message as is kept; the key goes first, for half of one would not be found."""
    return endpoint.without_key(text)[:MESSAGE_CHARACTERS]
