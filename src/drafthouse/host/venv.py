"""A pinned Python environment on a box: made from a list of exact versions, or left alone.

Used for the engines and for the environment of the box itself. uv makes it in seconds; where uv is absent
``python -m venv`` and pip do the same slower. Standard library only, Python 3.10.

A stamp file holds the hash of what was asked for. It is written last, so a run that was killed half-way
is made again from the start, and a second run reads one file and is done.
"""

from __future__ import annotations

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

from ..core.errors import DrafthouseError, one_problem
from ..core.files import replace_file
from ..core.locks import held
from .env_recipe import EnvRecipe, env_commands, require_pins, requirement_files, unhashed
from .env_stamp import STAMP, Stamp, is_made, read_stamp
from .image_python import ImageEngine, engine_of, find_engine, place, wanted_versions

HEARTBEAT_S = 5.0  # silence of an installer after which a line says that it is still at work
ERROR_LINES = 12  # of an installer's last words; the reason is among them
# From the words of uv and pip to what a person can do about it. First match wins.
ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"[Hh]ash mismatch|HASHES",
        "another file is served under this version: find out by whom (the index, a mirror, find_links) before "
        "you trust it; it was not installed",
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


def ensure_env(
    recipe: EnvRecipe,
    uv: str | None = None,
    find_links: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
    no_index: bool = False,
    image_folders: Sequence[str] | None = None,
) -> EnvResult:
    """Make the environment unless its stamp says that it is this very one. Raises DrafthouseError.

    ``find_links`` (a folder or a page of wheels) says where a wheel comes from, not which one, so it is no
    part of the stamp; nor is the tool, uv or pip. With ``no_index`` wheels come from there alone.
    ``image_folders``: folders of programs of the image that the box was made from. A Python among them that has
    all of this in these versions is used instead of an environment of our own. None does not look for one.
    """
    began = time.monotonic()
    require_pins(recipe)
    home = Path(recipe.path)
    version = _python_version(recipe.python)
    wanted = recipe.sha256(version)
    tool = "uv" if uv else "pip"
    unchanged = EnvResult(False, recipe.path, wanted, tool, image=read_stamp(home).get("image", ""))
    if is_made(home, wanted) and _image_is_there(home, recipe):
        return unchanged
    _require_ours(home)
    if image_folders is not None and recipe.is_plain:
        engine = find_engine(recipe.packages, image_folders)
        if engine:
            return _taken_from_image(home, engine, wanted, version, check, progress)
    # In check mode the environment that brings uv was not made either.
    if uv and not check:
        _require_uv(uv)
    steps = env_commands(recipe, uv, find_links, no_index)
    result = EnvResult(True, recipe.path, wanted, tool, [command for _, command in steps], unhashed=unhashed(recipe))
    if check:
        return result
    try:
        with _making(home, progress) as lock:
            if is_made(home, wanted):
                return unchanged  # another run made it while this one waited
            _cleared(home)
            _install(recipe, steps, lock, progress)
            _write_stamp(home, {"sha256": wanted, "python": version, "tool": tool})
    except OSError as error:
        raise _not_writable(recipe.path, error) from error
    result.seconds = round(time.monotonic() - began, 2)
    return result


def _require_uv(uv: str) -> None:
    if not os.access(uv, os.X_OK):
        raise one_problem(
            code="program-missing",
            where=uv,
            found="no such program",
            needed="uv",
            do="make the box's environment first",
        )


def _install(recipe: EnvRecipe, steps: Sequence[tuple[str, list[str]]], lock: int, progress: Progress | None) -> None:
    """Run the steps of `env_commands`: the first makes the folder that the files of requirements go to."""
    (step, command), *installs = steps
    _run(step, command, recipe.path, lock, progress)
    for path, text in requirement_files(recipe).items():
        Path(path).write_text(text, encoding="utf-8")
    for step, command in installs:
        _run(step, command, recipe.path, lock, progress)
    if recipe.metadata_stub:
        _write_stub(Path(recipe.path), recipe.metadata_stub)


def _taken_from_image(
    home: Path, engine: ImageEngine, wanted: str, version: str, check: bool, progress: Progress | None
) -> EnvResult:
    """The result of an environment that stands for the image's engine, which is made unless ``check``."""
    began = time.monotonic()
    result = EnvResult(True, str(home), wanted, "image", image=engine.as_words())
    if check:
        return result
    try:
        with _making(home, progress):
            _cleared(home)
            place(home, engine)
            stamp: Stamp = {
                "sha256": wanted,
                "python": version,
                "tool": "image",
                "image": result.image,
                "image_python": engine.python,
            }
            _write_stamp(home, stamp)
    except OSError as error:
        raise _not_writable(str(home), error) from error
    result.seconds = round(time.monotonic() - began, 2)
    return result


def is_of_image(home: Path) -> bool:
    """Tell whether the environment's folder stands for what the box's image has."""
    return "image_python" in read_stamp(home)


def _image_is_there(home: Path, recipe: EnvRecipe) -> bool:
    """Tell whether what the folder stands for is still in the image; true for an environment of our own.

    A folder outlives its container where it lies on a volume: the next container may be made from another image.
    """
    python = read_stamp(home).get("image_python")
    return not python or engine_of(python, wanted_versions(recipe.packages) or {}) is not None


def _cleared(home: Path) -> None:
    """Remove what is there: an environment of another recipe, or of a run that was killed, is no base for this one."""
    (home / STAMP).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def _write_stamp(home: Path, content: Stamp) -> None:
    replace_file(home / STAMP, f"{json.dumps({**content, 'made': int(time.time())})}\n", None)


def _not_writable(path: str, error: OSError) -> DrafthouseError:
    return one_problem(
        code="file-unwritable",
        where=path,
        found=error.strerror or str(error),
        needed="a folder that can be written to",
        do=_advice(str(error)),
    )


def _marker(home: Path) -> Path:
    """The file beside the environment that is locked, and not empty, while it is being made."""
    return home.with_name(f".{home.name}.making")


@contextmanager
def _making(home: Path, progress: Progress | None) -> Iterator[int]:
    """Hold the environment's lock and yield its descriptor; leave the marker behind when killed inside."""
    home.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        # It may well be a run whose controller was killed: what it makes is what is wanted here.
        if progress:
            progress("waiting", f"an earlier run is still making {home}")

    with held(_marker(home), waiting) as marker:
        marker.write(f"being made by {os.getpid()}\n")
        marker.flush()
        yield marker.fileno()
        # Not reached after an error: what is there is then ours to delete, and half-made.
        marker.truncate(0)


def _require_ours(home: Path) -> None:
    """Raise DrafthouseError where making the environment would delete something that is not one."""
    marker = _marker(home)
    half_made = marker.is_file() and marker.stat().st_size > 0
    ours = half_made or (home / "pyvenv.cfg").is_file() or (home / STAMP).is_file()
    if home.is_dir() and any(home.iterdir()) and not ours:
        raise one_problem(
            code="folder-not-ours",
            where=str(home),
            found="a folder with files that is not a virtual environment",
            needed="an empty or new folder, or an environment that may be recreated",
            do="move the files away, or choose another home (drafthouse_home)",
        )


def _python_version(python: str) -> str:
    """``major.minor`` of an interpreter; the running one is not asked twice."""
    if python == sys.executable:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    words = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise one_problem(
            code="python-unusable", where=python, found=str(error), needed="a Python interpreter", do="check the path"
        ) from error


def _run(step: str, command: Sequence[str], where: str, lock: int, progress: Progress | None) -> None:
    """Run one installer and pass on its lines. Raises DrafthouseError with its last words.

    The installer holds the lock too: where only this process is killed, the next run waits for it to end.
    """
    last: deque[str] = deque(maxlen=ERROR_LINES)

    def note(line: str) -> None:
        if progress:
            progress(step, line)

    shown = " ".join(command[:4])
    if len(command) > 4:
        shown += " …"
    note(shown)
    began, rest = time.monotonic(), b""
    with subprocess.Popen(
        command,
        env=_installer_environment(Path(where).parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        pass_fds=(lock,),
    ) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        while True:
            if not select.select([output], [], [], HEARTBEAT_S)[0]:
                # uv compiles thousands of files without a word.
                note(f"still at work, {time.monotonic() - began:.0f} s")
                continue
            chunk = os.read(output, 65536)
            # The end of the output ends its last line.
            *lines, rest = (rest + (chunk or b"\n")).split(b"\n")
            for raw in lines:
                if line := raw.decode(errors="replace").rstrip():
                    last.append(line)
                    note(line)
            if not chunk:
                break
    if process.returncode != 0:
        words = "\n".join(last)
        raise one_problem(
            code="installer-failed",
            where=f"{where}: {step}",
            found=words or f"{command[0]} ended with status {process.returncode} without output",
            needed="a successful installation",
            do=_advice(words),
        )


def _installer_environment(folder: Path) -> dict[str, str]:
    """The environment variables of an installer; its cache is below ``folder`` where the user's is not writable."""
    environment = {**os.environ, "UV_NO_PROGRESS": "1"}
    # AnsiballZ and an active environment would otherwise leak into the new one.
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "uv"
    while not cache.exists() and cache != cache.parent:
        cache = cache.parent
    if not os.access(cache, os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(folder / ".uv"))
    return environment


def _advice(words: str) -> str:
    """What to do about an installer's last words."""
    for pattern, advice in ADVICE:
        if re.search(pattern, words):
            return advice
    return "read the lines above; the commands can also be run by hand"


def _write_stub(home: Path, stub: Mapping[str, str]) -> None:
    """Write the metadata of a distribution whose code is there under another distribution's name."""
    (packages,) = (home / "lib").glob("python3*/site-packages")
    folder = packages / f"{stub['name']}-{stub['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {stub['name']}\nVersion: {stub['version']}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
