"""The doctor's look at weights, server and gateway: verified, answering, to the key alone, and drafting. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...bench.spec_metrics import difference, parse_counters
from ...core.format import count
from ...engines.registry import engine_of
from ...profiles.exposure import NAMED, NOBODY, exposed, told
from .addons import WATCHERS, watchers_checks
from .check import Check, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from ...bench.result_types import Counts
    from ...profiles.catalog_types import HubSource
    from ...profiles.resolved_types import Gateway
    from .types import (
        AskedFacts,
        Chat,
        DoctorFacts,
        GatewayFacts,
        KeyFacts,
        PathFacts,
        ServedFacts,
        WantedWeights,
        Wants,
        WeightFacts,
    )


BASELINE, SPECULATIVE = "baseline", "speculative"
# Let's Encrypt's certificates live 90 days and are renewed with 30 left: with fewer than these something is wrong.
CERTIFICATE_WARNS_DAYS = 14.0
_DAY_S = 86400.0
_MAKE = "make with the profile's name, which serves it again"
_LOOKUP = "lookup"


# --- weights ----------------------------------------------------------------------------------------


def weights_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return a check for each of the profile's weights."""
    return [_weights(wants, item, facts["weights"][item["id"]]) for item in wants["weights"]]


def _weights(wants: Wants, item: WantedWeights, found: WeightFacts) -> Check:
    name, needed = f"weights {item['id']}", f"every file of {item['name']} as it was verified"
    fetch = f"make weights PROFILE={wants['profile']}"
    if not found["there"]:
        return fail(name, f"nothing at {item['path']}", needed, fetch)
    if item["source"] == "path":
        return ok(name, f"{item['path']} is there; what the site put there itself is not verified")
    if found["link"]:
        return ok(name, f"{item['path']} leads to {found['link']}; make verify reads its bytes", needed)
    if not found["files"]:
        return fail(name, f"{item['path']} was never verified", needed, f"make verify PROFILE={wants['profile']}")
    if found["changed"]:
        shown = ", ".join(found["changed"][:3]) + (" …" if len(found["changed"]) > 3 else "")
        said = f"{count(len(found['changed']), 'file')} of {found['files']} missing or changed since: {shown}"
        return fail(name, said, needed, f"make verify PROFILE={wants['profile']}")
    if not found["complete"]:
        return fail(name, f"{found['files']} files, a fetch that was never finished", needed, fetch)
    if item["source"] == "hub" and not _same_revision(item["details"], found):
        said = f"{found['repo']} at {found['commit'] or found['asked']}"
        return fail(name, said, f"{item['details']['repo']} at {item['details']['revision']}", fetch)
    return ok(name, f"{count(found['files'], 'file')} as verified", needed)


def _same_revision(details: HubSource, found: WeightFacts) -> bool:
    return found["repo"] == details["repo"] and details["revision"] in (found["asked"], found["commit"])


# --- the server -------------------------------------------------------------------------------------


def server_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return the checks of what is served, of its key, its answers, its drafting, and of the gateway."""
    if facts["measured"]:
        return _meanwhile(wants, facts["key"])
    served = [one for one in facts["served"] if one["running"] and one["profile"] == wants["profile"]]
    at_port = next((one for one in served if one["port"] in (None, wants["site"]["port"])), None)
    checks = [_served(wants, facts["served"], at_port), *_drift(facts["drift"]), _key(wants, facts["key"])]
    if at_port is None:
        names = ("key required", "open paths", "engine answers", "speculation")
        checks += [not_here(name, "this profile is not served") for name in names]
    else:
        checks += [
            _required(wants, facts["asked"]),
            _open_paths(wants, facts["asked"]["paths"]),
            _answers(wants, facts, at_port),
            _speculation(wants, facts["asked"], at_port["arm"]),
        ]
    checks += _gateway(wants["gateway"], facts["gateway"], facts["clock"]["time"])
    return [*checks, *watchers_checks(wants, facts, at_port is not None)]


def _meanwhile(wants: Wants, key: KeyFacts) -> list[Check]:
    """Return the checks while arms come and go: what is asked of them now would be measured, too."""
    why = "a measurement or a change of ours is under way on this box"
    names = ("key required", "open paths", "engine answers", "speculation", "gateway", "certificate", *WATCHERS)
    return [
        warn("served", why, f"an arm of {wants['profile']}, left alone", "ask again when it has ended"),
        _key(wants, key),
        *(not_here(name, f"not asked: {why}") for name in names),
    ]


def _served(wants: Wants, found: Sequence[ServedFacts], at_port: ServedFacts | None) -> Check:
    name, needed = "served", f"an arm of {wants['profile']}"
    if at_port:
        return ok(name, f"the {at_port['arm']} arm of {wants['profile']}", needed)
    other = next((one for one in found if one["running"] and one["profile"] != wants["profile"]), None)
    if other:
        do = f"make doctor PROFILE={other['profile']} looks at that one; make {wants['profile']} serves this one"
        return fail(name, f"the {other['arm']} arm of {other['profile']}", needed, do)
    mine = next((one for one in found if one["profile"] == wants["profile"]), None)
    said = f"the {mine['arm']} arm does not run: {mine['why']}" if mine else "nothing of ours"
    return fail(name, said, needed, f"make logs shows its last lines; {_MAKE}")


def _drift(why: str) -> list[Check]:
    """Return what runs otherwise than it was served, by the box's own history; nothing where the two agree."""
    do = "make rollback serves the last good server again, make with the profile's name what the clone says now"
    return [fail("as it was served", why, "the files and the arm of the release in make history", do)] if why else []


def _key(wants: Wants, key: KeyFacts) -> Check:
    name = "API key"
    if key["problem"]:
        return of_problem(name, key["problem"])
    return ok(name, f"{wants['key_file']}, which only its owner may read", "a key that only its owner may read")


def _required(wants: Wants, asked: AskedFacts) -> Check:
    name, needed = "key required", "401 or 403 to a request without the key"
    if not wants["engine"]["has_key"]:
        if wants["gateway"]:
            return not_here(name, f"{wants['engine']['name']} asks for none; the gateway in front does")
        do = "set drafthouse_gateway: true; until then leave it on loopback, and reach it with make tunnel"
        return warn(name, f"{wants['engine']['name']} asks nobody for a key", "a gateway that asks for it", do)
    without = asked["without_key"]
    if without["status"] in (401, 403):
        return ok(name, f"{without['status']} without it", needed)
    if without["status"] is None or asked["health"]["status"] != 200:
        return not_here(name, f"it does not answer yet: {without['error'] or without['status']}")
    return fail(name, f"{without['status']} to a chat request without the key", needed, _MAKE)


def _open_paths(wants: Wants, paths: PathFacts | None) -> Check:
    """Return whether the engine gives something away without the key to whoever reaches it, path by path."""
    name, needed = "open paths", "401, 403 or 404 to every path without the key, where others reach the engine"
    if paths is None:
        return not_here(name, "it does not answer yet")
    if paths["error"]:
        return warn(name, f"{paths['error']}, after {paths['asked']} paths", needed, "make logs; ask again")
    who = wants["open_paths"]["reach"]
    counts = exposed(paths["open"], who)
    if counts:
        whom = "those whom drafthouse_allow_cidrs names" if who == NAMED else "anybody"
        do = f"set drafthouse_gateway: true, or empty drafthouse_allow_cidrs and reach it by make tunnel; {_MAKE}"
        return fail(name, f"without a key {whom} can ask for {told(counts)}", needed, do)
    said = f"{count(paths['asked'], 'path')} asked without the key"
    if who == NOBODY and (open_here := told(paths["open"])):
        return ok(name, f"{said}; open on loopback alone: {open_here}", needed)
    return ok(name, f"{said}: nothing is given away", needed)


def _answers(wants: Wants, facts: DoctorFacts, at_port: ServedFacts) -> Check:
    asked, now = facts["asked"], facts["clock"]["time"]
    name, needed = "engine answers", f"tokens from the model '{wants['served_name']}'"
    look = f"make logs; {_MAKE}"
    if asked["health"]["status"] != 200:
        age = now - at_port["since"] if at_port["since"] else math.inf
        said = asked["health"]["error"] or f"{asked['health']['status']} to {wants['engine']['health']}"
        # One that loads refuses, or says 503. One that takes a connection and says nothing hangs.
        if age < wants["engine"]["ready_timeout_s"] and "timed out" not in said:
            do = "wait: it may be loading; make logs FOLLOW=1 shows how far it is"
            return warn(name, f"not yet, {age:.0f} s after its start: {said}", needed, do)
        return fail(name, said, needed, look)
    if facts["key"]["problem"]:
        return not_here(name, "it is there; without a key to ask with it was asked nothing")
    models = asked["with_key"]
    # Who shows the models to everybody refuses the request alone.
    refused = [one["status"] for one in (models, *asked["chats"]) if one["status"] in (401, 403)]
    if refused:
        do = f"{_MAKE}: it was started with another key"
        return fail(name, f"{refused[0]} with the key of {wants['key_file']}", needed, do)
    if wants["served_name"] not in models["models"]:
        said = models["error"] or f"it serves {', '.join(models['models']) or 'nothing'}"
        return fail(name, said, needed, f"end what listens on port {wants['site']['port']}; {_MAKE}")
    good = [chat for chat in asked["chats"] if chat["tokens"]]
    if len(good) < len(asked["chats"]) or not good:
        bad = next((chat for chat in asked["chats"] if not chat["tokens"]), {"status": None, "error": "not asked"})
        return fail(name, f"{bad['status'] or 'no answer'}: {bad['error'] or 'an answer without tokens'}", needed, look)
    tokens, seconds = sum(chat["tokens"] for chat in good), sum(chat["seconds"] for chat in good)
    return ok(name, f"{tokens} tokens in {seconds:.2f} s, {count(len(good), 'request')}", needed)


def _speculation(wants: Wants, asked: AskedFacts, arm: str) -> Check:
    name, needed = "speculation", "drafts: counters that move while it answers"
    if not any(chat["tokens"] for chat in asked["chats"]):
        return not_here(name, "the engine does not answer")
    before, after = parse_counters(asked["before"]), parse_counters(asked["after"])
    moved = difference(before, after)
    drafted, requests = _drafted(moved, asked["chats"]), count(len(asked["chats"]), "request")
    if arm != SPECULATIVE:
        if drafted:
            return fail(name, f"the {arm} arm drafted {drafted:.0f} tokens", "an arm that does not", _MAKE)
        return not_here(name, f"the {arm} arm is served: the verdict, serve_arm or the watchdog chose it")
    if drafted:
        accepted = moved["accepted_tokens"] if moved else None
        said = f"{drafted:.0f} tokens drafted" + ("" if accepted is None else f", {accepted} accepted")
        if moved is None and all(chat["draft_n"] is None for chat in asked["chats"]):
            said = "several tokens a step, by its answers"
        return ok(name, f"{said} in {requests}", needed)
    if drafted is None:
        since = engine_of(wants["engine"]["id"]).see_drafts
        do = f"ask for its counters by hand{f': {since}' if since else ''}"
        return warn(
            name, f"neither counters nor answers tell: {asked['counters_error'] or 'no such lines'}", needed, do
        )
    without = asked["speculates"] is False
    if after["present"] and wants["method"]["kind"] == _LOOKUP and not without:
        do = "see its counters under the traffic that it is for; a lookup drafts only what it finds again"
        return warn(name, f"nothing drafted in {requests} that repeat their text", needed, do)
    said = "its counters did not move" if after["present"] else "it has no counters of drafts: it runs without"
    said = "none of its slots speculates: it runs without" if without else said
    do = f"compare serve.sh on the box with make render PROFILE={wants['profile']}; {_MAKE}"
    return fail(name, f"{said}, {requests}", needed, do)


def _drafted(moved: Counts | None, chats: Sequence[Chat]) -> float | None:
    """Return how many tokens were drafted by the counters, else by the answers; None where neither tells.

    Of TensorRT-LLM's answers only that something was accepted can be known: then it is 1 or more.
    """
    told = [float(chat["draft_n"]) for chat in chats if chat["draft_n"] is not None]
    if moved is not None and moved["draft_tokens"] is not None:
        return float(max([moved["draft_tokens"], *told]))
    if told:
        return sum(told)
    several = [chat for chat in chats if (chat["per_iteration"] or 0) > 1.0]
    return float(len(several)) if several else None


# --- the gateway ------------------------------------------------------------------------------------


def _gateway(wished: Gateway | None, gateway: GatewayFacts, now: float) -> list[Check]:
    if not wished:
        why = "drafthouse_gateway is not set"
        return [not_here("gateway", why), not_here("certificate", why)]
    name, needed = "gateway", "TLS, 401 without the key, 200 with it, 404 for everything that is not the API"
    if gateway["problem"]:
        first = of_problem(name, gateway["problem"])
    elif gateway["paths"] and (counts := gateway["paths"]["open"]):
        do = "run playbooks/gateway.yml, which writes its files anew"
        first = fail(name, f"without a key it lets through {', '.join(one['path'] for one in counts)}", needed, do)
    else:
        first = ok(name, f"port {wished['port']} answers as it must", needed)
    return [first, _certificate(wished["name"], gateway, now)]


def _certificate(domain: str, gateway: GatewayFacts, now: float) -> Check:
    name, needed = "certificate", f"one that holds for {CERTIFICATE_WARNS_DAYS:.0f} days or more"
    if gateway["not_after"] is None:
        do = "run playbooks/gateway.yml, which makes or asks for another one; see also the check 'clock'"
        return fail(name, gateway["tls_error"] or "none was shown", needed, do)
    days = (gateway["not_after"] - now) / _DAY_S
    if days < CERTIFICATE_WARNS_DAYS:
        do = "run playbooks/gateway.yml"
        if domain:
            do = f"see that {domain} still leads here and port 80 or 443 is open to the authority"
        return warn(name, f"it ends in {days:.1f} days", needed, do)
    return ok(name, f"it ends in {days:,.0f} days", needed)
