"""`make test-gpu`: look what this box has, run the fullest level it can, and keep the evidence.

    python -m tests.gpu.lane [--level N] [--minutes N] [--dry-run]

Exit status: 0 every check passed; 1 evidence was kept, and a check failed; 3 no NVIDIA GPU here; 2 an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from drafthouse.cli.evidence import folder_name, of_report
from drafthouse.cli.main import version
from drafthouse.cli.parser import run as run_main
from drafthouse.core.documents import Json
from drafthouse.core.exit_codes import DONE, NOT_HERE, WARNED
from drafthouse.core.places import ROOT
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import site_of_inventory
from drafthouse.report.archive import find
from drafthouse.report.evidence import NO_PROFILE, EvidenceFacts
from tests.gpu import level0, luggage, models
from tests.gpu.box import Box, Chosen, choose, look
from tests.gpu.clock import Clock
from tests.gpu.keep import Keeper
from tests.gpu.level1 import Place
from tests.gpu.level1_steps import Level1, as_json, measure
from tests.gpu.llama_build import build

WORK = ROOT / ".drafthouse" / "gpu-lane"
LUGGAGE = ROOT / "build" / "gpu-luggage.tar.xz"
#: Level 2: the profiles whose target and heads 24 GB take, on whatever card this is.
REAL = ("rtx3090-qwen3-8b-eagle3", "rtx3090-qwen3-8b-dflash", "rtx3090-qwen3-8b-peagle")


def main() -> int:
    """Run the lane."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=int, choices=(0, 1, 2, 3), help="no level above this one")
    parser.add_argument(
        "--minutes",
        type=float,
        default=12,
        help="levels 0 and 1 end in this time; what it is too short for is left out, and said (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say which levels would run, and their commands")
    given = parser.parse_args()
    catalog = load_catalog(ROOT)
    box = look(Path(site_of_inventory("local")["models_dir"]), LUGGAGE)
    articles = sorted({one["hardware"] for one in catalog.profiles.values() if one.get("article")})
    chosen = choose(box, catalog.hardware, articles)
    if not chosen.levels:
        print(f"make test-gpu cannot be done here: {chosen.why[0]}; docs/gpu-lane.md")
        return NOT_HERE
    print("\n".join(chosen.why), flush=True)
    levels = [level for level in chosen.levels if given.level is None or level <= given.level]
    if given.dry_run:
        print("\n".join(" ".join(words) for words in commands(chosen, levels)))
        return DONE
    return _run(box, chosen, levels, Clock(given.minutes * 60))


def commands(chosen: Chosen, levels: Sequence[int]) -> list[list[str]]:
    """The runs of levels 2 and 3: through the commands that everybody has."""
    drafthouse = [sys.executable, str(ROOT / "scripts" / "drafthouse")]
    catalog = load_catalog(ROOT)
    found = []
    if 2 in levels:
        card = ["--set", f"hardware={chosen.hardware}", "--set", "experiment.once=[gates, published]"]
        suites = ["--set", "experiment.suites=[mixed, gates, published]"]
        for name in REAL:
            # Of the card's own profile nothing is changed: only that counts as verified.
            more = [] if catalog.profiles[name]["hardware"] == chosen.hardware else [*card, *suites]
            found.append([*drafthouse, "run", name, "--inventory", "local", *more, "--stop-after"])
    if 3 in levels:
        for name, one in sorted(catalog.profiles.items()):
            if one["hardware"] == chosen.hardware and one.get("article"):
                found.append([*drafthouse, "run", name, "--inventory", "local", "--stop-after"])
    return found


def _run(box: Box, chosen: Chosen, levels: Sequence[int], clock: Clock) -> int:
    """Run the levels, the evidence written after each step of them; return the exit status."""
    gpu = box["gpus"][0]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    facts: EvidenceFacts = {
        "schema": "drafthouse.evidence/1", "day": day, "gpu": gpu["name"], "driver": gpu["driver"],
        "profile": NO_PROFILE, "profile_sha256": None, "engine": None, "engine_version": None,
        "verdict": None, "levels": [0], "drafthouse": version(), "files": {},
    }  # fmt: skip
    keeper = Keeper(ROOT / "evidence" / folder_name(day, gpu["name"], NO_PROFILE), facts)
    before = level0.state()
    _level0(box, chosen, keeper)
    if 1 in levels:
        facts["levels"] = [0, 1]
        keeper.step("level 1", lambda: _level1(box, chosen.hardware, gpu["compute_capability"], keeper, clock))
    if real := [level for level in levels if level > 1]:
        facts["levels"] = [0, *real]
        keeper.wrong += keeper.step("levels 2 and 3", lambda: _real(chosen, levels)) or []
    keeper.wrong += level0.state_problems(before, level0.state())
    keeper.keep({})
    wrong = [*keeper.wrong, *keeper.more_wrong]
    print("\n".join(f"wrong: {line}" for line in wrong))
    print(f"evidence: {keeper.proven().folder}")
    return WARNED if wrong else DONE


def _level0(box: Box, chosen: Chosen, keeper: Keeper) -> None:
    """Ask the driver, and put a load on the GPU."""
    gpu, entry = box["gpus"][0], load_catalog(ROOT).hardware.get(chosen.hardware)
    keeper.wrong += level0.parser_problems()
    files: dict[str, Json] = {"level0.json": {"load": None, "why": list(chosen.why)}}
    for name, fixture in {**level0.smi_fixtures(), "nvml": level0.nvml_fixture()}.items():
        files[f"fixtures/{name}.json"] = fixture
    keeper.keep(files)
    nvcc, capability = box["nvcc"], gpu["compute_capability"]

    def loaded() -> level0.Load:
        program = level0.compiled(WORK, nvcc, capability) if nvcc else level0.torch_load(WORK, sys.executable)
        return level0.measure(program, float(entry["bandwidth_gb_s"]) if entry else None)

    load = keeper.step("level 0, load", loaded)
    if load:
        keeper.wrong += level0.load_problems(load)
    keeper.keep({"level0.json": {"load": json.loads(json.dumps(load)), "why": list(chosen.why)}})


def _level1(box: Box, hardware: str, capability: str, keeper: Keeper, clock: Clock) -> None:
    """Build, make the models, run and compare; what is there by then is kept after each step."""
    if not box["luggage"]:
        luggage.pack(LUGGAGE, ".".join(box["python"].split(".")[:2]), ROOT / "build" / "gpu-luggage")
    unpacked = WORK / "luggage"
    manifest = luggage.unpack(LUGGAGE, unpacked)
    programs = luggage.tools(unpacked, WORK / "tools")
    built = build(unpacked / "llama.cpp", WORK / "build", capability, programs, box["nvcc"], clock=clock)
    print(f"llama-server for compute capability {capability}: {built.steps} steps in {built.seconds:.0f} s", flush=True)
    head: dict[str, Json] = {
        "synthetic": models.SYNTHETIC,
        "llamacpp_build": manifest["llamacpp_build"],
        "build": {
            "settings": dict(built.settings),
            "steps": built.steps,
            "seconds": round(built.seconds),
            "cpu_s": round(built.cpu_s),
        },
    }
    keeper.keep({"level1.json": head})
    words = ["-e", f"drafthouse_engine_program={built.program}"]
    # Without a network the box's environment comes from the luggage.
    if not box["packages"]:
        words += ["-e", f"drafthouse_find_links={unpacked / 'box'}", "-e", "drafthouse_offline=true"]
        words += ["-e", "box_env_with_uv=false"]
    home = ROOT / str(site_of_inventory("local")["home"])
    place = Place(tuple(words), home, WORK)

    def keep(found: Level1) -> None:
        keeper.more_wrong = found["wrong"]
        keeper.keep({"level1.json": {**head, **as_json(found)}})

    measure(hardware, place, models.Shape(), clock, keep)


def _real(chosen: Chosen, levels: Sequence[int]) -> list[str]:
    """Run levels 2 and 3, keep the evidence of each profile that ran as it is; return what failed."""
    wrong = []
    catalog = load_catalog(ROOT)
    for words in commands(chosen, levels):
        name = words[words.index("run") + 1]
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            wrong.append(f"{name}: the run failed")
        elif "--set" not in words:
            print(f"evidence: {of_report(find(ROOT / 'reports', name), ROOT / 'evidence', catalog).folder}")
    return wrong


if __name__ == "__main__":
    run_main(main)
