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

_READ_S = 30.0


def read_now(order: Order) -> Snapshot:
    """Read the engine's counters over loopback, with the API key if the key file exists."""
    key = Path(order["key_file"])
    endpoint = Endpoint(
        "watched",
        order["base_url"],
        order["model"],
        api_key=key.read_text("utf-8").strip() if key.exists() else None,
        metrics_path=order["metrics_path"],
    )

    async def read() -> Snapshot:
        async with open_session(_READ_S) as session:
            return await read_counters(session, endpoint)

    return asyncio.run(read())


def output_tokens_between(before: Snapshot, after: Snapshot) -> int | None:
    """The output tokens between two reads of the counters; None if the engine does not count them."""
    end = (after.get("traffic") or {}).get("output_tokens")
    if end is None:
        return None
    return int(max(0.0, end - ((before.get("traffic") or {}).get("output_tokens") or 0.0)))
