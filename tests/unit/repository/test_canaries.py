"""The look for canaries finds them: a look that finds nothing proves nothing, unless it would have."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.support.canaries import Canaries, Watched, canary, on_the_box

pytestmark = pytest.mark.processes


SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


def looked(watched: Watched, times: int) -> None:
    """Wait until it has looked so often from now on."""
    enough, end = watched.looked() + times, time.monotonic() + 120
    while watched.looked() < enough:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_look_finds_what_it_looks_for(tmp_path: Path) -> None:
    secret = Canaries({"one": canary("k+/=")})
    value = secret.values["one"]
    texts = {
        "plain": value, "url": urllib.parse.quote(value, safe=""), "hex": value.encode().hex(),
        **{f"base64-{n}": base64.b64encode(b"x" * n + value.encode() + b"yz").decode() for n in range(3)},
        "for-urls": base64.urlsafe_b64encode(value.encode()).decode(),
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(f"before {text} behind")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(value.encode()))
    (tmp_path / "link").symlink_to(f"/{urllib.parse.quote(value, safe='')}")
    (tmp_path / "none").write_text("nothing")
    assert {path.name for _, path, _ in secret.below(tmp_path)} == {*texts, "packed.gz", "link"}
    with Watched(secret) as watched, subprocess.Popen([*SLEEPS, value]) as process:
        looked(watched, 4)
        process.kill()
    assert watched.looks > 3
    assert len(watched.found) == 1
    assert "one in cmdline of python" in next(iter(watched.found))


class Here:
    """This machine as a box."""

    def exec(
        self, *argv: str, check: bool = True, timeout: float = 60, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, check=check, timeout=timeout, input=stdin, capture_output=True, text=True)


def test_a_boxs_disk_is_searched_in_all_forms(tmp_path: Path) -> None:
    secret = Canaries({"one": canary("k+/="), "two": canary()})
    (tmp_path / "folder").mkdir()
    kept = tmp_path / "folder" / "key"
    kept.write_text(base64.b64encode(f"ab{secret.values['one']}".encode()).decode())
    kept.chmod(0o600)
    packed = tmp_path / "bundle.tar.gz"
    packed.write_bytes(gzip.compress(f"log {secret.values['one']}".encode()))
    packed.chmod(0o640)
    assert on_the_box(Here(), secret, str(tmp_path)) == {"one": {str(kept): "0o600", str(packed): "0o640"}, "two": {}}


def test_a_value_that_comes_later_is_looked_for(tmp_path: Path) -> None:
    secret = Canaries({})
    with Watched(secret) as watched:
        value = canary()
        watched.also("late", value)
        with subprocess.Popen([*SLEEPS, value]) as process:
            looked(watched, 4)
            process.kill()
    assert [line.split(" of ")[0] for line in watched.found] == ["late in cmdline"]
    (tmp_path / "file").write_text(value)
    assert [name for name, *_ in secret.below(tmp_path)] == ["late"]
