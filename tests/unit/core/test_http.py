"""What is asked of a server beside the requests goes straight to it: a proxy of the environment sees nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from drafthouse.bench.client import Endpoint
from drafthouse.bench.sweep.recovery import ServerWatch
from drafthouse.experiment.engine_answers import engine_seen
from tests.fakes.in_thread import in_thread
from tests.support.ports import free_port
from tests.unit.serving.test_ready_kept import Started, waited

pytestmark = pytest.mark.processes

KEY = "sk-secret"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A proxy that the environment names, which answers 502; yields what it was asked, with its headers."""
    seen: list[str] = []

    @web.middleware
    async def note(request: web.Request, handler: object) -> web.StreamResponse:
        seen.append(f"{request.method} {request.raw_path} {dict(request.headers)}")
        return web.Response(status=502)

    with in_thread(web.Application(middlewares=[note])) as url:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, url)
            monkeypatch.setenv(name.upper(), url)
        for name in ("no_proxy", "NO_PROXY", "REQUEST_METHOD"):
            monkeypatch.delenv(name, raising=False)
        yield seen


@pytest.fixture
def server() -> Iterator[str]:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "clock", "max_model_len": 4096}]})

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"version": "1.2.3"})

    application = web.Application()
    application.router.add_get("/v1/models", models)
    application.router.add_get("/version", version)
    with in_thread(application) as url:
        yield url


def test_a_server_that_is_there_and_one_that_is_gone(proxy: list[str], server: str) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    watch = ServerWatch([Endpoint("here", server, "clock", KEY), Endpoint("gone", gone, "clock", KEY)])
    assert not asyncio.run(watch.died("here"))
    assert asyncio.run(watch.died("gone")), "a proxy's 502 is no sign of life"
    assert proxy == []


def test_waiting_for_an_engine(proxy: list[str], server: str, tmp_path: Path) -> None:
    assert waited(Started(None), server, tmp_path / "ready.json") < 5
    assert proxy == []


def test_what_an_engine_says_it_is(proxy: list[str], server: str) -> None:
    told = engine_seen(Endpoint("a", server, "clock", KEY), "")
    assert told == {"version_answered": "1.2.3", "max_model_len_answered": 4096}
    assert proxy == []
