"""What the doctor asks a server and a gateway, from the box itself: with the key, without it, and what moves meanwhile.

Standard library only, Python 3.10: it runs with whatever Python the box has. Nothing of an answer is kept but numbers.
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
    from drafthouse.operate.doctor.types import Answered, Asked, AskedFacts, Chat, GatewayFacts, KeyFacts
    from drafthouse.profiles.resolved_types import Gateway
    from drafthouse.prompts.suite_types import RequestFields


_LOOK_S = 10.0
_GATEWAY_S = 3.0
_ERROR_LETTERS = 200
_CHAT = "/v1/chat/completions"
# What the lines have in them that `spec_metrics.parse_counters` reads; beside them, any one names the dialect.
_OF_DRAFTING = tuple({word for engine in DIALECTS.values() for word in engine.drafting_words})


def read_served_key(asked: Asked) -> tuple[KeyFacts, str]:
    """What is wrong with the API key's file, as a problem or None, and the key, which stays in this process."""
    try:
        return {"problem": None}, read_key(asked["key_file"])
    except DrafthouseError as error:
        return {"problem": error.problems[0].as_dict()}, ""


def ask(asked: Asked, key: str, timeout_s: float) -> AskedFacts:
    """What the engine answers; requests stop with the first that shows drafts, or gets no answer."""
    base = f"http://{asked['site']['host']}:{asked['site']['port']}"
    health = _got(base + asked["engine"]["health"], "")[0]
    found: AskedFacts = {
        "chats": [], "before": "", "after": "", "counters_error": "", "speculates": None, "paths": None,
        "health": health, "without_key": health, "with_key": {**health, "models": []},
    }  # fmt: skip
    if health["status"] is None:
        return found  # one that hangs is not waited for three times
    # llama.cpp shows its models to everybody. What is asked here is no whole request: it costs nobody any tokens.
    found["without_key"] = _got(f"{base}{_CHAT}", "", body=b"{}")[0]
    if health["status"] == 200:
        found["paths"] = ask_paths(asked["open_paths"], base, key)
    with_key, text = _got(f"{base}/v1/models", key)
    found["with_key"] = {**with_key, "models": _models(text)}
    if not key or health["status"] != 200 or asked["served_name"] not in found["with_key"]["models"]:
        return found
    engine = engine_of(asked["engine"]["id"])
    if engine.slots:
        found["speculates"] = engine.speculates(_got(base + engine.slots, key)[1])
    metrics = base + asked["engine"]["metrics"].get("path", "/metrics")
    found["before"], found["counters_error"] = _counters(metrics, key)
    for body in asked["chats"]:
        found["chats"].append(_chat(f"{base}{_CHAT}", key, body, timeout_s))
        found["after"], found["counters_error"] = _counters(metrics, key)
        if not found["chats"][-1]["tokens"] or _drafts(found["after"]) != _drafts(found["before"]):
            break
    return found


def _drafting(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(word in line for word in _OF_DRAFTING)]


def _drafts(text: str) -> list[int | None]:
    """The drafts, drafted tokens and accepted tokens in an engine's counters; [] where it has none of them."""
    read = list(samples(text))
    engine = dialect_of(read[0].name) if read else None
    found = engine.drafted(read) if engine else None
    if not found:
        return []
    return [found.num_drafts, found.draft_tokens, found.accepted_tokens]


def _got(url: str, key: str, timeout_s: float = 0.0, body: bytes | None = None) -> tuple[Answered, str]:
    """The status of one request, and the text of its answer. The key is in neither."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, body, headers)  # noqa: S310 (our own address)
    try:
        with opener().open(request, timeout=timeout_s or _LOOK_S) as answer:
            return {"status": int(answer.status), "error": ""}, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return {"status": error.code, "error": _without(error.read().decode("utf-8", "replace"), key)}, ""
    except urllib.error.URLError as error:
        return {"status": None, "error": _without(str(error.reason), key)}, ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"status": None, "error": _without(str(error), key)}, ""


def _without(text: str, key: str) -> str:
    if key:
        text = text.replace(key, "(key)")
    return text.strip()[:_ERROR_LETTERS]


def _models(text: str) -> list[str]:
    try:
        return [str(entry["id"]) for entry in json.loads(text)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _counters(url: str, key: str) -> tuple[str, str]:
    """The lines about drafting, and why there are none; first without the key, as `counters` does."""
    for given in ("", key):
        answer, text = _got(url, given)
        if answer["status"] == 200:
            lines = [line for line in text.splitlines() if dialect_of(line)]
            return "\n".join([*lines[:1], *_drafting("\n".join(lines[1:]))]) + "\n", ""
        if answer["status"] not in (401, 403):
            break
    return "", f"{answer['status'] or ''} {answer['error']}".strip()


def _chat(url: str, key: str, body: RequestFields, timeout_s: float) -> Chat:
    begun = time.monotonic()
    answer, text = _got(url, key, timeout_s, json.dumps(body).encode())
    try:
        completion = json.loads(text or "{}")
        tokens = int((completion.get("usage") or {}).get("completion_tokens") or 0)
        timings = completion.get("timings") or {}
        choice = (completion.get("choices") or [{}])[0]
    except (ValueError, AttributeError, LookupError, TypeError):
        why = "an answer that is not a chat completion"
        return {**answer, "error": why, "tokens": 0, "seconds": 0.0, "draft_n": None, "per_iteration": None}
    return {
        **answer,
        "tokens": tokens,
        "seconds": round(time.monotonic() - begun, 3),
        # llama.cpp leaves it out where nothing was drafted; without any timings it tells nothing.
        "draft_n": int(timings.get("draft_n") or 0) if timings else None,
        "per_iteration": choice.get("avg_decoded_tokens_per_iter"),
    }


def ask_gateway(asked: Asked, gateway: Gateway, key: str) -> GatewayFacts:
    """What is wrong with the gateway, and when its certificate ends."""
    site, certificate = asked["site"], asked["certificate"]
    found: GatewayFacts = {"problem": None, "not_after": None, "tls_error": "", "paths": None}
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
        found["paths"] = ask_gateway_paths(
            asked["open_paths"],
            asked["engine"]["health"],
            lambda method, path: request_status(gateway["port"], gateway["name"], trust, path, method=method),
        )
    except DrafthouseError as error:
        problem = error.problems[0].as_dict()
        # The last lines of its log may be among the words.
        found["problem"] = {**problem, "found": redactor([key])(problem["found"])}
    try:
        found["not_after"] = _ends(gateway["port"], gateway["name"], certificate)
    except (OSError, ValueError) as error:
        found["tls_error"] = str(error)
    return found


def _ends(port: int, name: str, certificate: str) -> float:
    """The end of the certificate that is shown, in unix seconds. Raises OSError where it is not trusted (any more)."""
    if certificate and not Path(certificate).is_file():
        raise FileNotFoundError(f"no certificate at {certificate}")
    with (
        socket.create_connection(("127.0.0.1", port), _LOOK_S) as plain,
        trust_of(certificate).wrap_socket(plain, server_hostname=name or "127.0.0.1") as secure,
    ):
        shown = secure.getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))
