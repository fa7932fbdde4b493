"""What tests of the monitoring share: the distribution's real programs, and settings of a box."""

from __future__ import annotations

import functools
import json
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.http import opener
from drafthouse.host.deb_unpack import Found, ensure
from drafthouse.host.monitoring_programs import PROGRAMS
from drafthouse.profiles.workspace import ROOT

# No box needs promtool. It is in Prometheus's own package up to Debian 13 and Ubuntu 24.04.
_WANTED = {**PROGRAMS, "promtool": replace(PROGRAMS["prometheus"], programs=("promtool",))}


@functools.cache
def real(name: str) -> Found:
    """Return a program: an installed one, or Debian's, unpacked into .cache; skip by name where it cannot be had."""
    try:
        return ensure(_WANTED[name], "", ROOT / ".cache" / "tools" / name)
    except DrafthouseError as error:
        package = _WANTED[name].package
        pytest.skip(f"no {name} (apt-get install {package}): {error.problems[0].found}")


def checked(*words: str, folder: Path) -> None:
    """Run promtool; what it finds wrong is shown."""
    done = subprocess.run(
        [real("promtool").path, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def write(path: Path, data: Any) -> Path:
    """Write YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=1000))
    return path


def answered(url: str, what: str, **query: str) -> Any:
    """Return the data of one of Prometheus's answers."""
    text = opener().open(f"{url}/api/v1/{what}?{urllib.parse.urlencode(query)}", timeout=10).read()
    return json.loads(text)["data"]


def series(url: str, expr: str) -> list[Mapping[str, Any]]:
    """Return what a query gives now."""
    found: list[Mapping[str, Any]] = answered(url, "query", query=expr)["result"]
    return found


def awaited(true: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait until something is true; return it."""
    end = time.monotonic() + seconds
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, f"no {what} within {seconds:.0f} s"
        time.sleep(0.25)
