"""docs/weights-elsewhere.md, "Boxes without a network": its commands, the second half of them where no network is."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import BIN, Play
from tests.support.page_commands import commands_of
from tests.support.programs import needs

pytestmark = [
    pytest.mark.soak,
    pytest.mark.processes,
    needs("unshare", "ip", "git"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a namespace without a network needs root"),
]
PAGE = commands_of((ROOT / "docs" / "weights-elsewhere.md").read_text("utf-8"))
#: Read by nobody: the settings of pip and uv of this machine, which may name an index or a folder of its own.
NO_SETTINGS = {"PIP_CONFIG_FILE": "/dev/null", "XDG_CONFIG_HOME": "/nowhere"}


def test_a_clone_and_its_box_are_set_up_from_folders_alone(
    run: Play, home: Path, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    wheels = tmp_path / "wheels"
    downloads = [shlex.split(command) for command in PAGE if "pip download" in command]
    assert len(downloads) > 3
    for words in downloads:
        assert words[words.index("--dest") + 1] == "wheels"
        words[words.index("--dest") + 1] = str(wheels)
        subprocess.run([str(BIN / "pip"), *words[1:]], cwd=ROOT, capture_output=True, check=True, timeout=600)
    assert run("site.yml --tags weights").status == 0

    (settings,) = [command for command in PAGE if command.startswith("export PIP_NO_INDEX")]
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    script = f"""
        set -eu
        ip link set lo up
        {settings.replace("/mnt/wheels", shlex.quote(str(wheels)))}
        make venv
        .venv/bin/ansible-playbook site.yml -i inventory/local --tags host,weights \\
            -e drafthouse_offline=true -e drafthouse_weights_from={shlex.quote(str(home / "models"))}
    """
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script],
        cwd=clone,
        env={**os.environ, **NO_SETTINGS, "ANSIBLE_CONFIG": str(clone / "ansible.cfg")},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert list(clone.glob(".drafthouse/engines/*/bin/llama-server"))
    assert list(clone.glob(".drafthouse/models/*/*.gguf"))
    figure(f"offline: {len(list(wheels.iterdir()))} wheels for clone, box and engine")
