"""Watch the servers of a load sweep: detect that one died, and restart it or wait for it.

Servers that Drafthouse started are restarted through their runtime (containers or processes). Of a server that
somebody else runs it is only known whether it answers.
"""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...bench.client import Endpoint
from ...core.errors import one_problem
from ...core.http import opener
from ...serving.oom_killer import read_kills, why_it_died
from ...serving.readiness import wait_until_ready
from ...serving.runtimes import Runtime, is_same_start

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedEngine

#: The longest wait for a server that somebody else runs to answer again, in seconds.
AWAY_S = 120.0
#: The interval at which such a server is asked whether it answers, in seconds.
_ASK_EVERY_S = 1.0
#: The timeout of that request, in seconds.
_ANSWER_S = 5.0


class RuntimeWatch:
    """Watches servers that Drafthouse started, one for each arm (baseline, speculative)."""

    def __init__(self, runtime: Runtime, engine: ResolvedEngine, endpoints: Sequence[Endpoint]) -> None:
        """Remember the servers' present starts and the kernel's counts of kills, to notice new ones."""
        self._runtime = runtime
        self._engine = engine
        self._endpoints = {endpoint.arm: endpoint for endpoint in endpoints}
        self._states = {endpoint.arm: runtime.state(endpoint.arm) for endpoint in endpoints}
        self._kills = {arm: read_kills(state.pid) for arm, state in self._states.items()}

    async def died(self, arm: str) -> bool:
        """True if the server of the arm does not run, or if its supervisor restarted it, which takes under a second."""
        state = await asyncio.to_thread(self._runtime.state, arm)
        return not state.running or not is_same_start(state, self._states[arm])

    async def why(self, arm: str) -> str:
        """The exit of the arm's server, with the kernel's out-of-memory message if there is one; '' if unknown."""
        ending = await asyncio.to_thread(self._runtime.ending, arm)
        return why_it_died(ending, self._kills[arm]) if ending else ""

    async def bring_back(self, arm: str) -> str:
        """Start the server unless it runs, wait for an answer, return a sentence about it. Raises DrafthouseError."""
        return await asyncio.to_thread(self._bring_back, arm)

    def _bring_back(self, arm: str) -> str:
        """What `bring_back` does, in a thread of its own because it waits."""
        endpoint = self._endpoints[arm]
        engine = self._engine
        self._runtime.start(arm)
        seconds = wait_until_ready(
            self._runtime,
            name=arm,
            base_url=endpoint.root,
            health=engine["health"],
            model=endpoint.model,
            key=endpoint.api_key or "",
            timeout_s=engine["ready_timeout_s"],
            progress=lambda event: None,
        )
        state = self._runtime.state(arm)
        self._states[arm] = state
        self._kills[arm] = read_kills(state.pid)
        return f"the engine was restarted and was ready after {seconds:.0f} s"


class ServerWatch:
    """Watches servers that somebody else runs. A server without an answer is dead; it can only be waited for."""

    def __init__(self, endpoints: Sequence[Endpoint], away_s: float = AWAY_S) -> None:
        self._endpoints = {endpoint.arm: endpoint for endpoint in endpoints}
        self._away_s = away_s

    async def died(self, arm: str) -> bool:
        """True if the server does not answer."""
        return not await asyncio.to_thread(_answers, self._endpoints[arm])

    async def why(self, arm: str) -> str:
        """Always '': the reason is unknown for a server that somebody else runs."""
        return ""

    async def bring_back(self, arm: str) -> str:
        """Wait until the server answers, return a sentence about it. Raises DrafthouseError after ``away_s``."""
        began_s = time.monotonic()
        while not await asyncio.to_thread(_answers, self._endpoints[arm]):
            if time.monotonic() - began_s > self._away_s:
                raise one_problem(
                    "server-unreachable",
                    f"no answer from {self._endpoints[arm].root} for {self._away_s:.0f} s",
                    "a server that answers",
                    "start it again, then run the same command: it measures what is missing",
                )
            await asyncio.sleep(_ASK_EVERY_S)
        return f"the server answered again after {time.monotonic() - began_s:.0f} s"


def _answers(endpoint: Endpoint) -> bool:
    """True if the server answers. An HTTP error is an answer too, except 503, which means that it is still loading."""
    request = urllib.request.Request(f"{endpoint.root}/v1/models", headers=endpoint.headers)  # noqa: S310
    try:
        with opener(endpoint.ca_pem).open(request, timeout=_ANSWER_S):
            return True
    except urllib.error.HTTPError as error:
        return error.code != 503
    except urllib.error.URLError as error:
        # A server with an untrusted certificate is running, and waiting does not change its certificate.
        return isinstance(error.reason, ssl.SSLError)
    except (OSError, ValueError):
        return False
