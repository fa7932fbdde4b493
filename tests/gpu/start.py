"""What `make test-gpu` begins with, in whatever Python the box has: no GPU, no work; no network, the luggage.

Standard library only, Python 3.11 or newer. On a box with a package index the environment is that of make venv-dev.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from drafthouse.core.exit_codes import NOT_HERE
from drafthouse.host.nvidia_smi import query, read_smi
from tests.gpu import luggage

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / "build" / "gpu-luggage.tar.xz"
ENVIRONMENT = ROOT / ".venv"


def main() -> int:
    """Have an environment, and become the lane; return a status where there is nothing to do here."""
    smi = read_smi(query("name", "driver_version"))
    if not smi.works:
        why = "the driver's library is of another version" if smi.mismatch else smi.text or "no nvidia-smi"
        print(f"make test-gpu cannot be done here: no NVIDIA GPU with a working driver ({why}); docs/gpu-lane.md")
        return NOT_HERE
    if not (ENVIRONMENT / "bin" / "ansible-playbook").exists():
        if PACKED.is_file():
            from_luggage(PACKED, ENVIRONMENT, ROOT / ".drafthouse" / "gpu-lane" / "luggage")
        else:
            subprocess.run(["make", "venv-dev"], cwd=ROOT, check=True)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    environment["PATH"] = f"{ENVIRONMENT / 'bin'}:{os.environ.get('PATH', '')}"
    python = str(ENVIRONMENT / "bin" / "python")
    os.chdir(ROOT)
    os.execve(python, [python, "-m", "tests.gpu.lane", *sys.argv[1:]], environment)


def from_luggage(packed: Path, environment: Path, folder: Path) -> None:
    """Make the controller's environment from the luggage alone."""
    manifest = luggage.unpack(packed, folder)
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if manifest["python"] != ours:
        sys.exit(f"the luggage is for Python {manifest['python']}, this is {ours}: pack it with --python {ours}")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    wheels = sorted([*(folder / "controller").glob("*.whl"), *(folder / "box").glob("*.whl")])
    luggage.install(environment, [str(wheel) for wheel in wheels])
    (environment / "bin" / "drafthouse").symlink_to("../../scripts/drafthouse")


if __name__ == "__main__":
    sys.exit(main())
