"""The program that starts CUDA in the check's container: `nvidia-smi` works where CUDA does not.

`nvidia-smi -L` needs /dev/nvidiactl alone, CUDA also /dev/nvidia-uvm (nvidia-container-toolkit issues 1246, 1743 and
1967). No compiler is on a box, so the box's own Python, with the few files that `import ctypes` reads, goes into the
image and calls ``cuInit`` of the driver's library.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

_CALL = """
import ctypes
try:
    status = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError as error:
    print("cuInit: no CUDA library:", error)
    raise SystemExit(1)
print("cuInit: status", status)
raise SystemExit(1 if status else 0)
"""
_MODULES = """
import ctypes, os, sys
files = [getattr(module, "__file__", None) for module in sys.modules.values()]
print(sys.base_prefix, os.path.realpath(sys.executable), os.__file__, *filter(None, files), sep="\\n")
"""
_STATUS = re.compile(r"cuInit: .*")


@dataclass(frozen=True)
class Interpreter:
    """A Python: its prefix, its program, and the files of the modules that `import ctypes` reads."""

    prefix: str
    program: str
    modules: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The command that lists the GPUs, then calls ``cuInit(0)``; its status is 1 unless both work."""
        listing = 'nvidia-smi -L && PYTHONHOME="$0" exec "$@"'
        return ["/bin/sh", "-c", listing, self.prefix, self.program, "-S", "-c", _CALL]

    @property
    def binaries(self) -> list[str]:
        """The program and the modules that are linked with libraries."""
        return [self.program, *(path for path in self.modules if path.endswith(".so"))]


def interpreter() -> Interpreter | None:
    """The Python that runs this; None where it has no ctypes."""
    argv = [sys.executable, "-I", "-S", "-c", _MODULES]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        return None
    prefix, program, *modules = map(str, done.stdout.splitlines())
    return Interpreter(prefix, program, tuple(dict.fromkeys(modules)))


def failed_start(output: str) -> str | None:
    """What ``cuInit`` came to in the output of the container, unless CUDA started or was never asked."""
    found = _STATUS.search(output)
    return found[0] if found and found[0] != "cuInit: status 0" else None
