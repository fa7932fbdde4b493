"""Check that CUDA starts in a container: a working `nvidia-smi` does not prove it.

`nvidia-smi -L` needs only /dev/nvidiactl, CUDA also /dev/nvidia-uvm (nvidia-container-toolkit issues 1246, 1743 and
1967). The machine may have no compiler. So its Python, with the few files that `import ctypes` reads, is copied into
the test image (`gpu_check`) and calls ``cuInit`` of the driver's library.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

# Starts CUDA, and exits with 0 only if that works. It runs in the container.
_CUINIT_SCRIPT = """
import ctypes
try:
    status = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError as error:
    print("cuInit: no CUDA library:", error)
    raise SystemExit(1)
print("cuInit: status", status)
raise SystemExit(1 if status else 0)
"""
# Prints the prefix of this Python, its executable, and all files that it has read, one a line. It runs on the machine.
_MODULES_SCRIPT = """
import ctypes, os, sys
files = [getattr(module, "__file__", None) for module in sys.modules.values()]
print(sys.base_prefix, os.path.realpath(sys.executable), os.__file__, *filter(None, files), sep="\\n")
"""
_STATUS = re.compile(r"cuInit: .*")  # a line of `_CUINIT_SCRIPT`


@dataclass(frozen=True)
class Interpreter:
    """A Python: its prefix, the path of its executable, and the files that `import ctypes` reads."""

    prefix: str
    program: str
    modules: tuple[str, ...]

    @property
    def command(self) -> list[str]:
        """The command that lists the GPUs, then calls ``cuInit(0)``. It exits with 0 only if both work."""
        # The shell gets the prefix as $0, and the rest as the command to run with it.
        listing = 'nvidia-smi -L && PYTHONHOME="$0" exec "$@"'
        return ["/bin/sh", "-c", listing, self.prefix, self.program, "-S", "-c", _CUINIT_SCRIPT]

    @property
    def binaries(self) -> list[str]:
        """The executable and the modules in machine code, which are linked with libraries."""
        return [self.program, *(path for path in self.modules if path.endswith(".so"))]


def interpreter() -> Interpreter | None:
    """The running Python; None if it has no ctypes."""
    argv = [sys.executable, "-I", "-S", "-c", _MODULES_SCRIPT]
    completed = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if completed.returncode != 0:
        return None
    prefix, program, *modules = map(str, completed.stdout.splitlines())
    return Interpreter(prefix, program, tuple(dict.fromkeys(modules)))


def failed_start(output: str) -> str | None:
    """The line with the error of ``cuInit`` in the container's output; None if CUDA started or cuInit did not run."""
    match = _STATUS.search(output)
    return match[0] if match and match[0] != "cuInit: status 0" else None
