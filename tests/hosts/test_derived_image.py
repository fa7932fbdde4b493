"""The image that suffix decoding is derived into, on a real container engine: built once, said in check mode, removed.

No registry is in reach, so the image it is derived from is a root of busybox alone, whose `uv` writes down what it was
asked. Whether vLLM's own image can build the package is not shown here.
"""

from __future__ import annotations

import io
import json
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.host.docker.derived_image import derived_images
from drafthouse.host.docker.image_digest import on_box
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.e2e.conftest import Ended, play
from tests.hosts.hosts import engine

BASE = "drafthouse-test/vllm-openai:v0.32.0"
UV = '#!/bin/sh\necho "$@" >> /asked\n[ "$*" != "${*% -r -}" ] && cat >> /asked\nexit ${UV_STATUS:-0}\n'
PROGRAMS = ("sh", "cat", "echo", "printf", "sleep")


def _tiny_root(busybox: str, uv: str) -> bytes:
    """A root with busybox and our `uv`, as a tar."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(busybox, "bin/busybox")
        for name in PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        file = tarfile.TarInfo("bin/uv")
        file.size, file.mode = len(uv), stat.S_IRWXU
        tar.addfile(file, io.BytesIO(uv.encode()))
    return made.getvalue()


def _docker(*words: str, given: bytes = b"") -> str:
    return subprocess.run(["docker", *words], input=given, capture_output=True, check=True).stdout.decode()


@pytest.fixture
def base() -> Iterator[str]:
    """The image to derive from, in place of vLLM's; it and what is derived is removed at the end."""
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("no busybox here (apt-get install busybox-static): images are not derived")
    engine()
    _docker("import", "-", BASE, given=_tiny_root(busybox, UV))
    yield BASE
    for name in [*derived_images(), BASE]:
        subprocess.run(["docker", "image", "rm", "--force", name], capture_output=True, check=False)


def resolved(base: str) -> Any:
    site = {**site_of_inventory("workstation"), "engine_image": base}
    return resolved_profile("rtx6000-gptoss-suffix", site)


def ask(folder: Path, *words: str, **arguments: Any) -> Ended:
    """Play one task with the module on this machine."""
    playbook = folder / "derive.yml"
    task = {"name": "Derive", "drafthouse.core.derived_image": arguments}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    return play(str(playbook), *words)


def test_it_is_built_once_and_removed(base: str, tmp_path: Path) -> None:
    image = resolved(base)["derived_image"]
    arguments = {"name": image["name"], "containerfile": image["containerfile"]}
    said = ask(tmp_path, "--check", **arguments)
    assert (said.status, said.changed) == (0, 1)
    assert on_box(image["name"]) is None
    built = ask(tmp_path, **arguments)
    assert (built.status, built.changed) == (0, 1)
    asked = _docker("run", "--rm", "--network", "none", image["name"], "/bin/cat", "/asked")
    assert "--no-build-isolation --require-hashes -r -\narctic-inference==0.1.1 --hash=sha256:" in asked
    assert "nanobind==2.9.2" in asked
    assert ask(tmp_path, **arguments).changed == 0
    # A container of ours that still stands keeps its image.
    _docker("create", "--name", "drafthouse-test-user", "--network", "none", image["name"], "/bin/sleep", "1")
    try:
        kept = ask(tmp_path, state="absent")
        assert (kept.status, kept.changed) == (0, 0)
        assert on_box(image["name"])
    finally:
        _docker("rm", "drafthouse-test-user")
    assert ask(tmp_path, "--check", state="absent").changed == 1
    assert ask(tmp_path, state="absent").changed == 1
    assert on_box(image["name"]) is None
    assert on_box(base)
    assert ask(tmp_path, state="absent").changed == 0


def test_why_it_could_not_be_built(base: str, tmp_path: Path) -> None:
    image = resolved(base)["derived_image"]
    broken = image["containerfile"].replace("RUN ", "RUN export UV_STATUS=7; ")
    ended = ask(tmp_path, name=image["name"], containerfile=broken)
    assert ended.status != 0
    assert ended.lines("found") == ["found: docker build failed; its last lines:"]
    assert "returned a non-zero code: 7" in ended.output or "exit code: 7" in ended.output
    assert f"needed: an image derived from {base}" in ended.output
    assert "drafthouse_runtime=process" in ended.lines("do")[0]
    assert on_box(image["name"]) is None
