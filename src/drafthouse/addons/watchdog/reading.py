"""Read the counters of the watched engine, and count the output tokens between two reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ...bench.client import Endpoint, open_session
from ...bench.spec_metrics import read_counters

if TYPE_CHECKING:
    from drafthouse.addons.watchdog.journal import Order
    from drafthouse.bench.result_types import Snapshot

_READ_S = 30.0  # time limit of a read, in seconds


def read_now(order: Order) -> Snapshot:
    """Read the engine's counters over loopback, with the API key if the key file exists.

    A read that fails is no exception: its reason is the snapshot's ``error``.
    """
    key_file = Path(order["key_file"])
    api_key = None
    if key_file.exists():
        api_key = key_file.read_text("utf-8").strip()
    endpoint = Endpoint(
        "watched",
        order["base_url"],
        order["model"],
        api_key=api_key,
        metrics_path=order["metrics_path"],
    )

    async def read() -> Snapshot:
        async with open_session(_READ_S) as session:
            return await read_counters(session, endpoint)

    return asyncio.run(read())


def output_tokens_between(before: Snapshot, after: Snapshot) -> int | None:
    """The output tokens between two reads of the counters; None if the engine does not count them.

    At least 0: a counter that is smaller than before belongs to an engine that was restarted. A counter that the first
    read did not have counts as 0 there.
    """
    traffic_before = before.get("traffic") or {}
    traffic_after = after.get("traffic") or {}
    end = traffic_after.get("output_tokens")
    if end is None:
        return None
    start = traffic_before.get("output_tokens") or 0.0
    return int(max(0.0, end - start))
