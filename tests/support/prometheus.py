"""What tests of the monitoring share: the distribution's real programs, and settings of a box."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.prometheus_rules import Limits, Pace, Watched, rules_file
from drafthouse.core.http import opener
from drafthouse.core.locks import locked_file
from drafthouse.profiles.workspace import ROOT

TEMPLATES = ROOT / "templates"
#: Debian's package of each program. promtool is in Prometheus's own up to Debian 13 and Ubuntu 24.04.
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "blackbox": "prometheus-blackbox-exporter",
    "node": "prometheus-node-exporter",
}
PACE, LIMITS = Pace(), Limits()


@functools.cache
def real(name: str) -> str:
    """The path of a program: an installed one, or Debian's, unpacked into .cache; skips where it cannot be had."""
    package = PACKAGES[name]
    program = "promtool" if name == "promtool" else package
    kept = ROOT / ".cache" / "tools" / package
    path = f"/usr/bin:{kept}/usr/bin"
    kept.mkdir(parents=True, exist_ok=True)
    # Several workers may want it at once.
    with locked_file(kept / ".lock"):
        if not shutil.which(program, path=path):
            words = f"apt-get -o APT::Sandbox::User=root download {package} && dpkg-deb --extract {package}_*.deb ."
            subprocess.run(["sh", "-c", words], cwd=kept, capture_output=True, check=False, timeout=180)
    return shutil.which(program, path=path) or pytest.skip(f"no {program} (apt-get install {package})")


def checked(*words: str, folder: Path) -> None:
    """Run promtool; what it finds wrong is shown."""
    done = subprocess.run(
        [real("promtool"), *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def rules_text(watched: Watched, pace: Pace = PACE, limits: Limits = LIMITS) -> str:
    """The rules of a box, as they are put there."""
    return rules_file(TEMPLATES, "rules.yml", watched, pace, limits)["content"]


def rules_of(watched: Watched, pace: Pace = PACE, limits: Limits = LIMITS) -> list[dict[str, Any]]:
    """The same as data: what is recorded, and then the alerts."""
    (group,) = yaml.safe_load(rules_text(watched, pace, limits))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def alerts_of(watched: Watched, pace: Pace = PACE, limits: Limits = LIMITS) -> list[dict[str, Any]]:
    """The alerts of a box."""
    return [rule for rule in rules_of(watched, pace, limits) if "alert" in rule]


def write(path: Path, data: Any) -> Path:
    """Write YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(data, sort_keys=False, width=1000))
    return path


def answered(url: str, what: str, **query: str) -> Any:
    """The data of one of Prometheus's answers."""
    text = opener().open(f"{url}/api/v1/{what}?{urllib.parse.urlencode(query)}", timeout=60).read()
    return json.loads(text)["data"]


def series(url: str, expr: str) -> list[Mapping[str, Any]]:
    """What a query gives now."""
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
