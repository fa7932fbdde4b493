"""Level 0: what the driver of a real GPU answers, through our own readers, and what a load of known size shows.

Nothing of the GPU is changed: no clock, no limit, no persistence mode. That it ends as it began is checked.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from drafthouse.bench.gpu_samples import GpuSampler
from drafthouse.bench.machine_types import GpuFacts, GpuMeasured
from drafthouse.bench.nvml import Unreadable, open_nvml
from drafthouse.core.documents import Json
from drafthouse.core.errors import one_problem
from drafthouse.host.box_facts import GPU_FIELDS, listed_gpus
from drafthouse.host.driver.facts import read_driver
from drafthouse.host.nvidia_smi import SmiAnswer, gpu_uuids, query, read_smi, rows

#: What must be the same before and after.
STATE = ("uuid", "persistence_mode", "mig.mode.current", "compute_mode", "power.limit", "clocks.max.sm")
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Of boards; the last part of a UUID has twelve digits.
_SERIAL = re.compile(r"\b\d{13}\b")
_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")
_LOAD_S = 10.0
#: How long a program of level 0 may take: a compiler, the load with the GPU's start, a list of GPUs.
_MOST_S = 90.0
_COPY_BYTES = 1 << 30
#: Two clocks of one thing: NVML's energy counter, and power read several times a second.
_ENERGY_WITHIN = 0.1
#: A copy reaches most of the data sheet's bandwidth, and never more than all of it.
_BANDWIDTH = (0.7, 1.02)


class Load(TypedDict):
    """What a load showed: bandwidth in GB/s, energy in J by NVML's counter and by power times seconds."""

    bandwidth_gb_s: float
    catalogue_gb_s: float | None
    seconds: float
    counter_j: float | None
    power_j: float
    mean_power_w: float
    during: list[GpuMeasured]


def masked(text: str) -> str:
    """An answer without UUIDs, serial numbers and bus addresses: a number in turn stands for each UUID."""
    known: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"{found[1]}-00000000-0000-0000-0000-{len(known):012d}")

    return _ADDRESS.sub("00000000:00:00.0", _SERIAL.sub("0000000000000", _UUID.sub(number, text)))


def smi_fixtures() -> dict[str, Json]:
    """Real answers of nvidia-smi, as our readers ask for them, with what they read out of them."""
    found: dict[str, Json] = {}
    for name, fields in {"box": GPU_FIELDS, "driver": ("name", "driver_version"), "state": STATE}.items():
        found[f"smi-{name}"] = _fixture(fields, query(*fields))
    done = _ended(["nvidia-smi", "-L"])
    found["smi-list"] = {
        "kind": "recorded",
        "argv": ["nvidia-smi", "-L"],
        "status": done.returncode,
        "output": masked(done.stdout),
    }
    return found


def _fixture(fields: Sequence[str], answer: SmiAnswer) -> Json:
    return {
        "kind": "recorded",
        "fields": list(fields),
        "status": answer["status"],
        "output": masked(answer["output"]),
        "error": masked(answer["error"]),
    }


def parser_problems() -> list[str]:
    """Return where our readers disagree with each other or read nothing from a driver that answers."""
    wrong = []
    gpus, driver = listed_gpus(), read_driver()
    smi = read_smi(driver["smi"])
    done = _ended(["nvidia-smi", "-L"])
    if not smi.works:
        wrong.append(f"read_smi: no version in {smi.text!r}")
    if [gpu["uuid"] for gpu in gpus.values()] != gpu_uuids(done.stdout):
        wrong.append("listed_gpus and nvidia-smi -L: other UUIDs")
    nvml = open_nvml()
    facts = nvml.facts()
    if nvml.why:
        wrong.append(f"NVML: {nvml.why}")
    for gpu, fact in zip(gpus.values(), facts, strict=False):
        wrong += [f"NVML, GPU {fact['index']}: no {key}" for key, value in fact.items() if value is None]
        if fact["name"] != gpu["name"] or fact["uuid"] != gpu["uuid"] or fact["driver_version"] != gpu["driver"]:
            wrong.append(f"NVML and nvidia-smi: {fact['name']} {fact['driver_version']}, {gpu['name']} {gpu['driver']}")
        total = fact["memory_total_bytes"]
        if total and abs(total / 2**20 - gpu["memory_mib"]) > 0.05 * gpu["memory_mib"]:
            wrong.append(f"NVML and nvidia-smi: {total / 2**20:.0f} and {gpu['memory_mib']} MiB")
    nvml.close()
    return wrong


def nvml_fixture() -> Json:
    """What NVML tells of the GPUs now, UUIDs masked."""
    nvml = open_nvml()
    facts: list[GpuFacts] = nvml.facts()
    nvml.close()
    return {"kind": "recorded", "gpus": json.loads(masked(json.dumps(facts)))}


def state() -> list[dict[str, str]]:
    """What must not change, a row a GPU."""
    return rows(query(*STATE), *STATE)


def compiled(folder: Path, nvcc: str, capability: str) -> Path:
    """The program that puts a load on the GPU. Raises DrafthouseError."""
    folder.mkdir(parents=True, exist_ok=True)
    program, source = folder / "load", Path(__file__).with_name("load.cu")
    number = capability.replace(".", "")
    command = [nvcc, "-O2", f"-gencode=arch=compute_{number},code=sm_{number}", "-o", str(program), str(source)]
    done = _ended(command)
    if done.returncode:
        raise one_problem("program-failed", done.stderr.strip()[-500:], "nvcc that ends well", "read the lines above")
    return program


def torch_load(folder: Path, python: str) -> Path:
    """The same program by way of PyTorch, for a box without nvcc."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "load"
    program.write_text(f'#!/bin/sh\nexec {python} {Path(__file__).with_name("torch_load.py")} "$@"\n')
    program.chmod(0o755)
    return program


def measure(program: Path, catalogue_gb_s: float | None) -> Load:
    """Put the load on the first GPU and read it in three ways meanwhile: NVML's samples, its counter, its power."""
    copied = json.loads(_said([str(program), "copy", str(_COPY_BYTES), "3"]))
    nvml = open_nvml(["0"])
    sampler = GpuSampler(nvml)
    watts: list[tuple[float, float]] = []
    ended = threading.Event()

    def read_power() -> None:
        while not ended.wait(0.1):
            values = rows(query("power.draw"), "power.draw")
            if values and values[0].get("power.draw", "").replace(".", "", 1).isdigit():
                watts.append((time.monotonic(), float(values[0]["power.draw"])))

    before = _counter(nvml)
    began = time.monotonic()
    reader = threading.Thread(target=read_power, daemon=True)
    reader.start()
    _said([str(program), "burn", str(_LOAD_S)])
    took_s = time.monotonic() - began
    after = _counter(nvml)
    ended.set()
    reader.join(timeout=70)
    during = sampler.summaries([(began, began + took_s)])
    sampler.close()
    nvml.close()
    mean_w = sum(value for _, value in watts) / len(watts) if watts else 0.0
    for one in during:
        one["uuid"] = masked(one["uuid"])
    return {
        "bandwidth_gb_s": copied["gb_s"],
        "catalogue_gb_s": catalogue_gb_s,
        "seconds": round(took_s, 3),
        "counter_j": None if before is None or after is None else round(after - before, 1),
        "power_j": round(mean_w * took_s, 1),
        "mean_power_w": round(mean_w, 1),
        "during": during,
    }


def load_problems(load: Load) -> list[str]:
    """What a load showed that cannot be right. Pure."""
    wrong = []
    catalogue, counter = load["catalogue_gb_s"], load["counter_j"]
    if catalogue and not _BANDWIDTH[0] <= load["bandwidth_gb_s"] / catalogue <= _BANDWIDTH[1]:
        wrong.append(f"bandwidth: {load['bandwidth_gb_s']} GB/s measured, {catalogue} in the catalogue")
    if counter is None:
        wrong.append("energy: no counter")
    elif abs(counter - load["power_j"]) > _ENERGY_WITHIN * counter:
        wrong.append(f"energy: {counter} J by the counter, {load['power_j']} J by power times seconds")
    for gpu in load["during"]:
        if not gpu["samples"] or gpu["error"]:
            wrong.append(f"GPU {gpu['index']}: {gpu['samples']} samples, {gpu['error'] or 'no error'}")
        elif (gpu["utilization_median_percent"] or 0) < 50:
            wrong.append(f"GPU {gpu['index']}: {gpu['utilization_median_percent']} % busy under a load")
    return wrong


def state_problems(before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]]) -> list[str]:
    """What of the GPUs is not as it was. Pure."""
    if len(before) != len(after):
        return [f"{len(before)} GPUs before, {len(after)} after"]
    return [
        f"GPU {number}: {key} was {value}, is {now.get(key)}"
        for number, (one, now) in enumerate(zip(before, after, strict=True))
        for key, value in one.items()
        if now.get(key) != value
    ]


def _counter(nvml: object) -> float | None:
    try:
        return float(sum(nvml.energy_j()))  # type: ignore[attr-defined]
    except Unreadable:
        return None


def _said(command: Sequence[str]) -> str:
    done = _ended(command)
    if done.returncode:
        needed = "a load that ends well"
        raise one_problem("program-failed", done.stderr.strip()[-500:] or "no word", needed, "read the lines above")
    return done.stdout


def _ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; one that hangs has status 124, and is killed."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOST_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"not ended after {_MOST_S:.0f} s")
