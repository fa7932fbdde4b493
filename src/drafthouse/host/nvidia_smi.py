"""The one reader of nvidia-smi's output, for what runs before our own environment is there.

Standard library only, Python 3.10: it runs on a bare box.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import TypedDict

# Without persistence mode it wakes every GPU first: on a box with many of them that takes tens of seconds.
_TIMEOUT_S = 60.0
_MOST_LETTERS = 4000


class SmiAnswer(TypedDict):
    """How nvidia-smi ended and what it wrote; ``status`` is None where there is no such program."""

    status: int | None
    output: str
    error: str


@dataclass(frozen=True)
class Smi:
    """What `nvidia-smi` said: the version and the GPUs' names where it works, else why it does not."""

    version: str = ""
    names: tuple[str, ...] = ()
    mismatch: bool = False
    library: str = ""
    text: str = ""

    @property
    def works(self) -> bool:
        """Whether the driver answers and shows a GPU."""
        return bool(self.version)


def query(*fields: str) -> SmiAnswer:
    """The answer of nvidia-smi to ``--query-gpu``: a line a GPU, without units; an unknown field fails all of it."""
    argv = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except OSError:
        return {"status": None, "output": "", "error": ""}
    except subprocess.TimeoutExpired:
        return {"status": 124, "output": "", "error": f"nvidia-smi did not answer within {_TIMEOUT_S:.0f} s"}
    return {"status": done.returncode, "output": done.stdout[:_MOST_LETTERS], "error": done.stderr[:_MOST_LETTERS]}


def rows(answer: SmiAnswer, *fields: str) -> list[dict[str, str]]:
    """The values of each GPU by field, in the driver's order; {} for a line of another form, [] on failure."""
    if answer["status"] != 0:
        return []
    gpus: list[dict[str, str]] = []
    for line in answer["output"].splitlines():
        values = list(map(str.strip, line.split(",")))
        gpus.append(dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {})
    return gpus


def read_smi(answer: SmiAnswer) -> Smi:
    """Read the answer to a query whose last field is ``driver_version``; names of GPUs may hold commas.

    A failing nvidia-smi writes its reason to its standard output.
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


def listed(text: str) -> list[str]:
    """The GPUs in the output of ``nvidia-smi -L``, a UUID each; '' where it tells none."""
    return re.findall(r"^GPU \d+: (?:.*\(UUID: (GPU-[^)\s]+)\))?", text, re.MULTILINE)
