"""`make test-gpu`: look what this box has, run the fullest level it can, and keep the evidence.

    python -m tests.gpu.lane [--level N] [--dry-run]

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
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import site_of_inventory
from drafthouse.report.archive import find
from drafthouse.report.evidence import LANE, Evidence, write
from tests.gpu import level0, level1, luggage, models
from tests.gpu.box import Box, Chosen, choose, look
from tests.gpu.llama_build import build

WORK = ROOT / ".drafthouse" / "gpu-lane"
LUGGAGE = ROOT / "build" / "gpu-luggage.tar.xz"
#: Level 2: the profiles whose target and heads 24 GB take, on whatever card this is.
REAL = ("rtx3090-qwen3-8b-eagle3", "rtx3090-qwen3-8b-dflash", "rtx3090-qwen3-8b-peagle")


def main() -> int:
    """Run the lane."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=int, choices=(0, 1, 2, 3), help="no level above this one")
    parser.add_argument("--dry-run", action="store_true", help="say which levels would run, and their commands")
    given = parser.parse_args()
    house = load_house(ROOT)
    box = look(Path(site_of_inventory("local")["models_dir"]), LUGGAGE)
    articles = sorted({one["hardware"] for one in house.profiles.values() if one.get("article")})
    chosen = choose(box, house.hardware, articles)
    if not chosen.levels:
        print(f"make test-gpu cannot be done here: {chosen.why[0]}; docs/gpu-lane.md")
        return NOT_HERE
    print("\n".join(chosen.why), flush=True)
    levels = [level for level in chosen.levels if given.level is None or level <= given.level]
    if given.dry_run:
        print("\n".join(" ".join(words) for words in commands(chosen, levels)))
        return DONE
    return _run(box, chosen, levels)


def commands(chosen: Chosen, levels: Sequence[int]) -> list[list[str]]:
    """Return the runs of levels 2 and 3: through the commands that everybody has."""
    drafthouse = [sys.executable, str(ROOT / "scripts" / "drafthouse")]
    house = load_house(ROOT)
    found = []
    if 2 in levels:
        card = ["--set", f"hardware={chosen.hardware}", "--set", "experiment.once=[gates, published]"]
        suites = ["--set", "experiment.suites=[mixed, gates, published]"]
        for name in REAL:
            # Of the card's own profile nothing is changed: only that counts as verified.
            more = [] if house.profiles[name]["hardware"] == chosen.hardware else [*card, *suites]
            found.append([*drafthouse, "run", name, "--inventory", "local", *more, "--stop-after"])
    if 3 in levels:
        for name, one in sorted(house.profiles.items()):
            if one["hardware"] == chosen.hardware and one.get("article"):
                found.append([*drafthouse, "run", name, "--inventory", "local", "--stop-after"])
    return found


def _run(box: Box, chosen: Chosen, levels: Sequence[int]) -> int:
    house, gpu = load_house(ROOT), box["gpus"][0]
    entry = house.hardware.get(chosen.hardware)
    files: dict[str, Json] = {}
    before = level0.state()
    wrong = level0.parser_problems()
    for name, fixture in {**level0.smi_fixtures(), "nvml": level0.nvml_fixture()}.items():
        files[f"fixtures/{name}.json"] = fixture
    bandwidth = float(entry["bandwidth_gb_s"]) if entry else None
    program = (
        level0.compiled(WORK, box["nvcc"], gpu["compute_capability"])
        if box["nvcc"]
        else level0.torch_load(WORK, sys.executable)
    )
    load = level0.measure(program, bandwidth)
    wrong += level0.load_problems(load)
    if 1 in levels:
        found = _level1(box, chosen.hardware, gpu["compute_capability"])
        files["level1.json"], more = found
        wrong += more
    wrong += _real(chosen, levels)
    wrong += level0.state_problems(before, level0.state())
    files["level0.json"] = {"load": json.loads(json.dumps(load)), "wrong": wrong, "why": list(chosen.why)}
    day = time.strftime("%Y-%m-%d", time.gmtime())
    facts: Evidence = {
        "schema": "drafthouse.evidence/1", "day": day, "gpu": gpu["name"], "driver": gpu["driver"], "profile": LANE,
        "profile_sha256": None, "engine": None, "engine_version": None, "verdict": None, "levels": list(levels),
        "drafthouse": version(), "files": {},
    }  # fmt: skip
    proven = write(ROOT / "evidence" / folder_name(day, gpu["name"], LANE), facts, files)
    print("\n".join([*(f"wrong: {line}" for line in wrong), f"evidence: {proven.folder}"]))
    return WARNED if wrong else DONE


def _level1(box: Box, hardware: str, capability: str) -> tuple[Json, list[str]]:
    """Build, make the models, run and compare; return what level1.json holds, and what is wrong."""
    if not box["luggage"]:
        luggage.pack(LUGGAGE, ".".join(box["python"].split(".")[:2]), ROOT / "build" / "gpu-luggage")
    unpacked = WORK / "luggage"
    manifest = luggage.unpack(LUGGAGE, unpacked)
    programs = luggage.tools(unpacked, WORK / "tools")
    built = build(unpacked / "llama.cpp", WORK / "build", capability, programs, nvcc=box["nvcc"])
    print(f"llama-server for compute capability {capability}: {built.seconds:.0f} s", flush=True)
    # Without a network the box's environment comes from the luggage, as from a bundle.
    more = [] if box["packages"] else ["-e", f"drafthouse_bundle={unpacked / 'box.tar'}", "-e", "box_env_with_uv=false"]
    runs = compare(hardware, built.program, more, models.Shape(), on_gpu=True)
    kept: Json = {
        "synthetic": models.SYNTHETIC,
        "llamacpp_build": manifest["llamacpp_build"],
        "settings": dict(built.settings),
        "build_s": round(built.seconds),
        "runs": json.loads(json.dumps(runs)),
    }
    return kept, level1.problems(runs)


def compare(
    hardware: str, program: Path, more: Sequence[str], shape: models.Shape, *, on_gpu: bool, short: bool = False
) -> list[level1.Run]:
    """Run the lane's profiles: draft lengths in F16, one in Q4, n-gram on copying; return their figures."""
    runs: list[level1.Run] = []
    for kind in ("F16",) if short else ("F16", "Q4_0"):
        files = models.make(WORK / "models", shape, kind)
        names = {role: path.stem for role, path in files.items()}
        lengths = level1.LENGTHS[:1] if short or kind == "Q4_0" else level1.LENGTHS
        texts = {
            f"gpu-lane-{kind.lower().replace('_', '')}-k{tokens}": level1.profile(
                hardware, names, tokens, on_gpu=on_gpu
            )
            for tokens in lengths
        }
        if kind == "F16" and not short:
            texts["gpu-lane-copying"] = level1.profile(hardware, names, 8, lookup=True, on_gpu=on_gpu)
        with level1.installed({f"gpu-lane-{kind.lower()}": models.entries(files, shape)}, texts):
            cost: float | None = None
            for name in texts:
                is_lookup = name.endswith("copying")
                one = level1.figures(level1.run(name, program, more), None if is_lookup else cost)
                cost = one["cost_of_a_draft"] if cost is None else cost
                runs.append(one)
    return runs


def _real(chosen: Chosen, levels: Sequence[int]) -> list[str]:
    """Run levels 2 and 3, keep the evidence of each profile that ran as it is; return what failed."""
    wrong = []
    house = load_house(ROOT)
    for words in commands(chosen, levels):
        name = words[words.index("run") + 1]
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            wrong.append(f"{name}: the run failed")
        elif "--set" not in words:
            print(f"evidence: {of_report(find(ROOT / 'reports', name), ROOT / 'evidence', house).folder}")
    return wrong


if __name__ == "__main__":
    run_main(main)
