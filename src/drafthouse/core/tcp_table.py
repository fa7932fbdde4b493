"""Who listens on this machine's TCP ports, by the kernel's own tables (proc_net_tcp in the kernel's documentation)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_LISTEN = "0A"  # the state's number


def listeners(proc: Path = Path("/proc")) -> Iterator[tuple[str, int, str]]:
    """Give each listener's address (its digits), port and socket as `/proc/PID/fd` names it; IPv4 and IPv6."""
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3:4] == [_LISTEN]:
                address, _, port = columns[1].rpartition(":")
                yield address, int(port, 16), f"socket:[{''.join(columns[9:10])}]"
