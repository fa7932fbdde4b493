"""The server that behaves as vast.ai's without a socket: clocks that only tests move, faults, and a death at any step.

A request costs tens of microseconds, so that a history of rentals is tried thousands of times.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from drafthouse.cloud import deadline
from drafthouse.cloud.vast import ledger as vast_ledger
from drafthouse.cloud.vast.client import VastClient
from drafthouse.cloud.vast.http import Answer, NotSent, Unanswered
from tests.fakes.vast_market import KEY, Instance, Market, others
from tests.fakes.vast_server import _Handler
from tests.fakes.vast_state import Running

URL = "https://vast.invalid"
BEGAN = 1_790_000_000.0
# What goes wrong with a request, by its route. The second word: it has its effect, and only the answer is bad.
_ANY = ("html", "500", "429", "302", "refused", "timeout")
FAULTS = {
    "create": (
        *_ANY, "429 after", "twice after", "other number after",
        "html after", "500 after", "timeout after", "timeout after", "hollow",
    ),
    "attach_key": ("500", "timeout after"),
    "instance": (*_ANY, "hollow", "html after"),
    "instances": (*_ANY, "hollow", *("partial after", "short after", "empty after", "no count after") * 3),
    "destroy": (*_ANY, "404", "404 after", "hollow", "hollow", "html after", "500 after", "timeout after"),
    "*": _ANY,
}  # fmt: skip


class Dead(BaseException):
    """The controller is no more, as after kill -9: nothing of it goes on."""


@dataclass
class Trouble:
    """What goes wrong on a route, the next ``times`` times."""

    route: str
    kind: str
    times: int


class LateMarket(Market):
    """A market whose list shows an instance some seconds after it was made."""

    late_s: float = 0.0
    mono: float = 0.0

    def create(self, number: int, body: Mapping[str, Any], owner: str) -> Instance:
        """Rent an offer."""
        instance = super().create(number, body, owner)
        instance.row["_appears"] = self.mono + self.late_s
        return instance

    def listed(self, owner: str) -> list[Instance]:
        """What the list shows by now."""
        return [one for one in super().listed(owner) if one.row.get("_appears", 0.0) <= self.mono]


@dataclass
class Account:
    """An account, its server, and the controller's clocks."""

    market: LateMarket = field(default_factory=LateMarket)
    wall: float = BEGAN
    troubles: list[Trouble] = field(default_factory=list)
    hit: set[str] = field(default_factory=set)
    """The routes on which something went wrong since this was emptied."""
    steps_left: int | None = None
    """Steps (a request, its effect, half a line of the ledger, a whole one) until the controller dies."""
    died: bool = False

    def __post_init__(self) -> None:
        self.vast = Running(URL, self.market, 0)
        self.vast.others = others(self.market, KEY)
        self.before = self._others()
        self.true_time = BEGAN
        self._ids = 0

    # --- the controller ------------------------------------------------------------------------------

    def client(self) -> VastClient:
        """A client of the account that waits by these clocks."""
        return VastClient(KEY, URL, sleep=self.sleep, transport=self.transport)

    def clock(self) -> float:
        """The controller's wall clock."""
        return self.wall

    def sleep(self, seconds: float) -> None:
        """Let time go by, for everybody."""
        self.wall += seconds
        self.true_time += seconds
        self.market.mono += seconds

    def step(self) -> None:
        """Die here, if it is time to."""
        if self.died:
            raise Dead
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.died = True
                raise Dead

    def write(self, handle: int, data: bytes) -> None:
        """Write to the ledger, with a death before, in the middle of or after the line."""
        self.step()
        try:
            self.step()
        except Dead:
            _real_write(handle, data[: len(data) // 2])
            raise
        _real_write(handle, data)
        self.step()

    def _token(self, size: int) -> str:
        self._ids += 1
        return f"{self._ids * 0x9E3779B97F4A7C15 % 16 ** (2 * size):0{2 * size}x}"

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the ledger write by these clocks, and die where this says."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vast_ledger, "_write", self.write)
            patch.setattr(deadline, "_shortened", _short)
            patch.setattr(vast_ledger, "sync", lambda folder: None)
            patch.setattr(os, "fsync", lambda handle: None)
            patch.setattr(vast_ledger, "time", SimpleNamespace(time=self.clock))
            patch.setattr(vast_ledger, "secrets", SimpleNamespace(token_hex=self._token))
            yield

    # --- the server ----------------------------------------------------------------------------------

    def transport(self, method: str, url: str, headers: Mapping[str, str], body: Any, timeout_s: float) -> Answer:
        """Answer a request as `http.send` does."""
        self.step()
        where = urlsplit(url)
        handler = object.__new__(_Handler)
        handler.vast, handler.command = self.vast, method
        route, number = handler._route(where.path)
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        trouble = next((one for one in self.troubles if one.route in (route, "*") and one.times > 0), None)
        kind, _, _ = trouble.kind.partition(" after") if trouble else ("", "", "")
        has_effect = trouble is None or trouble.kind.endswith(" after")
        if trouble:
            trouble.times -= 1
            self.hit.add(route)
        if kind == "refused":
            raise NotSent("connection refused")
        status, data = 200, None
        if has_effect:
            given = json.loads(json.dumps(body)) if body is not None else {}
            key = headers["Authorization"].removeprefix("Bearer ")
            status, data, _ = handler._effect(route, number, query, given, key)
            if kind == "twice" and status == 200:  # a proxy sent it again
                self.market.again(int(data["new_contract"]))
            if kind == "other number" and status == 200:
                data = {**data, "new_contract": self.vast.others[0]}
            self.step()
        return self._answer(kind, status, data)

    def _answer(self, kind: str, status: int, data: Any) -> Answer:
        headers = {"Date": formatdate(self.true_time, usegmt=True)}
        if kind == "timeout":
            self.sleep(30.0)
            raise Unanswered("no answer in time")
        if kind == "html":
            return Answer(200, headers, "<html>log in here</html>")
        if kind == "404":
            said = {"success": False, "error": "no_such_instance", "msg": "Instance not found"}
            return Answer(404, headers, json.dumps(said))
        if kind == "302":
            return Answer(302, {**headers, "Location": "https://elsewhere.invalid/"}, "")
        if kind in ("500", "429"):
            return Answer(int(kind), headers, '{"success": false, "msg": "try later"}')
        if kind == "hollow":
            return Answer(200, headers, '{"success": true}')
        if isinstance(data, dict) and isinstance(data.get("instances"), list):
            data = _lessened(kind, data)
        return Answer(status, headers, json.dumps(data, default=str))

    # --- the truth -----------------------------------------------------------------------------------

    def billing(self) -> dict[int, str]:
        """What bills and was rented here: label by number."""
        rows = self.market.instances.items()
        return {number: str(one.row["label"]) for number, one in rows if number not in self.vast.others}

    def is_late(self) -> bool:
        """Tell whether there is an instance that the list does not show yet."""
        return any(one.row.get("_appears", 0.0) > self.market.mono for one in self.market.instances.values())

    def check_others(self) -> None:
        """See that what is not ours is as it was."""
        assert self._others() == self.before

    def _others(self) -> dict[int, tuple[Any, ...]]:
        rows = {number: one.row for number, one in self.market.instances.items() if number in self.vast.others}
        return {number: (row["label"], row["intended_status"]) for number, row in rows.items()}


def _lessened(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A list of instances that is not whole."""
    if kind == "partial":
        return {**data, "success": False, "instances": [], "next_token": None}
    if kind == "short":
        return {**data, "instances": data["instances"][:-1]}
    if kind == "empty":
        return {**data, "instances": []}
    if kind == "no count":
        return {"success": True, "instances": data["instances"][1:]}
    return dict(data)


_real_write = vast_ledger._write
_short = functools.cache(deadline._shortened)  # of the same program each time
