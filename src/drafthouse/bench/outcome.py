"""Classify how a request ended: its status, and the reason where the status is not "ok".

- ok: a complete answer with tokens that the server counted
- failed: no answer, an HTTP error, or an error inside the answer
- cut_off: the answer ended before its end mark
- empty: a complete answer without tokens
- no_usage: a complete answer whose tokens the server did not count
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urljoin

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint, Recording
    from drafthouse.bench.sse import Answer

NotOk = Literal["failed", "cut_off", "empty", "no_usage"]
Status = Literal["ok", NotOk]
OK: Final = "ok"
FAILED: Final = "failed"
CUT_OFF: Final = "cut_off"
EMPTY: Final = "empty"
NO_USAGE: Final = "no_usage"
#: All statuses of a request. Only requests with status "ok" enter means and medians.
STATUSES = (OK, FAILED, CUT_OFF, EMPTY, NO_USAGE)
#: HTTP statuses of a redirect (RFC 9110, section 15.4).
REDIRECTS = (301, 302, 303, 307, 308)
#: Length to which a server's error message is cut, in characters.
MESSAGE_CHARACTERS = 300


def outcome_of(record: Recording, answer: Answer, endpoint: Endpoint) -> tuple[Status, str | None]:
    """The status of a request, and the reason why it is not "ok" (None if it is); the first cause counts."""
    failure = _failure(record, endpoint)
    if failure:
        return FAILED, failure
    if answer.error:
        medium = "stream" if record.stream else "answer"
        return FAILED, f"an error inside the {medium}: {_shortened(answer.error, endpoint)}"
    if record.error and not record.body:
        return FAILED, record.error
    if not answer.done:
        # Even after a finish_reason: the missing rest may have been the usage or a last chunk of text.
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
    """The reason of a failure at the HTTP level, such as a redirect or an error status; None if there is none."""
    if record.http_status is None:
        return record.error or "no answer"
    if record.location:
        address = _shortened(urljoin(endpoint.chat_url, record.location), endpoint)
        return f"HTTP {record.http_status}: the server redirects to {address}; use that address as the base URL"
    if record.encoding:
        return (
            f"the answer is compressed (Content-Encoding: {_shortened(record.encoding, endpoint)}) but was requested "
            "uncompressed; turn compression off in the server or in the proxy before it"
        )
    if record.http_status == 200 and (record.stream or not record.request.stream):
        return None
    message = _shortened(_error_message(bytes(record.body)), endpoint) or record.error or "no text"
    if record.http_status == 200:
        return f"the answer is not an event stream: {message}"
    if record.body and record.error:
        message += f"; {record.error}"
    return f"HTTP {record.http_status}: {message}"


def _error_message(body: bytes) -> str:
    """The message inside an error response's JSON (`error.message`, `error` or `message`), otherwise the whole body."""
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


def _shortened(text: str, endpoint: Endpoint) -> str:
    """A server's message without the API key, cut to `MESSAGE_CHARACTERS`.

    The key is removed before the cut, because half of a key would not be recognised.
    """
    return endpoint.without_key(text)[:MESSAGE_CHARACTERS]
