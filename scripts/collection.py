#!/usr/bin/env python3
"""Build the Ansible collection as one file: build/drafthouse-core-VERSION.tar.gz.

In the clone, module_utils is a link to src/drafthouse, which ansible-galaxy leaves out because it leads outside. So the
collection is built from a copy in which the link is resolved. It has the roles that prepare a box, and the table of
GPUs that one of them reads. The other roles are phases of site.yml and stay in the clone, like catalogue and profiles.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from _clone import parser_of, project, run

from drafthouse.core.errors import one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.workspace import ROOT

_COLLECTION = ROOT / "collections" / "ansible_collections" / "drafthouse" / "core"
#: Roles for playbooks of others, by full names such as drafthouse.core.firewall.
_ROLES = ("box_env", "container_engine", "firewall", "nvidia_driver")
_GPUS = Path("profiles", "catalog", "gpus.yml")


def main() -> int:
    """Build the collection, and print its path."""
    parser = parser_of(__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build", help="the folder of the file")
    given = parser.parse_args()
    print(built(given.to))
    return DONE


def built(folder: Path) -> Path:
    """The collection's file, built into ``folder``. Raises DrafthouseError with the message of ansible-galaxy."""
    about = project()
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as copy:
        staged = Path(copy) / "core"
        shutil.copytree(_COLLECTION, staged, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "LICENSE"):
            shutil.copy(ROOT / name, staged / name)
        for name in _ROLES:
            shutil.copytree(ROOT / "roles" / name, staged / "roles" / name)
        # The place of an installed library's data (core/places.py).
        gpus = staged / "plugins" / "module_utils" / "data" / _GPUS
        gpus.parent.mkdir(parents=True)
        shutil.copy(ROOT / _GPUS, gpus)
        # JSON is YAML.
        galaxy = {
            "namespace": "drafthouse",
            "name": "core",
            "version": about["version"],
            "readme": "README.md",
            "authors": ["Drafthouse"],
            "description": about["description"],
            "license_file": "LICENSE",
            "tags": ["ai", "nvidia", "docker", "linux"],
        }
        (staged / "galaxy.yml").write_text(json.dumps(galaxy), "utf-8")
        command = ["ansible-galaxy", "collection", "build", str(staged), "--output-path", str(folder), "--force"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise one_problem("program-failed", f"ansible-galaxy said: {output}", "a collection that builds", "fix that")
    return folder / f"drafthouse-core-{about['version']}.tar.gz"


if __name__ == "__main__":
    run(main)
