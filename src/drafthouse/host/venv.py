"""Create a Python environment from a list of exact versions, unless it exists already.

Used for the engines and for Drafthouse's Python environment on a box (a machine that serves models). uv creates it
in seconds; without uv, ``python -m venv`` and pip do the same more slowly. Standard library only, Python 3.10.

A stamp file in the environment holds the hash of its recipe. It is written last. After a killed run the stamp is
missing, so the environment is created again from the start. With a matching stamp nothing is done.
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
from ..core.locks import locked_file
from .env_recipe import EnvRecipe, env_commands, require_pins, requirement_files, unhashed
from .env_stamp import STAMP, Stamp, is_made, read_stamp
from .image_python import ImageEngine, engine_of, find_engine, wanted_versions, write_scripts

HEARTBEAT_S = 5.0  # after so long without output from the installer, a progress line says that it still works
ERROR_LINES = 12  # last lines of a failed installer's output to show; the reason is among them
#: Advice by pattern of an error message of uv or pip. The first match wins.
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

Progress = Callable[[str, str], None]
"""A function that is called with the name of an install step and a line of the installer's output."""


@dataclass
class EnvResult:
    """What was done, or in check mode what would be done."""

    changed: bool
    path: str  # of the environment
    sha256: str  # of the recipe
    tool: str  # uv, pip or image
    commands: list[list[str]] = field(default_factory=list)  # of the installer
    seconds: float = 0.0  # duration; 0 if nothing was done
    unhashed: list[str] = field(default_factory=list)
    """Requirements that were installed without hash checks, as were their dependencies."""
    image: str = ""
    """The image's engine that is used instead of an installation, as text; '' if packages were installed."""


def ensure_env(
    recipe: EnvRecipe,
    uv: str | None = None,
    find_links: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
    no_index: bool = False,
    image_folders: Sequence[str] | None = None,
) -> EnvResult:
    """Create the environment unless its stamp matches the recipe. Raises DrafthouseError.

    Nothing is removed before all checks have passed.

    ``uv`` is its path; None installs with venv and pip. ``find_links`` is a folder or a web page with wheels. It
    changes the source of a wheel but not its version, so the stamp leaves it out, like the tool. With ``no_index`` it
    is the only source. ``image_folders`` are the program folders of the container image that the box runs. A Python in
    them that has all packages in their pinned versions is used instead of a new environment. None disables the search.
    """
    started = time.monotonic()
    require_pins(recipe)
    home = Path(recipe.path)
    python_version = _python_version(recipe.python)
    sha256 = recipe.sha256(python_version)
    tool = "uv" if uv else "pip"
    unchanged = EnvResult(
        changed=False, path=recipe.path, sha256=sha256, tool=tool, image=read_stamp(home).get("image", "")
    )
    if is_made(home, sha256) and _image_engine_remains(home, recipe):
        return unchanged
    _require_replaceable(home)
    if image_folders is not None and recipe.is_plain:
        engine = find_engine(recipe.packages, image_folders)
        if engine:
            result = EnvResult(changed=True, path=str(home), sha256=sha256, tool="image", image=engine.as_words())
            return _use_image_engine(result, engine, python_version, check, progress)
    # In check mode uv may be missing, because its environment was not created either.
    if uv and not check:
        _require_uv(uv)
    steps = env_commands(recipe, uv, find_links, no_index)
    commands = [command for _, command in steps]
    result = EnvResult(True, recipe.path, sha256, tool, commands, unhashed=unhashed(recipe))
    if check:
        return result
    try:
        with _locked(home, progress) as lock:
            if is_made(home, sha256):
                return unchanged  # another run created it while this one waited for the lock
            _remove_folder(home)
            _install(recipe, steps, lock, progress)
            _write_stamp(home, {"sha256": sha256, "python": python_version, "tool": tool})
    except OSError as error:
        raise _write_error(recipe.path, error) from error
    result.seconds = round(time.monotonic() - started, 2)
    return result


def _require_uv(uv: str) -> None:
    """Raise DrafthouseError if there is no program at the path ``uv``."""
    if not os.access(uv, os.X_OK):
        found = "no such program"
        needed = "uv"
        do = "make the box's environment first"
        raise one_problem("program-missing", found, needed, do, uv)


def _install(recipe: EnvRecipe, steps: Sequence[tuple[str, list[str]]], lock: int, progress: Progress | None) -> None:
    """Run the steps of `env_commands`. The first creates the folder that the requirement files are written to."""
    (step, command), *installs = steps
    _run_installer(step, command, recipe.path, lock, progress)
    for path, text in requirement_files(recipe).items():
        Path(path).write_text(text, encoding="utf-8")
    for step, command in installs:
        _run_installer(step, command, recipe.path, lock, progress)
    if recipe.metadata_stub:
        _write_stub(Path(recipe.path), recipe.metadata_stub)


def _use_image_engine(
    result: EnvResult, engine: ImageEngine, python_version: str, check: bool, progress: Progress | None
) -> EnvResult:
    """Create scripts that start the image's engine, unless ``check``; return ``result`` with the duration."""
    started = time.monotonic()
    home = Path(result.path)
    if check:
        return result
    try:
        with _locked(home, progress):
            _remove_folder(home)
            write_scripts(home, engine)
            stamp: Stamp = {
                "sha256": result.sha256,
                "python": python_version,
                "tool": "image",
                "image": result.image,
                "image_python": engine.python,
            }
            _write_stamp(home, stamp)
    except OSError as error:
        raise _write_error(str(home), error) from error
    result.seconds = round(time.monotonic() - started, 2)
    return result


def is_of_image(home: Path) -> bool:
    """True if the environment consists of scripts that start the image's engine."""
    return "image_python" in read_stamp(home)


def _image_engine_remains(home: Path, recipe: EnvRecipe) -> bool:
    """True if the image still has the engine that the environment starts; also true for an installed environment.

    On a volume the folder outlives its container, and the next container may run another image.
    """
    python = read_stamp(home).get("image_python")
    return not python or engine_of(python, wanted_versions(recipe.packages) or {}) is not None


def _remove_folder(home: Path) -> None:
    """Remove the folder: an environment of another recipe or of a killed run cannot be built on."""
    (home / STAMP).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def _write_stamp(home: Path, content: Stamp) -> None:
    """Write the stamp with the present time; the umask decides who may read it, as for the environment itself."""
    replace_file(home / STAMP, f"{json.dumps({**content, 'made': int(time.time())})}\n", None)


def _write_error(path: str, error: OSError) -> DrafthouseError:
    """The error that the environment at ``path`` could not be written."""
    found = error.strerror or str(error)
    needed = "a folder that can be written to"
    do = _advice(str(error))
    return one_problem("file-unwritable", found, needed, do, path)


def _marker(home: Path) -> Path:
    """Path of the lock file beside the environment. It is not empty while the environment is incomplete."""
    return home.with_name(f".{home.name}.making")


@contextmanager
def _locked(home: Path, progress: Progress | None) -> Iterator[int]:
    """Hold the environment's lock and yield its file descriptor. After an error or a kill the marker stays filled."""
    home.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        # Wait, do not fail: it may be a run whose controller was killed, and it creates this environment.
        if progress:
            progress("waiting", f"an earlier run is still making {home}")

    with locked_file(_marker(home), waiting) as marker:
        marker.write(f"being made by {os.getpid()}\n")
        marker.flush()
        yield marker.fileno()
        # Not reached after an error: then the filled marker allows the next run to delete the partial folder.
        marker.truncate(0)


def _require_replaceable(home: Path) -> None:
    """Raise DrafthouseError if ``home`` has files that are no environment, because they would be deleted.

    An environment has pyvenv.cfg, our stamp, or a filled marker beside it, which a killed run left.
    """
    marker = _marker(home)
    half_made = marker.is_file() and marker.stat().st_size > 0
    replaceable = half_made or (home / "pyvenv.cfg").is_file() or (home / STAMP).is_file()
    if home.is_dir() and any(home.iterdir()) and not replaceable:
        found = "a folder with files that is not a virtual environment"
        needed = "an empty or new folder, or an environment that may be recreated"
        do = "move the files away, or choose another home (drafthouse_home)"
        raise one_problem("folder-not-ours", found, needed, do, str(home))


def _python_version(python: str) -> str:
    """``major.minor`` of an interpreter. Raises DrafthouseError if it does not run."""
    if python == sys.executable:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    argv = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise one_problem(
            code="python-unusable", where=python, found=str(error), needed="a Python interpreter", do="check the path"
        ) from error


def _run_installer(step: str, command: Sequence[str], where: str, lock: int, progress: Progress | None) -> None:
    """Run one installer and report its output line by line. Raises DrafthouseError with the last lines if it fails.

    ``where`` is the path of the environment, ``lock`` the descriptor of its lock: the installer inherits it, so the
    next run waits for it even if only this process is killed.
    """
    last_lines: deque[str] = deque(maxlen=ERROR_LINES)

    def report(line: str) -> None:
        if progress:
            progress(step, line)

    shown = " ".join(command[:4])
    if len(command) > 4:
        shown += " …"
    report(shown)
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
        for line in _output_lines(process.stdout.fileno(), report):
            last_lines.append(line)
            report(line)
    if process.returncode != 0:
        output_end = "\n".join(last_lines)
        found = output_end or f"{command[0]} ended with status {process.returncode} without output"
        needed = "a successful installation"
        do = _advice(output_end)
        raise one_problem("installer-failed", found, needed, do, f"{where}: {step}")


def _output_lines(output: int, report: Callable[[str], None]) -> Iterator[str]:
    """Yield the lines of an installer's output, a file descriptor, without empty ones; report a pause meanwhile."""
    started = time.monotonic()
    partial_line = b""
    while True:
        readable, _, _ = select.select([output], [], [], HEARTBEAT_S)
        if not readable:
            # uv compiles thousands of files without any output.
            report(f"still at work, {time.monotonic() - started:.0f} s")
            continue
        chunk = os.read(output, 65536)
        # At the end of the output a line break completes the last line.
        *lines, partial_line = (partial_line + (chunk or b"\n")).split(b"\n")
        for raw_line in lines:
            if line := raw_line.decode(errors="replace").rstrip():
                yield line
        if not chunk:
            return


def _installer_environment(folder: Path) -> dict[str, str]:
    """Environment variables for an installer. uv's cache goes to ``folder`` if the user's is not writable."""
    environment = {**os.environ, "UV_NO_PROGRESS": "1"}
    # Ansible and an active virtual environment set these. They would make the installer use other packages.
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "uv"
    # The nearest folder that exists: uv would have to create its cache in it.
    while not cache.exists() and cache != cache.parent:
        cache = cache.parent
    if not os.access(cache, os.W_OK):
        environment.setdefault("UV_CACHE_DIR", str(folder / ".uv"))
    return environment


def _advice(output: str) -> str:
    """The advice (`ADVICE`) for the last output lines of a failed installer, or for the text of an OSError."""
    for pattern, advice in ADVICE:
        if re.search(pattern, output):
            return advice
    return "read the lines above; the commands can also be run by hand"


def _write_stub(home: Path, stub: Mapping[str, str]) -> None:
    """Write the metadata of a distribution (``name``, ``version``) whose code is installed under another one's name.

    A package that requires it by that name then finds it.
    """
    (site_packages,) = (home / "lib").glob("python3*/site-packages")
    folder = site_packages / f"{stub['name']}-{stub['version']}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {stub['name']}\nVersion: {stub['version']}\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
