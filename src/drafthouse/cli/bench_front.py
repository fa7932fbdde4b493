"""The options of bench.py for a front with several engines behind it, and for a client of several processes."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from ..bench.client import Worker
from ..bench.sweep.client_pool import Clients
from ..core.errors import one_problem
from .parser import positive

#: Arms that a crossover compares; one server alone is neither.
ARMS = ("baseline", "speculative")
SINGLE = "single"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to bench.py's."""
    front = parser.add_argument_group("front", "a server with several engines behind it (docs/ladder.md)")
    front.add_argument(
        "--ca", type=Path, metavar="FILE", help="trust only the certificates of this PEM file (a gateway's own)"
    )
    front.add_argument(
        "--metrics-key-file", type=Path, metavar="FILE", help="file with the key of the engines' counters"
    )
    front.add_argument(
        "--arm",
        choices=ARMS,
        default=SINGLE,
        help="which arm is served now; the sweeps of both arms in one --result give the crossover",
    )
    front.add_argument("--round", type=int, metavar="K", help="measure only round K of --rounds now")
    load = parser.add_argument_group("clients", "a load sweep may be sent by several processes")
    load.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="client processes in all (default: one per 256 concurrent requests or 12,800 tokens per second, at most "
        "one per core)",
    )
    load.add_argument(
        "--from",
        dest="load_boxes",
        action="append",
        default=[],
        metavar="HOST",
        help="send from this machine over SSH, all at the same times (repeatable)",
    )
    load.add_argument("--from-python", default="python3", metavar="PATH", help="a Python there with aiohttp and numpy")


def clients_from(given: argparse.Namespace) -> Clients:
    """Return who sends the load. Raises DrafthouseError."""
    for host in given.load_boxes:
        if host.startswith("-"):
            raise one_problem("invalid-option", host, "a host as ssh takes it", "write USER@HOST", "--from")
    return Clients(given.processes, tuple(given.load_boxes), given.from_python)


def read_ca(path: Path | None) -> str | None:
    """Return the certificates of a PEM file. Raises DrafthouseError."""
    if path is None:
        return None
    try:
        text = path.read_text("ascii")
        ssl.create_default_context(cadata=text)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise one_problem(
            "certificate-unreadable",
            str(error),
            "a PEM file with the server's certificate",
            "name the file that the gateway's setup printed",
            "--ca",
        ) from error
    return text


def workers_from(urls: list[str], key: str | None) -> tuple[Worker, ...]:
    """Return the engines behind a front, from ``[NAME=]URL``; one plain URL is the server's own counters.

    Raises DrafthouseError.
    """
    workers = []
    for text in urls:
        name, found, url = text.partition("=")
        if not found or name.startswith(("http://", "https://")):
            name, url = "", text
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise one_problem(
                "invalid-option", text, "an address, or NAME=ADDRESS", "write it like a=http://10.0.0.1:8000/metrics",
                "--metrics",
            )  # fmt: skip
        workers.append(Worker(name or parts.netloc, url, key))
    if len(workers) == 1 and not urls[0].startswith(("http://", "https://")):
        return tuple(workers)
    names = [one.name for one in workers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise one_problem(
            "invalid-option", f"{twice[0]} twice", "each engine once", "give it a name: NAME=ADDRESS", "--metrics"
        )
    return tuple(workers) if len(workers) > 1 else ()
