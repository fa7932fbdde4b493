"""A pinned Python environment on a box: made from a list of exact versions, or left alone.

Used for the engines and for the environment of the box itself. uv makes it in seconds; where uv is absent
``python -m venv`` and pip do the same slower. Standard library only, Python 3.10.

A stamp file holds the hash of what was asked for. It is written last, so a run that was killed half-way
is made again from the start, and a second run reads one file and is done.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .image_engine import ImageEngine, engine_of, find_engine, place, wanted_versions
from .problems import HouseError, Problem
from .requirement_lines import all_have_hashes, with_hashes, without_hashes

STAMP = ".drafthouse-env.json"
REQUIREMENTS = ".drafthouse-requirements-"  # and a number: what one step installs, with hashes
# Raise this when the same recipe would give another environment: all are then made again.
RECIPE_VERSION = 1
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# A name, extras, one exact version, an optional marker, and hashes: `pkg[extra]==1.2.3+cpu ; python_version < '3.12'`
PINNED = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.!+_-]+(\s*;(?:(?!\s--).)+)?(\s+--hash=sha256:[0-9a-f]{64})*$"
)
HEARTBEAT_S = 5.0  # silence of an installer after which a line says that it is still at work
ERROR_LINES = 12  # of an installer's last words; the reason is among them
# From the words of uv and pip to what a person can do about it. First match wins.
ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"[Hh]ash mismatch|HASHES",
        "somebody serves another file under this version: find out who (the index, a mirror, find_links) before "
        "anything of it is trusted; nothing of it was installed",
    ),
    (r"No space left on device", "free disk space, or choose another home (drafthouse_home)"),
    (
        r"[Ff]ailed to (fetch|download)|dns error|[Cc]onnection|timed out|Name or service|Network",
        "check that the box reaches its package index (pip's and uv's settings, proxy), then run again",
    ),
    (
        r"No solution found|No matching distribution|not found in the package registry|no version of",
        "check that the pinned versions exist for this Python and processor; a wheel that is in no index "
        "needs find_links",
    ),
    (r"Command '\['cmake'", "install a C++ compiler and Python's headers (apt: g++ python3-dev), then run again"),
    (r"Permission denied", "choose a home that this user may write to (drafthouse_home)"),
)

# Called with the name of the step and a line of what the installer says.
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class EnvRecipe:
    """What an environment consists of. Equal recipes give the same stamp.

    ``python``: the interpreter to build on, a path. ``no_deps_packages`` are installed as they are, without
    what they ask for: a complete lock, or a package whose metadata asks for too much. ``torch_backend``:
    ``cpu`` or ``auto`` (uv finds the driver). ``metadata_stub``: name and version of a distribution that
    is there in all but its metadata. ``extra_index_url``: asked before the usual index. ``unpinned`` allows
    names without a version, for nightly builds; with ``prerelease`` also versions that are none yet.
    ``source_packages`` are built here, last, with ``build_packages`` and all the rest at hand: an isolated build would
    fetch what it names as its requirements, a second torch among them. ``hashes``: of versions that are named without
    them (`requirement_lines.hashes_by_pin`). A step whose versions all have hashes takes nothing without one.
    """

    path: str
    packages: Sequence[str]
    no_deps_packages: Sequence[str] = ()
    python: str = sys.executable
    torch_backend: str | None = None
    metadata_stub: Mapping[str, str] | None = None
    extra_index_url: str | None = None
    prerelease: bool = False
    unpinned: bool = False
    source_packages: Sequence[str] = ()
    build_packages: Sequence[str] = ()
    hashes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Tell whether it consists of packages alone: nothing that would have to be added to an image's own."""
        more = (self.no_deps_packages, self.source_packages, self.build_packages, self.metadata_stub, self.unpinned)
        return bool(self.packages) and not any(more)

    def sha256(self, python_version: str) -> str:
        """Return the hex hash of the recipe for an interpreter of this version (``3.11``)."""
        content = {
            "version": RECIPE_VERSION,
            "packages": list(self.packages),
            "no_deps_packages": list(self.no_deps_packages),
            "python": python_version,
            "torch_backend": self.torch_backend,
            "metadata_stub": dict(self.metadata_stub) if self.metadata_stub else None,
        }
        more: dict[str, Any] = {
            "extra_index_url": self.extra_index_url,
            "prerelease": self.prerelease,
            "unpinned": self.unpinned,
        }
        more |= {"source_packages": list(self.source_packages), "build_packages": list(self.build_packages)}
        more |= {"hashes": {pin: list(digests) for pin, digests in self.hashes.items()}}
        content.update({name: value for name, value in more.items() if value})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass
class EnvResult:
    """What was done, or in check mode what would be. ``seconds`` is the wall-clock time of it."""

    changed: bool
    path: str
    sha256: str
    tool: str
    commands: list[list[str]] = field(default_factory=list)
    seconds: float = 0.0
    unhashed: list[str] = field(default_factory=list)
    """What was installed without a look at its hashes, and so was what it asks for."""
    image: str = ""
    """What of the image it stands for, where nothing was installed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain data for Ansible."""
        return dict(vars(self))


def ensure_env(
    recipe: EnvRecipe,
    uv: str | None = None,
    find_links: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
    no_index: bool = False,
    image_folders: Sequence[str] | None = None,
) -> EnvResult:
    """Make the environment unless its stamp says that it is this very one. Raises HouseError.

    ``find_links`` (a folder or a page of wheels) says where a wheel comes from, not which one, so it is no
    part of the stamp; nor is the tool, uv or pip. With ``no_index`` wheels come from there alone.
    ``image_folders``: folders of programs of the image that the box was made from. A Python among them that has
    all of this in these versions is used instead of an environment of our own. None does not look for one.
    """
    began = time.monotonic()
    _require_pins(recipe)
    home = Path(recipe.path)
    version = _python_version(recipe.python)
    wanted = recipe.sha256(version)
    tool = "uv" if uv else "pip"
    unchanged = EnvResult(
        changed=False, path=recipe.path, sha256=wanted, tool=tool, image=_stamp(home).get("image", "")
    )
    if _is_made(home, wanted) and _image_is_there(home, recipe):
        return unchanged
    _require_ours(home)
    engine = find_engine(recipe.packages, image_folders) if image_folders is not None and recipe.is_plain else None
    if engine:
        return _taken_from_image(home, engine, wanted, version, check, progress)
    # In check mode the environment that brings uv was not made either.
    if uv and not check and not os.access(uv, os.X_OK):
        raise HouseError(Problem(where=uv, found="no such program", needed="uv", do="make the box's environment first"))
    steps = env_commands(recipe, uv, find_links, no_index)
    result = EnvResult(True, recipe.path, wanted, tool, [command for _, command in steps], unhashed=unhashed(recipe))
    if check:
        return result
    try:
        with _making(home, progress) as lock:
            if _is_made(home, wanted):
                return unchanged  # another run made it while this one waited
            _cleared(home)
            for number, (step, command) in enumerate(steps):
                _run(step, command, recipe.path, lock, progress)
                for path, text in requirement_files(recipe).items() if number == 0 else ():
                    Path(path).write_text(text, encoding="utf-8")
            if recipe.metadata_stub:
                _write_stub(home, recipe.metadata_stub)
            _write_stamp(home, {"sha256": wanted, "python": version, "tool": tool})
    except OSError as error:
        raise _not_writable(recipe.path, error) from error
    result.seconds = round(time.monotonic() - began, 2)
    return result


def _taken_from_image(
    home: Path, engine: ImageEngine, wanted: str, version: str, check: bool, progress: Progress | None
) -> EnvResult:
    """Make the folder stand for what the image has, and return the result."""
    began = time.monotonic()
    result = EnvResult(True, str(home), wanted, "image", image=engine.as_words())
    if check:
        return result
    try:
        with _making(home, progress):
            _cleared(home)
            place(home, engine)
            words = {"image": engine.as_words(), "image_python": engine.python}
            _write_stamp(home, {"sha256": wanted, "python": version, "tool": "image", **words})
    except OSError as error:
        raise _not_writable(str(home), error) from error
    result.seconds = round(time.monotonic() - began, 2)
    return result


def is_of_image(home: Path) -> bool:
    """Tell whether the environment's folder stands for what the box's image has."""
    return "image_python" in _stamp(home)


def _image_is_there(home: Path, recipe: EnvRecipe) -> bool:
    """Tell whether what the folder stands for is still in the image; true for an environment of our own.

    A folder outlives its container where it lies on a volume: the next container may be made from another image.
    """
    python = _stamp(home).get("image_python")
    return not python or engine_of(python, wanted_versions(recipe.packages) or {}) is not None


def _cleared(home: Path) -> None:
    """Remove what is there: an environment of another recipe, or of a run that was killed, is no base for this one."""
    (home / STAMP).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def _write_stamp(home: Path, content: Mapping[str, Any]) -> None:
    partial = home / f"{STAMP}.partial"
    partial.write_text(json.dumps({**content, "made": int(time.time())}) + "\n", encoding="utf-8")
    partial.replace(home / STAMP)


def _not_writable(path: str, error: OSError) -> HouseError:
    return HouseError(
        Problem(
            where=path,
            found=error.strerror or str(error),
            needed="a folder that can be written to",
            do=_advice(str(error)),
        )
    )


def env_commands(
    recipe: EnvRecipe, uv: str | None, find_links: str | None, no_index: bool = False
) -> list[tuple[str, list[str]]]:
    """Return the steps (name, argv) that make the environment, in order."""
    interpreter = f"{recipe.path}/bin/python"
    links = [*(["--no-index"] if no_index else []), *(["--find-links", find_links] if find_links else [])]
    backend: list[str] = []
    if recipe.torch_backend and not no_index and not _has_torch(find_links):
        if uv:
            backend = ["--torch-backend", recipe.torch_backend]
        elif recipe.torch_backend == "cpu":
            backend = ["--extra-index-url", TORCH_CPU_INDEX]
        else:
            raise HouseError(
                Problem(
                    where=recipe.path,
                    found=f"torch_backend {recipe.torch_backend}, and no uv",
                    needed="uv, which chooses the build of torch by the driver",
                    do="make the box's environment first, it brings uv",
                )
            )
    if uv:
        create = [uv, "venv", "--python", recipe.python, recipe.path]
        # As pip does by itself: the first start of a big engine is minutes faster (vLLM: 111 s without).
        install = [uv, "pip", "install", "--compile-bytecode", "--python", interpreter]
    else:
        create = [recipe.python, "-m", "venv", recipe.path]
        # What it fetches is installed once: a cache in the user's home would only stay behind.
        install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
    if recipe.extra_index_url and not no_index:
        install += ["--extra-index-url", recipe.extra_index_url]
    if recipe.prerelease:
        install += ["--prerelease", "allow"] if uv else ["--pre"]
    steps = [("environment", create)]
    for step in _steps(recipe):
        with_torch = backend if step.name.startswith("packages") else []
        hashed = ["--require-hashes", "-r", step.file] if all_have_hashes(step.entries) else step.plain
        steps.append((step.name, [*install, *step.options, *with_torch, *links, *hashed]))
    return steps


@dataclass(frozen=True)
class _Step:
    """What one call of the installer installs: ``entries`` with the hashes that are known, and the file they go to."""

    name: str
    entries: list[str]
    options: Sequence[str]
    file: str

    @property
    def plain(self) -> list[str]:
        """The entries as a command line takes them: a hash may stand in a file only."""
        return [without_hashes(entry) for entry in self.entries]


def _steps(recipe: EnvRecipe) -> list[_Step]:
    # What another index serves under a version is another file than the usual index's, whose hashes are known.
    elsewhere = bool(recipe.extra_index_url)
    parts = (
        ("packages", recipe.packages, (), {} if elsewhere else recipe.hashes),
        ("packages as they are", recipe.no_deps_packages, ("--no-deps",), recipe.hashes),
        ("what the build needs", recipe.build_packages, ("--no-deps",), recipe.hashes),
        ("building", recipe.source_packages, ("--no-deps", "--no-build-isolation"), recipe.hashes),
    )
    folder = f"{recipe.path}/{REQUIREMENTS}"
    return [
        _Step(name, with_hashes(entries, hashes), options, f"{folder}{number}.txt")
        for number, (name, entries, options, hashes) in enumerate(parts)
        if entries
    ]


def requirement_files(recipe: EnvRecipe) -> dict[str, str]:
    """Return path and text of the files that the commands of ``recipe`` read: hashes go by no command line."""
    steps = [step for step in _steps(recipe) if all_have_hashes(step.entries)]
    return {step.file: "\n".join(step.entries) + "\n" for step in steps}


def unhashed(recipe: EnvRecipe) -> list[str]:
    """Return the versions that are installed without a look at their hashes: no lock knows all that they bring."""
    return [
        without_hashes(entry) for step in _steps(recipe) if not all_have_hashes(step.entries) for entry in step.entries
    ]


def _has_torch(find_links: str | None) -> bool:
    """Tell whether torch itself comes from find_links. A page on the net cannot be looked into: believed."""
    if not find_links:
        return False
    folder = Path(find_links)
    return any(folder.glob("torch-*.whl")) if folder.is_dir() else "://" in find_links


def _require_pins(recipe: EnvRecipe) -> None:
    """Raise HouseError for all the entries that are not one exact version."""
    problems = [
        Problem(
            where=f"{recipe.path}: {option}",
            found=repr(entry),
            needed="an exact version: name==1.2.3",
            do="pin it; an environment that can change by itself proves nothing",
        )
        for option, entries in (
            ("packages", recipe.packages),
            ("no_deps_packages", recipe.no_deps_packages),
            ("source_packages", recipe.source_packages),
            ("build_packages", recipe.build_packages),
        )
        for entry in entries
        if not PINNED.match(entry) and not recipe.unpinned
    ]
    if not recipe.packages and not recipe.no_deps_packages:
        problems.append(
            Problem(
                where=recipe.path,
                found="no packages",
                needed="a list of what belongs into the environment",
                do="add it to the engine's `install` in profiles/catalog/engines.yml",
            )
        )
    if problems:
        raise HouseError(problems)


def _marker(home: Path) -> Path:
    """Return the file beside the environment that is locked, and not empty, while it is being made."""
    return home.with_name(f".{home.name}.making")


@contextmanager
def _making(home: Path, progress: Progress | None) -> Iterator[int]:
    """Hold the environment's lock and yield its descriptor; leave the marker behind when killed inside."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with _marker(home).open("a") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # It may well be a run whose controller was killed: what it makes is what is wanted here.
            if progress:
                progress("waiting", f"an earlier run is still making {home}")
            fcntl.flock(marker, fcntl.LOCK_EX)
        marker.write(f"being made by {os.getpid()}\n")
        marker.flush()
        yield marker.fileno()
        # Not reached after an error: what is there is then ours to delete, and half-made.
        marker.truncate(0)


def _is_made(home: Path, wanted: str) -> bool:
    """Tell whether the environment is there, whole, and the one that is asked for."""
    return _stamp(home).get("sha256") == wanted and os.access(home / "bin" / "python", os.X_OK)


def _require_ours(home: Path) -> None:
    """Raise HouseError where making the environment would delete something that is not one."""
    marker = _marker(home)
    half_made = marker.is_file() and marker.stat().st_size > 0
    ours = half_made or (home / "pyvenv.cfg").is_file() or (home / STAMP).is_file()
    if home.is_dir() and any(home.iterdir()) and not ours:
        raise HouseError(
            Problem(
                where=str(home),
                found="a folder with files, and no virtual environment",
                needed="an empty or new folder, or an environment that may be made again",
                do="move the files away, or choose another home (drafthouse_home)",
            )
        )


def _python_version(python: str) -> str:
    """Return ``major.minor`` of an interpreter; the running one is not asked twice."""
    if python == sys.executable:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise HouseError(
            Problem(where=python, found=str(error), needed="a Python interpreter", do="check the path")
        ) from error


def _stamp(home: Path) -> dict[str, Any]:
    """Return the stamp's content, empty where there is none that can be read."""
    try:
        content = json.loads((home / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _run(step: str, command: Sequence[str], where: str, lock: int, progress: Progress | None) -> None:
    """Run one installer and pass on its lines. Raises HouseError with its last words.

    The installer holds the lock too: where only this process is killed, the next run waits for it to end.
    """
    # AnsiballZ and an active environment would otherwise leak into the new one.
    skipped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in skipped}
    environment["UV_NO_PROGRESS"] = "1"
    cache = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    nearest = next((folder for folder in (cache / "uv", cache, *cache.parents) if folder.exists()), cache)
    if not os.access(nearest, os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(Path(where).parent / ".uv"))  # a home that is not writable
    last: deque[str] = deque(maxlen=ERROR_LINES)

    def note(line: str) -> None:
        if progress:
            progress(step, line)

    note(" ".join(command[:4]) + (" …" if len(command) > 4 else ""))
    began, rest = time.monotonic(), b""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=(lock,),
    ) as process:
        output = process.stdout.fileno() if process.stdout else -1
        while True:
            if not select.select([output], [], [], HEARTBEAT_S)[0]:
                # uv compiles thousands of files without a word.
                note(f"still at work, {time.monotonic() - began:.0f} s")
                continue
            chunk = os.read(output, 65536)
            *lines, rest = (rest + chunk).split(b"\n") if chunk else (rest, b"")
            for raw in lines:
                if line := raw.decode(errors="replace").rstrip():
                    last.append(line)
                    note(line)
            if not chunk:
                break
    if process.returncode != 0:
        words = "\n".join(last)
        raise HouseError(
            Problem(
                where=f"{where}: {step}",
                found=words or f"{command[0]} ended with status {process.returncode} without a word",
                needed="an installer that ends well",
                do=_advice(words),
            )
        )


def _advice(words: str) -> str:
    """Return what to do about an installer's last words."""
    for pattern, advice in ADVICE:
        if re.search(pattern, words):
            return advice
    return "read the lines above; the commands can be run by hand as they stand"


def _write_stub(home: Path, stub: Mapping[str, str]) -> None:
    """Write the metadata of a distribution whose code is there under another distribution's name."""
    (packages,) = (home / "lib").glob("python3*/site-packages")
    folder = packages / f"{stub['name']}-{stub['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {stub['name']}\nVersion: {stub['version']}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
