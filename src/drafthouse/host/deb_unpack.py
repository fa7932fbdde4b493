"""A program of the distribution's on a box: one that is there, or its package's, only unpacked into a folder of ours.

Unpacked, not installed: such a package brings a unit that listens on every address at once and after each restart, a
rental has no systemd, and the machine's own stays as it is. What is in our folder goes with it. A newer package of the
distribution replaces what was unpacked at the next run; one that is installed is kept new by the machine itself, and
taken first. Standard library only, Python 3.10.
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

from ..core.errors import one_problem

Run = Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"]
_VERSION = re.compile(r"(?:^|version )v?((\d+)\.(\d+)[^\s,]*)")


@dataclass(frozen=True)
class Wanted:
    """A program by its package: the first of ``programs`` (in /usr/bin) is the one that is started.

    ``ask`` is what it prints its version for, ``oldest`` the least that will do; ``what`` says what it is for,
    ``since`` which distributions have it, and ``do`` what to do where it cannot be had.
    """

    package: str
    programs: tuple[str, ...]
    ask: str
    oldest: tuple[int, int]
    what: str
    since: str
    do: str


@dataclass(frozen=True)
class Found:
    """A program that was found. ``changed``: it was unpacked just now, or in check mode would be."""

    path: str
    version: str
    changed: bool = False


def run(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; one that is missing or cannot be run answers 127, one that does not end 124."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(
            list(words), cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
    except OSError as error:
        return subprocess.CompletedProcess(list(words), 127, "", str(error))
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(list(words), 124, "", str(error))


def ensure(
    wanted: Wanted, given: str, folder: Path, *, check: bool = False, run: Run = run, path: str | None = None
) -> Found:
    """Return the program: ``given``, else one on ``path``, else the distribution's in ``folder``.

    Raises DrafthouseError.
    """
    if given:
        return Found(given, _fitting(wanted, given, run))
    searched = path if path is not None else f"{os.environ.get('PATH', '')}:/usr/bin"
    there = shutil.which(wanted.programs[0], path=searched)
    if there:
        return Found(there, _fitting(wanted, there, run))
    program, mark = folder / wanted.programs[0], folder / "package"
    offered = _offered(wanted, run)
    if program.exists() and mark.is_file() and offered in ("", mark.read_text("utf-8").strip()):
        return Found(str(program), _fitting(wanted, str(program), run))
    if check:
        return Found(str(program), offered, changed=True)
    _unpack(wanted, folder, offered, run)
    return Found(str(program), _fitting(wanted, str(program), run), changed=True)


def _fitting(wanted: Wanted, program: str, run: Run) -> str:
    """Return the program's version. Raises DrafthouseError where it is too old, or no such program."""
    done = run([program, wanted.ask], Path("/"))
    # Some print it to standard error.
    said = f"{done.stdout.strip()}\n{done.stderr.strip()}".strip()
    found = _VERSION.search(said)
    name = wanted.programs[0]
    if done.returncode or not found:
        why = said or f"exit status {done.returncode}"
        raise one_problem("program-missing", f"no {name}: {why}", wanted.what, wanted.do, program)
    if (int(found[2]), int(found[3])) < wanted.oldest:
        needed = ".".join(str(number) for number in wanted.oldest)
        raise one_problem("program-too-old", f"{name} {found[1]}", f"{needed} or newer", wanted.do, program)
    return found[1]


def _offered(wanted: Wanted, run: Run) -> str:
    """Return the version that apt would take, '' where it knows none."""
    said = run(["apt-cache", "policy", wanted.package], Path("/")).stdout
    found = re.search(r"^ *Candidate: (\S+)", said, re.MULTILINE)
    return found[1] if found and found[1] != "(none)" else ""


def _unpack(wanted: Wanted, folder: Path, offered: str, run: Run) -> None:
    package, said = wanted.package, ""
    if not offered:
        # A rental's image has come without lists, mostly.
        said = run(["apt-get", "update", "--quiet"], Path("/")).stderr.strip()
        offered = _offered(wanted, run)
    if not offered:
        found = f"no package {package}" + (f"; apt-get update said: {said.splitlines()[-1]}" if said else "")
        raise one_problem("package-missing", found, f"a package signed by the distribution ({wanted.since})", wanted.do)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as name:
        new = Path(name)
        # apt checks the package against the archive's signature, as it does before it installs one.
        done, file = _downloaded(package, offered, new, run)
        if done.returncode or file is None:
            words = done.stderr.strip() or done.stdout.strip() or "nothing"
            raise one_problem(
                "package-download-failed", f"apt-get download said: {words}", f"the package {package}", wanted.do
            )
        done = run(["dpkg-deb", "--extract", file.name, "."], new)
        unpacked = [new / "usr/bin" / program for program in wanted.programs]
        if done.returncode or not all(program.is_file() for program in unpacked):
            needed = f"a package with {' and '.join(f'/usr/bin/{program}' for program in wanted.programs)}"
            raise one_problem("package-download-failed", f"{file.name}: {done.stderr.strip()}", needed, wanted.do)
        (folder / "package").unlink(missing_ok=True)
        for program in unpacked:
            program.chmod(0o755)
            program.replace(folder / program.name)
    # Last: what was interrupted before is unpacked again.
    (folder / "package").write_text(f"{offered}\n", "utf-8")


def _downloaded(
    package: str, offered: str, folder: Path, run: Run
) -> tuple[subprocess.CompletedProcess[str], Path | None]:
    """Download the package; where the archive has it no more, the lists are old: with new ones, once more."""
    words = ["apt-get", "download", "--quiet", "-o", "Acquire::Retries=3"]
    done = run([*words, f"{package}={offered}"], folder)
    if done.returncode:
        run(["apt-get", "update", "--quiet"], Path("/"))
        done = run([*words, package], folder)
    return done, next(iter(folder.glob("*.deb")), None)
