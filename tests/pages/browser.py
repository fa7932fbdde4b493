"""A headless Chromium, driven over its own protocol: a page, a width, a colour scheme, paper.

aiohttp's web sockets speak the protocol, so that no driver has to match the browser's version.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
STARTED = re.compile(rb"DevTools listening on (ws://\S+)")
START_S, ANSWER_S = 240, 240
PHONE, TABLET, WIDE = (390, 844), (768, 1024), (1280, 900)


def chromium() -> str | None:
    """The browser's program, None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of the browser. Every method raises AssertionError for an answer that is an error."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.requested: list[str] = []
        self.said: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                self._waiting.pop(data["id"]).set_result(data)
            elif data["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif data["method"] == "Network.requestWillBeSent":
                self.requested.append(data["params"]["request"]["url"])
            elif data["method"] == "Log.entryAdded":
                self.said.append(data["params"]["entry"]["text"])
            elif data["method"] == "Runtime.exceptionThrown":
                self.said.append(str(data["params"]["exceptionDetails"].get("exception", {}).get("description")))

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        data = await asyncio.wait_for(answer, ANSWER_S)
        assert "error" not in data, f"{method}: {data['error']}"
        result: dict[str, Any] = data["result"]
        return result

    async def attach(self) -> None:
        """Open an empty page and listen to it."""
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def look(self, size: tuple[int, int] = WIDE, scheme: str = "light", media: str = "") -> None:
        """Set the window's size in CSS pixels, the colour scheme, and the medium (``print``, or the screen)."""
        width, height = size
        phone = width < 600
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", media=media, features=features)

    async def open(self, file: Path) -> None:
        """Open a file and wait until it is loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=file.resolve().as_uri())
        await asyncio.wait_for(self._loaded.wait(), ANSWER_S)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        done = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    async def axe(self) -> list[str]:
        """What axe finds wrong with the page, a line for each rule with the first elements."""
        await self.run(AXE.read_text("utf-8") + "; 0")
        found = await self.run(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => "
            "`${v.id} (${v.impact}): ${v.help}: ${v.nodes.slice(0, 4).map(n => n.html.slice(0, 160)).join(' | ')}`))"
        )
        return list(found)

    async def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page: all of it, or what the window shows."""
        clip: dict[str, Any] = {}
        if whole:
            size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    async def paper(self, file: Path) -> None:
        """Write the page as a PDF of A4 sheets."""
        sheet = await self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        file.write_bytes(base64.b64decode(sheet["data"]))


@asynccontextmanager
async def a_page() -> AsyncIterator[Page]:
    """Start a browser with one empty page, and end it."""
    program = chromium()
    assert program
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        # Its own profile, and no sandbox: the tests run as root in a container, on pages of our own.
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        words += ["--no-first-run", "--disable-background-networking", "--remote-debugging-port=0"]
        process = await asyncio.create_subprocess_exec(
            program, *words, f"--user-data-dir={folder}", stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr
        try:
            address = await asyncio.wait_for(_address(process.stderr), START_S)
            drain = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
                page = Page(socket)
                await page.attach()
                yield page
            drain.cancel()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()


async def _address(lines: asyncio.StreamReader) -> str:
    told = b""
    async for line in lines:
        told += line
        found = STARTED.search(line)
        if found:
            return found.group(1).decode()
    raise AssertionError(f"the browser did not start: {told[-500:]!r}")
