"""The program of the gateway on a box without containers: one that is there, or the distribution's, only unpacked.

Unpacked, not installed: the package brings a unit that listens on port 80 at once and after each restart, and a rental
has no systemd. What is in our folder goes with it. Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .problems import HouseError, Problem

OLDEST = (2, 6)  # the oldest that distributions have, and the one the tests run
PACKAGE = "caddy"
_DO = (
    "set gateway_binary to a caddy 2.6 or newer on the box"
    " (one file: https://github.com/caddyserver/caddy/releases), or use the docker runtime"
)
Run = Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Caddy:
    """A program that was found. ``changed``: it was unpacked just now, or in check mode would be."""

    path: str
    version: str
    changed: bool = False


def run(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; one that is missing answers 127."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(
            list(words), cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(list(words), 127, "", str(error))


def ensure_caddy(given: str, folder: Path, *, check: bool = False, run: Run = run, path: str | None = None) -> Caddy:
    """Return the program: ``given``, else one on ``path``, else the distribution's in ``folder``. Raises HouseError."""
    if given:
        return Caddy(given, _fitting(given, run))
    there = shutil.which(PACKAGE, path=path if path is not None else f"{os.environ.get('PATH', '')}:/usr/bin")
    if there:
        return Caddy(there, _fitting(there, run))
    program, mark = folder / PACKAGE, folder / "package"
    offered = _offered(run)
    if program.exists() and mark.is_file() and offered in ("", mark.read_text("utf-8").strip()):
        return Caddy(str(program), _fitting(str(program), run))
    if check:
        return Caddy(str(program), offered, changed=True)
    _unpack(folder, offered, run)
    return Caddy(str(program), _fitting(str(program), run), changed=True)


def _fitting(program: str, run: Run) -> str:
    """Return the program's version. Raises HouseError where it is too old, or no such program."""
    done = run([program, "version"], Path("/"))
    found = re.match(r"v?((\d+)\.(\d+)\S*)", done.stdout.strip())
    if done.returncode or not found:
        said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
        raise HouseError(Problem(f"no caddy: {said}", "the program of the gateway", _DO, program))
    if (int(found[2]), int(found[3])) < OLDEST:
        raise HouseError(Problem(f"caddy {found[1]}", "2.6 or newer", _DO, program))
    return found[1]


def _offered(run: Run) -> str:
    """Return the version that apt would take, '' where it knows none."""
    found = re.search(r"^ *Candidate: (\S+)", run(["apt-cache", "policy", PACKAGE], Path("/")).stdout, re.MULTILINE)
    return found[1] if found and found[1] != "(none)" else ""


def _unpack(folder: Path, offered: str, run: Run) -> None:
    said = ""
    if not offered:
        # A rental's image has come without lists, mostly.
        said = run(["apt-get", "update", "--quiet"], Path("/")).stderr.strip()
        offered = _offered(run)
    if not offered:
        found = "no package caddy here" + (f"; apt-get update said: {said.splitlines()[-1]}" if said else "")
        raise HouseError(Problem(found, "one that the distribution signs (Debian 12, Ubuntu 24.04 and newer)", _DO))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as name:
        new = Path(name)
        # apt checks the package against the archive's signature, as it does before it installs one.
        done, package = _downloaded(offered, new, run)
        if done.returncode or package is None:
            words = done.stderr.strip() or done.stdout.strip() or "nothing"
            raise HouseError(Problem(f"apt-get download said: {words}", "the package caddy", _DO))
        done = run(["dpkg-deb", "--extract", package.name, "."], new)
        unpacked = new / "usr/bin/caddy"
        if done.returncode or not unpacked.is_file():
            raise HouseError(Problem(f"{package.name}: {done.stderr.strip()}", "a package with /usr/bin/caddy", _DO))
        (folder / "package").unlink(missing_ok=True)
        unpacked.chmod(0o755)
        unpacked.replace(folder / PACKAGE)
    # Last: what was interrupted before is unpacked again.
    (folder / "package").write_text(f"{offered}\n", "utf-8")


def _downloaded(offered: str, folder: Path, run: Run) -> tuple[subprocess.CompletedProcess[str], Path | None]:
    """Download the package; where the archive has it no more, the lists are old: with new ones, once more."""
    words = ["apt-get", "download", "--quiet", "-o", "Acquire::Retries=3"]
    done = run([*words, f"{PACKAGE}={offered}"], folder)
    if done.returncode:
        run(["apt-get", "update", "--quiet"], Path("/"))
        done = run([*words, PACKAGE], folder)
    return done, next(iter(folder.glob("*.deb")), None)
