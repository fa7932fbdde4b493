"""Open paths: what the catalogue knows of them, whom preflight refuses, and what the doctor asks; nothing begins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web

from drafthouse.addons.gateway_ready import request_status, trust_of
from drafthouse.operate.checks.registry import preflight_problems
from drafthouse.operate.doctor.paths import ask_gateway_paths, ask_paths
from drafthouse.operate.doctor.probe import ask_gateway
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.exposure import ANYBODY, NAMED, NOBODY, exposed, exposure_problems, open_paths, reach
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.fakes.in_thread import in_thread
from tests.fakes.stepping_server import stepping_server
from tests.support.gateway import KEY, real_caddy, settings_for, started
from tests.unit.operate.checks.test_preflight import box

pytestmark = pytest.mark.processes

ENGINES = load_catalog(ROOT).engines
LAN: Any = {"allow_cidrs": ["192.168.1.0/24"]}
VLLM, TRTLLM, LLAMACPP = "rtx6000-qwen-eagle3", "rtx6000-gptoss-trtllm-eagle3", "rtx4090-llama32-llamacpp-draft1b"


def resolved(profile: str = VLLM, inventory: str = "workstation", **site: Any) -> Any:
    return resolved_profile(profile, {**site_of_inventory(inventory), **site})


def open_of(engine: str, version: str, who: str = NAMED) -> set[str]:
    routes = open_paths(ENGINES[engine], version)["routes"]
    return {route["path"] for route in exposed([route for route in routes if route["open"]], who)}


# --- what is known ----------------------------------------------------------------------------------


def test_vllms_key_guards_prefixes_and_not_invocations() -> None:
    found = open_of("vllm", "0.32.0")
    assert {"/invocations", "/tokenize", "/generative_scoring", "/scale_elastic_ep", "/metrics"} <= found
    assert not {"/inference/v1/generate", "/v2/rerank", "/health", "/version", "/docs", "/pause"} & found
    # Before the key stood before /inference it made the engine compute, too.
    assert {"/invocations", "/inference/v1/generate", "/v2/rerank", "/pause"} <= open_of("vllm", "0.15.1")
    assert open_of("vllm-arctic", "0.26.0") >= {"/invocations"}
    assert open_of("vllm", "nightly") >= {"/invocations"}


def test_without_a_key_of_its_own_everything_is_open() -> None:
    assert {"/v1/chat/completions", "/health_generate", "/metrics"} <= open_of("trtllm", "1.2.1")


def test_llamacpp_gives_nothing_but_room_in_its_memory() -> None:
    version = ENGINES["llamacpp"]["default_version"]
    assert open_of("llamacpp", version, NAMED) == set()
    assert open_of("llamacpp", version, ANYBODY) == {"/", "/health", "/v1/health", "/index.html"}


def test_every_engine_says_what_is_open_in_every_version() -> None:
    for engine in ENGINES.values():
        for version in engine["versions"]:
            facts = open_paths(engine, version)
            assert facts["routes"], engine["name"]
            assert all(route["path"].startswith("/") for route in facts["routes"])


@pytest.mark.parametrize(
    ("site", "who"),
    [
        ({}, NOBODY),
        ({"host": "localhost"}, NOBODY),
        ({"host": "::1"}, NOBODY),
        ({"host": "0.0.0.0"}, ANYBODY),
        ({"host": "192.168.1.5"}, ANYBODY),
        ({"host": "box.example.org"}, ANYBODY),
        ({"host": "0.0.0.0", **LAN}, NAMED),
        (LAN, NAMED),
        ({"allow_cidrs": ["192.168.1.0/24", "::/0"]}, ANYBODY),
        ({"allow_cidrs": ["0.0.0.0/0"], "gateway": True}, NOBODY),
        # No firewall of ours makes the list hold there.
        ({"manage_host": False, **LAN}, ANYBODY),
    ],
    ids=str,
)
def test_who_reaches_the_engine(site: Any, who: str) -> None:
    whole: Any = {"manage_host": True, "host": "127.0.0.1", **site}
    assert reach(whole) == who


# --- preflight --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "site", "words"),
    [
        (VLLM, LAN, ["drafthouse_allow_cidrs lets 192.168.1.0/24 in", "/v1, /v2, /inference, /cohere", "/invocations"]),
        (VLLM, {"host": "192.168.1.5"}, ["drafthouse_host is 192.168.1.5", "/invocations", "/scale_elastic_ep"]),
        (TRTLLM, LAN, ["has no authentication", "/v1/chat/completions"]),
        (LLAMACPP, {"host": "0.0.0.0"}, ["does not guard everything", "/health", "any size"]),
        (LLAMACPP, {"allow_cidrs": ["0.0.0.0/0"]}, ["/health", "any size"]),
    ],
)
def test_an_engine_with_open_paths_is_refused_where_others_reach_it(profile: str, site: Any, words: list[str]) -> None:
    data = resolved(profile, **site)
    (problem,) = [one for one in preflight_problems(data, box()) if one.code == "server-exposed"]
    for word in words:
        assert word in problem.found
    assert "drafthouse_gateway: true" in problem.do
    assert ("127.0.0.1" in problem.do) == ("host" in site)
    # As it says.
    fixed = {**site, "gateway": True, "host": "127.0.0.1"}
    assert exposure_problems(resolved(profile, **fixed), "box") == []


@pytest.mark.parametrize("profile", [VLLM, TRTLLM, LLAMACPP])
def test_on_loopback_nothing_is_refused(profile: str) -> None:
    assert exposure_problems(resolved(profile), "box") == []
    # Those who are named get nothing of llama.cpp without its key, and are trusted not to fill its memory.
    assert bool(exposure_problems(resolved(profile, **LAN), "box")) == (profile != LLAMACPP)


# --- the doctor -------------------------------------------------------------------------------------


@contextmanager
def engine(listed: Any, answers: dict[str, int]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server with that OpenAPI and those statuses of what it is asked without a key; 404 to the rest."""
    seen: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.path))
        assert not request.can_read_body
        if request.path == "/openapi.json":
            return web.json_response({"paths": listed})
        return web.Response(status=answers.get(request.path, 404))

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", answer)
    with in_thread(app) as url:
        yield url, seen


def test_the_engines_own_list_is_asked_and_nothing_can_begin() -> None:
    facts = open_paths(ENGINES["vllm"], "0.32.0")
    listed: Any = {
        "/secret/{which}": {"post": {}},
        "/v1/models": {"get": {}},
        "/odd": {"patch": {}, "post": {}},
    }
    closed = {"/secret/x": 405, "/v1/models": 401, "/invocations": 405, "/odd": 405, "/health": 405, "/tokenize": 403}
    with engine(listed, closed) as (url, seen):
        found = ask_paths(facts, url, KEY)
    assert {one["path"]: one["gives"] for one in found["open"]} == {
        "/secret/{which}": "", "/invocations": "work", "/odd": "", "/health": "nothing", "/openapi.json": "nothing",
    }  # fmt: skip
    assert found["asked"] == len(facts["routes"]) + 3
    assert {method for method, path in seen if path != "/openapi.json"} == {"PATCH", "PUT"}
    # By a method that the route itself does not have.
    assert ("PUT", "/odd") in seen
    assert {one["path"] for one in exposed(found["open"], NAMED)} == {"/secret/{which}", "/invocations", "/odd"}


def test_without_a_list_the_catalogues_are_asked() -> None:
    facts = open_paths(ENGINES["llamacpp"], ENGINES["llamacpp"]["default_version"])
    guarded = {route["path"]: 401 for route in facts["routes"] if not route["open"]}
    with engine({}, guarded | {"/health": 200, "/v1/health": 200, "/": 200}) as (url, seen):
        found = ask_paths(facts, url, KEY)
    assert {one["path"] for one in found["open"]} == {"/health", "/v1/health", "/"}
    assert {method for method, _ in seen} == {"GET"}
    # Started without its key it shows more.
    with engine({}, guarded | {"/slots": 200, "/v1/chat/completions": 404}) as (url, seen):
        found = ask_paths(facts, url, KEY)
    assert [one["path"] for one in exposed(found["open"], NAMED)] == ["/slots"]


def test_an_engine_that_is_away_is_not_waited_for() -> None:
    found = ask_paths(open_paths(ENGINES["vllm"], "0.32.0"), "http://127.0.0.1:9", KEY)
    assert (found["asked"], found["open"]) == (0, [])
    assert found["error"].startswith("no answer to /")


@pytest.mark.parametrize(("name", "version"), [("vllm", "0.32.0"), ("llamacpp", "2026.10.11549"), ("trtllm", "1.2.1")])
def test_the_gateway_lets_none_of_them_through(name: str, version: str, tmp_path: Any) -> None:
    facts = open_paths(ENGINES[name], version)
    with stepping_server() as behind:
        settings = settings_for(tmp_path / "h", f"127.0.0.1:{behind.port}", real_caddy())
        with started(settings) as gateway:
            trust = trust_of(gateway.certificate)

            def ask(method: str, path: str) -> int:
                return request_status(settings.port, "", trust, path, method=method)

            found = ask_gateway_paths(facts, "/health", ask)
            assert (found["open"], found["error"]) == ([], "")
            assert found["asked"] >= len(facts["routes"]) - 1
            assert behind.asked == []
        # The gateway that lets everything through is found out.
        opened = ("@keyed vars {http.request.header.Authorization}", "@keyed not vars {http.request.header.Nobody}")
        with started(settings, opened):
            assert bool(ask_gateway_paths(facts, "/health", ask)["open"]) == any(
                route["path"].startswith("/v1/") and route["path"] != "/v1/health" for route in facts["routes"]
            )


def test_a_gateway_that_is_away_is_a_problem_and_no_traceback() -> None:
    wants: Any = {
        "certificate": "/nowhere/certificate.pem", "site": {"runtime": "process", "home": "/nowhere"},
        "open_paths": open_paths(ENGINES["vllm"], "0.32.0"), "engine": {"health": "/health"},
    }  # fmt: skip
    found = ask_gateway(wants, {"port": 9, "name": ""}, KEY)
    assert found["problem"]
    assert found["paths"] is None
    assert KEY not in json.dumps(found)
