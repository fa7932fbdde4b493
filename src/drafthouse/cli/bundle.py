"""Write one file with everything that a profile downloads: wheels, weights, the engine's image.

Example:
  drafthouse bundle cpu-smollm2-ngram --to smollm2.tar

For boxes without a network: copy the file and the clone there and run `make PROFILE BUNDLE=file`. The downloads stay
below .drafthouse of this clone, so that the next bundle is faster.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.exit_codes import DONE
from ..core.pins import pins_file
from ..core.progress import Event, shown
from ..core.requirement_lines import read_lock
from ..host.env_recipe import EnvRecipe
from ..host.venv import ensure_env
from ..operate.bundle_make import FETCHED, environments, fetch_wheels, save_image, weights_members
from ..operate.offline_bundle import write_bundle
from ..profiles.workspace import ROOT, site_of_inventory
from .parser import Parser
from .profile_arguments import arguments, resolved

if TYPE_CHECKING:
    from drafthouse.operate.offline_bundle import BundledImage, BundleFacts
    from drafthouse.profiles.resolved_types import ResolvedProfile, WeightItem


def options() -> Parser:
    """Return the parser."""
    parser = arguments(__doc__, "bundle")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", default=ours, help="Python version of the box (default: %(default)s, as here)")
    parser.add_argument("--torch-backend", help="torch build for an engine in its own environment: cpu, cu130, ...")
    parser.add_argument("--to", type=Path, help="output file (default: build/drafthouse-PROFILE.tar)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Fetch, then write the bundle, and say what to do with it."""
    given = options().parse_args(argv)
    profile = resolved(given)
    to = given.to or ROOT / "build" / f"drafthouse-{profile['profile']}.tar"
    work = ROOT / "build" / "bundles" / profile["profile"]
    local = site_of_inventory("local")
    members = _wheels(profile, given, work / "wheels")
    members |= _weights(profile, Path(local["home"]), Path(local["models_dir"]))
    image: BundledImage | None = None
    if profile["site"]["runtime"] == "docker":
        image = {"name": str(profile["engine"]["image"]), "file": "images/engine.tar"}
        save_image(
            image["name"],
            work / image["file"],
            _say,
            pins_file(ROOT),
            profile["derived_image"],
            bool(profile["unpinned"]),
        )
        members[image["file"]] = work / image["file"]
    facts: BundleFacts = {
        "profile": profile["profile"],
        "engine": f"{profile['engine']['id']} {profile['engine']['version']}",
        "python": given.python,
        "machine": platform.machine(),
        "image": image,
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    manifest = write_bundle(to, members, facts, _Steps())
    print(f"{to}: {to.stat().st_size / 1e6:,.0f} MB, {len(manifest.files)} files")
    shortest = to.relative_to(Path.cwd()) if to.is_relative_to(Path.cwd()) else to
    print(f"use it: make {profile['profile']} BUNDLE={shortest}")
    return DONE


def _say(line: str) -> None:
    print(line, flush=True)


class _Steps:
    """Shows the progress of a long step, a line every five seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, event: Event) -> None:
        if time.monotonic() - self._last > 5:
            self._last = time.monotonic()
            _say(f"  {shown(event)}")


def _wheels(profile: ResolvedProfile, given: Any, folder: Path) -> dict[str, Path]:
    """Fetch the wheels of every environment; return them as members."""
    _say("wheels")
    uv = str(Path(sys.executable).with_name("uv"))
    # What an earlier bundle of this profile needed, this one may not.
    for old in folder.glob("*"):
        old.unlink()
    for environment in environments(profile, ROOT, given.python, given.torch_backend):
        fetch_wheels(environment, folder, uv, os.environ.get("PIP_FIND_LINKS"), lambda line: _say(f"  {line}"))
    return {f"wheels/{file.name}": file for file in sorted(folder.iterdir())}


def _weights(profile: ResolvedProfile, home: Path, models_dir: Path) -> dict[str, Path]:
    """Put what is fetched in place on this machine, with the environment that a box has; return it as members."""
    _say("weights")
    pins = read_lock((ROOT / "roles" / "box_env" / "files" / "requirements.txt").read_text("utf-8"))
    uv = Path(sys.executable).with_name("uv")
    ensure_env(EnvRecipe(str(home / "venv"), (), pins), str(uv), progress=lambda step, line: None)
    theirs = Path(profile["site"]["models_dir"])
    items: list[WeightItem] = [
        {**item, "path": str(models_dir / Path(item["path"]).relative_to(theirs))}
        for item in profile["weights"]
        if item["source"] in FETCHED
    ]
    text = json.dumps({"items": items, "uv": str(uv), "engine_python": sys.executable})
    command = [str(home / "venv" / "bin" / "python"), str(ROOT / "scripts" / "_fetch.py")]
    if status := subprocess.run(command, input=text, text=True, check=False).returncode:
        sys.exit(status)  # it has said why
    return weights_members([Path(item["path"]) for item in items], models_dir)
