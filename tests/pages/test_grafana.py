"""The dashboard by the types that Grafana publishes (`@grafana/schema` on npm), read by the TypeScript compiler.

They are those of the release whose image the role runs; what Grafana would show of it, they do not say.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT
from tests.support.builders import broken
from tests.unit.addons.test_grafana import PLACES, board

HERE = Path(__file__).parent
COMPILER = HERE / "node_modules/typescript/bin/tsc"
OPTIONS = {"strict": True, "noEmit": True, "skipLibCheck": True, "module": "esnext", "moduleResolution": "bundler"}


def compiled(boards: Mapping[str, dict[str, Any]], folder: Path) -> dict[str, list[str]]:
    """What the compiler finds wrong with each board."""
    if not (COMPILER.is_file() and shutil.which("node")):
        pytest.skip("no TypeScript and Grafana's types (make test-pages installs them, or npm ci --prefix tests/pages)")
    (folder / "node_modules").symlink_to(HERE / "node_modules")
    shutil.copy(HERE / "grafana.ts", folder)
    for name, made in boards.items():
        # A literal: only of one does the compiler refuse a key that is in no type.
        text = f"import type {{ Board }} from './grafana';\nexport const board: Board = {json.dumps(made, indent=1)};\n"
        (folder / f"{name}.ts").write_text(text, "utf-8")
    project = {"compilerOptions": {**OPTIONS, "types": []}, "files": [f"{name}.ts" for name in boards]}
    (folder / "tsconfig.json").write_text(json.dumps(project), "utf-8")
    done = subprocess.run(
        ["node", str(COMPILER), "--pretty", "false", "--project", str(folder)], cwd=folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    found: dict[str, list[str]] = {name: [] for name in boards}
    for line in lines:
        place = re.match(r"([^(/]+)\.ts\(", line)
        # An error elsewhere is one of this test, or of the packages.
        assert place and place[1] in found, done.stdout
        found[place[1]].append(line)
    assert bool(lines) == bool(done.returncode), done.stdout + done.stderr
    return found


def test_the_types_are_of_the_release_that_the_role_runs() -> None:
    pinned = json.loads((HERE / "package.json").read_text("utf-8"))["devDependencies"]["@grafana/schema"]
    image = yaml.safe_load((ROOT / "roles/monitoring/defaults/main.yml").read_text("utf-8"))["monitoring_grafana_image"]
    assert image.partition("@")[0].endswith(f":{pinned}")


def test_every_board_has_the_shape_that_grafana_publishes(tmp_path: Path) -> None:
    found = compiled({f"board{number}": board(watched) for number, watched in enumerate(PLACES)}, tmp_path)
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_what_grafana_does_not_publish_is_refused(tmp_path: Path) -> None:
    whole = board(PLACES[-1])
    row = next(at for at, panel in enumerate(whole["panels"]) if panel["type"] == "row")
    number = next(at for at, panel in enumerate(whole["panels"]) if panel["type"] == "stat")
    curve = next(at for at, panel in enumerate(whole["panels"]) if panel["type"] == "timeseries")
    at = ("panels", number)
    boards = {
        "version": broken(whole, "schemaVersion", value="39"),
        "noversion": broken(whole, "schemaVersion", value=None),
        "tooltip": broken(whole, "graphTooltip", value=7),
        "refresh": broken(whole, "refresh", value=30),
        "rows": broken(whole, "rows", value=[]),
        "kind": broken(whole, *at, "type", value="singlestat"),
        "place": broken(whole, *at, "gridPos", "w", value=None),
        "options": broken(whole, *at, "options", "reduceOptions", value=None),
        "option": broken(whole, *at, "options", "colorMode", value="colourful"),
        "query": broken(whole, *at, "targets", 0, "query", value="up"),
        "noquery": broken(whole, *at, "targets", 0, "expr", value=None),
        "color": broken(whole, *at, "fieldConfig", "defaults", "color", "mode", value="bright"),
        "steps": broken(whole, *at, "fieldConfig", "defaults", "thresholds", "steps", 0, "value", value="low"),
        "field": broken(whole, *at, "fieldConfig", "defaults", "units", value="s"),
        "legend": broken(whole, "panels", curve, "options", "legend", "placement", value="left"),
        "collapsed": broken(whole, "panels", row, "collapsed", value=None),
    }
    found = compiled(boards, tmp_path)
    assert [name for name, lines in found.items() if not lines] == []
