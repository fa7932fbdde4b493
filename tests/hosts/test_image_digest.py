"""A tag that moves, in a real registry (Debian's docker-registry) and on a real container engine.

The image is a folder with one file; nothing of it runs. The registry is on loopback, where Docker speaks plain HTTP.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.pins import read_pins
from drafthouse.host.docker import image_digest
from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import Ended, play
from tests.hosts.hosts import engine
from tests.support.ports import free_port

SETTINGS = """
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


def docker(*words: str, given: bytes = b"") -> str:
    done = subprocess.run(["docker", *words], input=given, capture_output=True, check=True)
    return done.stdout.decode().strip()


def registry_program() -> str:
    """Debian's registry: the installed one, or its package's, unpacked into .cache; skip where it is not had."""
    kept = ROOT / ".cache" / "tools" / "docker-registry"
    path = f"/usr/bin:{kept}/usr/bin"
    if not shutil.which("docker-registry", path=path):
        kept.mkdir(parents=True, exist_ok=True)
        words = "apt-get -o APT::Sandbox::User=root download docker-registry && dpkg-deb -x docker-registry_*.deb ."
        subprocess.run(["sh", "-c", words], cwd=kept, capture_output=True, check=False, timeout=180)
    return shutil.which("docker-registry", path=path) or pytest.skip("no docker-registry (apt-get install it)")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry's address, ``127.0.0.1:port``."""
    program = registry_program()
    folder, port = tmp_path_factory.mktemp("registry"), free_port()
    (folder / "config.yml").write_text(SETTINGS.format(folder=folder, port=port), "utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [program, "serve", str(folder / "config.yml")], stdout=log, stderr=log, env=environment
        ) as process,
    ):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            try:
                opener.open(f"http://127.0.0.1:{port}/v2/", timeout=2).read()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
        process.terminate()


@pytest.fixture
def name(registry: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """An image that the registry has and the engine does not."""
    engine()
    name = f"{registry}/{request.node.name.lower()}:v1"
    publish(name, b"first")
    yield name
    forget(name)


def publish(name: str, content: bytes) -> str:
    """Push an image of one file under a tag; return the digest that the registry gave it. The engine keeps nothing."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("engine")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    docker("import", "-", name, given=made.getvalue())
    docker("push", "--quiet", name)
    (digest,) = json.loads(docker("image", "inspect", "--format", "{{json .RepoDigests}}", name))
    forget(name)
    return str(digest.partition("@")[2])


def forget(name: str) -> None:
    """Remove every name of an image from the engine."""
    found = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", name], capture_output=True, check=False
    )
    if found.returncode == 0:
        docker("image", "rm", "--force", found.stdout.decode().strip())


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this clone keeps what it pinned."""
    file = tmp_path / "pins.json"
    monkeypatch.setenv("DRAFTHOUSE_PINS", str(file))
    return file


def fetch(folder: Path, name: str, *words: str, **more: Any) -> Ended:
    """Play the one task that a site.yml fetches an image with; the variable `offline` as there."""
    playbook = folder / "fetch.yml"
    wished = {"name": name, "offline": "{{ offline | default(false) }}"}
    task = {"name": "Fetch", "drafthouse.core.image": wished}
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    return play(str(playbook), *words, **more)


def test_a_tag_is_pinned_at_the_first_pull_and_refused_when_it_moves(name: str, pins: Path, tmp_path: Path) -> None:
    first = image_digest.in_registry(name)
    assert (fetch(tmp_path, name, "--check").changed, pins.exists()) == (1, False)
    pulled = fetch(tmp_path, name)
    assert (pulled.status, pulled.changed) == (0, 1), pulled.output
    assert read_pins(pins).images == {name: first}
    assert fetch(tmp_path, name).changed == 0
    # Its maker gives the tag to another image. The box still has the pinned one, and goes on with it.
    second = publish_beside(name, b"second")
    assert second != first
    assert (fetch(tmp_path, name).status, image_digest.on_box(name).digests) == (0, (first,))  # type: ignore[union-attr]
    # A box that has none yet is told, before a byte is fetched.
    forget(name)
    refused = fetch(tmp_path, name)
    assert refused.status != 0
    assert refused.lines("found") == [f"found: {name} is {second} in its registry"]
    assert refused.lines("needed") == [f"needed: {first}, its digest at the first pull (pins.json)"]
    assert "-e repin=true" in refused.lines("do")[0]
    assert image_digest.on_box(name) is None
    # So is one where somebody pulled it by hand.
    docker("pull", "--quiet", name)
    by_hand = fetch(tmp_path, name)
    assert by_hand.lines("found") == [f"found: {name} is {second} on the box"]
    # And who wants the new one says so once.
    assert fetch(tmp_path, name, repin=True).status == 0
    assert read_pins(pins).images == {name: second}
    assert fetch(tmp_path, name).status == 0


def publish_beside(name: str, content: bytes) -> str:
    """Push other bytes under the tag, and leave on the engine what it has there."""
    (kept,) = json.loads(docker("image", "inspect", "--format", "[{{json .Id}}]", name))
    docker("tag", kept, f"{name}-kept")
    digest = publish(name, content)
    docker("tag", f"{name}-kept", name)
    docker("image", "rm", f"{name}-kept")
    return digest


def test_a_pinned_tag_is_pulled_by_its_digest(name: str, pins: Path, tmp_path: Path) -> None:
    assert fetch(tmp_path, name).status == 0
    digest = read_pins(pins).images[name]
    forget(name)
    assert image_digest.check(name, digest)["pull"] == f"{name.rpartition(':')[0]}@{digest}"
    assert fetch(tmp_path, name).status == 0
    found = image_digest.on_box(name)
    assert found is not None
    assert found.digests == (digest,)


def test_an_image_that_was_loaded_is_the_pinned_one_and_offline_none_is_pulled(
    name: str, pins: Path, tmp_path: Path
) -> None:
    assert fetch(tmp_path, name).status == 0
    docker("image", "save", "--output", str(tmp_path / "engine.tar"), name)
    forget(name)
    refused = fetch(tmp_path, name, offline=True)
    assert refused.lines("code") == ["code: image-not-offline"]
    # What was loaded has no registry: it is known by its own id.
    docker("image", "load", "--quiet", "--input", str(tmp_path / "engine.tar"))
    assert (fetch(tmp_path, name, offline=True).status, fetch(tmp_path, name).changed) == (0, 0)
