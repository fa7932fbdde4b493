"""What the server that behaves as vast.ai's has seen, and what is to go wrong with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.vast_market import KEY, Instance, Market

ALWAYS = 1_000_000


@dataclass
class Fault:
    """What goes wrong on a route (`*`: on any), the next ``times`` times after ``skip`` requests that pass.

    With ``after`` the request takes effect and only the answer is bad; without it nothing has happened. ``act`` is
    called at that moment, for example to kill whoever asks.
    """

    route: str
    times: int = 1
    skip: int = 0
    after: bool = False
    status: int = 0
    error: str = ""
    said: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # the whole answer
    cut: bool = False  # the connection is closed without an answer
    reset: bool = False  # the same, rudely
    half: bool = False  # the connection is closed in the middle of the answer
    slow_s: float = 0  # the answer comes so late
    gone: bool = False  # create: somebody else was faster
    price: float | None = None  # create: dph_base is another one by now
    act: Callable[[], object] | None = None


@dataclass(frozen=True)
class Asked:
    """A request that came in. ``key`` is the one that it was made with."""

    route: str
    method: str
    path: str
    query: dict[str, str]
    body: Any
    key: str | None
    agent: str


@dataclass
class Running:
    """The server, for the test: everything may be looked at and changed while it runs."""

    url: str
    market: Market
    port: int
    key: str = KEY
    asked: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    others: list[int] = field(default_factory=list)  # instances of the account that are not ours
    lock: threading.RLock = field(default_factory=threading.RLock)
    hooks: list[threading.Thread] = field(default_factory=list)
    log_delays: dict[int, int] = field(default_factory=dict)

    @property
    def instances(self) -> dict[int, Any]:
        """The instances there are, as the API shows them, everybody's."""
        with self.lock:
            return {number: one.row for number, one in self.market.instances.items()}

    @property
    def ours(self) -> dict[int, dict[str, Any]]:
        """Those that were created while the server ran."""
        return {number: row for number, row in self.instances.items() if number not in self.others}

    def billing(self) -> list[int]:
        """The numbers of all instances that cost money, everybody's."""
        with self.lock:
            return self.market.billing()

    def count(self, route: str) -> int:
        """How often a route was asked for."""
        return sum(one.route == route for one in self.asked)

    def take_fault(self, route: str) -> Fault | None:
        """Return what is to go wrong with a request of this route, and count it."""
        with self.lock:
            for fault in self.faults:
                if fault.route not in (route, "*") or fault.times <= 0:
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                return fault
        return None

    def created(self, instance: Instance) -> None:
        """Let the test start what the instance shall be, while the client already waits for it."""
        hook = self.market.on_create
        if hook is None:
            return

        def work() -> None:
            shown = hook(instance)
            with self.lock:
                given = dict(shown or {})
                if "ports" in given:
                    instance.ports = given.pop("ports")
                instance.row |= given
                instance.ready.set()

        thread = threading.Thread(target=work, daemon=True)
        self.hooks.append(thread)
        thread.start()

    def destroyed(self, instance: Instance) -> None:
        """Tell the test that an instance is gone."""
        hook = self.market.on_destroy
        if hook is not None:
            thread = threading.Thread(target=hook, args=(instance,), daemon=True)
            self.hooks.append(thread)
            thread.start()
