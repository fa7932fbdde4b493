"""Run nvidia-smi and parse its output.

Standard library only, Python 3.10: it runs on a machine before Drafthouse has installed anything there.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TypedDict

# Without persistence mode nvidia-smi first initialises every GPU. With many GPUs this takes tens of seconds.
_TIMEOUT_S = 60.0
_MAX_CHARACTERS = 4000  # of its output, and of its error output


class SmiAnswer(TypedDict):
    """Exit status, output and error output of nvidia-smi; ``status``: None if it cannot start, 124 after a timeout."""

    status: int | None
    output: str
    error: str


@dataclass(frozen=True)
class Smi:
    """The parsed answer of nvidia-smi; version and names only if it works."""

    version: str = ""  # of the driver
    names: tuple[str, ...] = ()  # of the GPUs
    mismatch: bool = False  # the kernel module and the driver's library NVML have different versions
    library: str = ""  # NVML's version; '' if it works, or if the error does not name it
    text: str = ""  # its output; if it does not work, the beginning of output and error on one line

    @property
    def works(self) -> bool:
        """True if the driver answers and shows a GPU."""
        return bool(self.version)


def query(*fields: str) -> SmiAnswer:
    """Run ``nvidia-smi --query-gpu``: one line per GPU, without units. One unknown field fails the query."""
    argv = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except OSError:
        return {"status": None, "output": "", "error": ""}
    except subprocess.TimeoutExpired:
        # The status that timeout(1) has.
        return {"status": 124, "output": "", "error": f"nvidia-smi did not answer within {_TIMEOUT_S:.0f} s"}
    return {"status": done.returncode, "output": done.stdout[:_MAX_CHARACTERS], "error": done.stderr[:_MAX_CHARACTERS]}


def rows(answer: SmiAnswer, *fields: str) -> list[dict[str, str]]:
    """Values by field of each GPU, in the driver's order; {} for a malformed line, [] if the query failed."""
    if answer["status"] != 0:
        return []
    gpus: list[dict[str, str]] = []
    for line in answer["output"].splitlines():
        values = list(map(str.strip, line.split(",")))
        gpus.append(dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {})
    return gpus


def read_smi(answer: SmiAnswer) -> Smi:
    """Parse the answer to the query ``name,driver_version``; a GPU's name may contain commas.

    A failing nvidia-smi writes the reason to its standard output. A query that succeeds and lists no GPU counts as not
    working.
    """
    text = f"{answer['output']}\n{answer['error']}".strip()
    if answer["status"] == 0:
        gpus = re.findall(r"^(.*), *(\d+(?:\.\d+)+)\s*$", answer["output"], re.MULTILINE)
        if gpus:
            return Smi(version=gpus[0][1], names=tuple(name for name, _ in gpus), text=text)
    library = re.search(r"NVML library version: ([\d.]+)", text)
    return Smi(
        mismatch="version mismatch" in text.lower(),
        library=library[1] if library else "",
        text=" ".join(text.split())[:200],
    )


def gpu_uuids(text: str) -> list[str]:
    """The UUIDs of the GPUs in the output of ``nvidia-smi -L``; '' for a GPU without one."""
    return re.findall(r"^GPU \d+: (?:.*\(UUID: (GPU-[^)\s]+)\))?", text, re.MULTILINE)
