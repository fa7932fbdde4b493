"""Sends the doctor's requests from the box to the engine and the gateway, and reads the draft counters around them.

Numbers, model names and error texts are kept, generated text is not. Standard library only, Python 3.10, as on the box.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from ...addons.gateway_ready import read_key, request_status, trust_of, wait_for_gateway
from ...core.errors import DrafthouseError
from ...core.http import opener
from ...core.prometheus_text import samples
from ...core.redact import redactor
from ...engines.registry import DIALECTS, dialect_of, engine_of
from ...serving.runtimes import runtime_of
from .paths import ask_gateway_paths, ask_paths

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import (
        ChatAnswer,
        DoctorOrder,
        EngineAnswers,
        GatewayFacts,
        HttpAnswer,
        KeyFacts,
    )
    from drafthouse.profiles.resolved_types import Gateway
    from drafthouse.prompts.suite_types import RequestFields


_REQUEST_S = 10.0  # of a request that generates no tokens
_GATEWAY_S = 3.0  # for the gateway to answer
_ERROR_CHARACTERS = 200
_CHAT = "/v1/chat/completions"
# Words in the counter lines that `spec_metrics.parse_counters` reads. One more line of any kind tells the engine.
_DRAFTING_WORDS = tuple({word for engine in DIALECTS.values() for word in engine.drafting_words})


def read_served_key(order: DoctorOrder) -> tuple[KeyFacts, str]:
    """The problem of the API key's file (None if it is readable), and the key, which never leaves this process.

    The key is '' if the file has a problem.
    """
    try:
        return {"problem": None}, read_key(order["key_file"])
    except DrafthouseError as error:
        return {"problem": error.problems[0].as_dict()}, ""


def ask(order: DoctorOrder, key: str, timeout_s: float) -> EngineAnswers:
    """The answers to the doctor's requests, each sent only if the answers before it allow.

    1. Health. Without an answer there is no further request.
    2. A chat request without the key; for a healthy engine also all open paths.
    3. The list of models, with the key.
    4. Only if the engine is healthy, there is a key, and the model is listed: slots, counters, and chat requests up to
       the first that fails or increases the draft counters.
    """
    base = f"http://{order['site']['host']}:{order['site']['port']}"
    health, _ = _send(base + order["engine"]["health"], key="")
    answers: EngineAnswers = {
        "chats": [], "before": "", "after": "", "counters_error": "", "speculates": None, "paths": None,
        "health": health, "without_key": health, "with_key": {**health, "models": []},
    }  # fmt: skip
    if health["status"] is None:
        return answers  # an engine that hangs would cost a timeout for each further request
    # Not /v1/models: llama.cpp lists its models without a key. The empty body generates no tokens.
    answers["without_key"], _ = _send(f"{base}{_CHAT}", key="", body=b"{}")
    if health["status"] == 200:
        answers["paths"] = ask_paths(order["open_paths"], base, key)
    with_key, models_text = _send(f"{base}/v1/models", key)
    answers["with_key"] = {**with_key, "models": _models(models_text)}
    if not key or health["status"] != 200 or order["served_name"] not in answers["with_key"]["models"]:
        return answers
    engine = engine_of(order["engine"]["id"])
    if engine.slots:
        _, slots_text = _send(base + engine.slots, key)
        answers["speculates"] = engine.speculates(slots_text)
    metrics = base + order["engine"]["metrics"].get("path", "/metrics")
    answers["before"], answers["counters_error"] = _counters(metrics, key)
    for body in order["chats"]:
        answers["chats"].append(_chat(f"{base}{_CHAT}", key, body, timeout_s))
        answers["after"], answers["counters_error"] = _counters(metrics, key)
        if not answers["chats"][-1]["tokens"] or _draft_counts(answers["after"]) != _draft_counts(answers["before"]):
            break
    return answers


def _draft_lines(text: str) -> list[str]:
    """The lines of an engine's counters that are about drafts."""
    return [line for line in text.splitlines() if any(word in line for word in _DRAFTING_WORDS)]


def _draft_counts(text: str) -> list[int | None]:
    """The numbers of drafts, draft tokens and accepted tokens in an engine's counters; [] if there are no counters."""
    counters = list(samples(text))
    dialect = dialect_of(counters[0].name) if counters else None
    counts = dialect.drafted(counters) if dialect else None
    if not counts:
        return []
    return [counts.num_drafts, counts.draft_tokens, counts.accepted_tokens]


def _send(url: str, key: str, timeout_s: float = 0.0, body: bytes | None = None) -> tuple[HttpAnswer, str]:
    """Send a request; return its status with an error text, and the body ("" on an error).

    The error text does not contain the key. It is sent if it is not "". ``timeout_s``: 0 means `_REQUEST_S`. ``body``
    makes it a POST of JSON; None makes it a GET.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, body, headers)  # noqa: S310 (our own address)
    try:
        with opener().open(request, timeout=timeout_s or _REQUEST_S) as answer:
            return {"status": int(answer.status), "error": ""}, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return {"status": error.code, "error": _error_text(error.read().decode("utf-8", "replace"), key)}, ""
    except urllib.error.URLError as error:
        return {"status": None, "error": _error_text(str(error.reason), key)}, ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"status": None, "error": _error_text(str(error), key)}, ""


def _error_text(text: str, key: str) -> str:
    """The beginning of an error's text without the key, which an engine may repeat."""
    if key:
        text = text.replace(key, "(key)")
    return text.strip()[:_ERROR_CHARACTERS]


def _models(text: str) -> list[str]:
    """The ids in the text of a list of models; [] for any other text."""
    try:
        return [str(entry["id"]) for entry in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _counters(url: str, key: str) -> tuple[str, str]:
    """The draft counters as text and "", or "" and the error. First without the key, then with it.

    Of the text only the first line that tells the engine and the lines about drafts are kept.
    """
    for given_key in ("", key):
        answer, text = _send(url, given_key)
        if answer["status"] == 200:
            lines = [line for line in text.splitlines() if dialect_of(line)]
            kept = [*lines[:1], *_draft_lines("\n".join(lines[1:]))]
            return "\n".join(kept) + "\n", ""
        if answer["status"] not in (401, 403):
            break
    return "", f"{answer['status'] or ''} {answer['error']}".strip()


def _chat(url: str, key: str, body: RequestFields, timeout_s: float) -> ChatAnswer:
    """The numbers in the answer to a chat request; no tokens, and an error text, for one that is no chat completion."""
    started = time.monotonic()
    answer, text = _send(url, key, timeout_s, json.dumps(body).encode())
    try:
        completion = json.loads(text or "{}")
        tokens = int((completion.get("usage") or {}).get("completion_tokens") or 0)
        timings = completion.get("timings") or {}
        choice = (completion.get("choices") or [{}])[0]
    except (ValueError, AttributeError, LookupError, TypeError):
        error = "an answer that is not a chat completion"
        return {**answer, "error": error, "tokens": 0, "seconds": 0.0, "draft_n": None, "per_iteration": None}
    return {
        **answer,
        "tokens": tokens,
        "seconds": round(time.monotonic() - started, 3),
        # llama.cpp omits draft_n when it drafted nothing; an answer without timings reports nothing.
        "draft_n": int(timings.get("draft_n") or 0) if timings else None,
        "per_iteration": choice.get("avg_decoded_tokens_per_iter"),
    }


def ask_gateway(order: DoctorOrder, gateway: Gateway, key: str) -> GatewayFacts:
    """The gateway's problem, its open paths, and the end of its certificate, which is read in spite of a problem."""
    site = order["site"]
    certificate = order["certificate"]
    result: GatewayFacts = {"problem": None, "not_after": None, "tls_error": "", "paths": None}
    try:
        wait_for_gateway(
            runtime_of(site["runtime"], f"{site['home']}/gateway"),
            "gateway",
            port=gateway["port"],
            name=gateway["name"],
            certificate=certificate,
            key=key,
            timeout_s=_GATEWAY_S,
        )
        trust = trust_of(certificate)
        result["paths"] = ask_gateway_paths(
            order["open_paths"],
            order["engine"]["health"],
            lambda method, path: request_status(gateway["port"], gateway["name"], trust, path, method=method),
        )
    except DrafthouseError as error:
        problem = error.problems[0].as_dict()
        # The problem may quote log lines, and with them the key.
        result["problem"] = {**problem, "found": redactor([key])(problem["found"])}
    try:
        result["not_after"] = _certificate_end(gateway["port"], gateway["name"], certificate)
    except (OSError, ValueError) as error:
        result["tls_error"] = str(error)
    return result


def _certificate_end(port: int, name: str, certificate: str) -> float:
    """The end of the gateway's certificate in unix seconds. Raises OSError if the certificate is not trusted."""
    if certificate and not Path(certificate).is_file():
        raise FileNotFoundError(f"no certificate at {certificate}")
    with (
        socket.create_connection(("127.0.0.1", port), _REQUEST_S) as connection,
        trust_of(certificate).wrap_socket(connection, server_hostname=name or "127.0.0.1") as tls,
    ):
        peer_certificate = tls.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(peer_certificate["notAfter"])))
