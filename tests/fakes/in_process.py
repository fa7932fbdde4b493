"""A fake server in a process of its own: its options are the fields of a dataclass, given as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]

Options = TypeVar("Options")


def started(module: str, options: Mapping[str, Any], port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """Start a fake on this port of loopback (0: a free one); returns its process and port once it listens."""
    command = [sys.executable, "-m", module, json.dumps(options), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["port"]


@contextmanager
def in_process(module: str, options: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Run a fake on a free port of loopback until the block ends; yields its base URL and process id."""
    process, port = started(module, options)
    try:
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(timeout=120)
        if process.stdout is not None:
            process.stdout.close()


def options_and_port(kind: Callable[..., Options], about: str | None) -> tuple[Options, int]:
    """Read the command line of a fake: JSON with names of the fields of ``kind``, and --port (0: a free one)."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("options", nargs="?", default="{}", help=f"JSON with names of {kind.__name__}'s fields")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    options = json.loads(given.options)
    unknown = set(options) - {one.name for one in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        parser.error(f"no such option: {', '.join(sorted(unknown))}")
    return kind(**options), given.port


async def serve(connection: Callable[[], asyncio.Protocol], port: int) -> None:
    """Serve until the process is ended; the first line of output names the port."""
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()
