"""What goes into a bundle: the wheels of three environments, the weights as they lie, the engine's image.

Everything here runs on the controller, which has a network. Wheels are chosen for the box's Python by uv, which reads
markers for another Python as well, and fetched by pip, which can fetch without installing.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import one_problem
from ..core.format import count
from ..core.pins import Pins, read_pins, remember
from ..core.requirement_lines import hashes_by_pin, hashes_of, read_lock, with_hashes
from ..host.docker import image_digest, images
from ..host.venv import ADVICE, ERROR_LINES
from ..weights.integrity import NOTE_SUFFIX

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import DerivedImage, ResolvedProfile

Say = Callable[[str], None]
FETCHED = ("hub", "package")  # what is made on the box (a recipe) needs no room here, and what is the user's is his
_OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
_TORCH_INDEX = "https://download.pytorch.org/whl"


@dataclass(frozen=True)
class Environment:
    """One environment of the box or the controller: what is resolved, and what is taken as it is (a lock)."""

    name: str
    python: str
    packages: tuple[str, ...] = ()
    no_deps_packages: tuple[str, ...] = ()
    torch_backend: str | None = None
    extra_index_url: str | None = None
    prerelease: bool = False


def environments(resolved: ResolvedProfile, root: Path, python: str, torch_backend: str | None) -> list[Environment]:
    """Return the environments that a run of ``resolved`` makes on the box (with ``python``) and on the controller.

    ``torch_backend`` (cpu, cu130, ...) stands in for `auto`, which only a box with a driver can answer. Raises
    DrafthouseError for an engine that is compiled on the box.
    """
    role = root / "roles" / "box_env"
    uv = _lock(role / "files" / "uv.txt")
    made = [
        Environment("controller", _OURS, (), (*uv, *_lock(root / "requirements.txt"))),
        Environment("box", python, (), (*uv, *_lock(role / "files" / "requirements.txt"))),
    ]
    if resolved["site"]["runtime"] == "process":
        made.append(_engine(resolved, root, python, torch_backend))
    return made


def _engine(resolved: ResolvedProfile, root: Path, python: str, torch_backend: str | None) -> Environment:
    engine, known = resolved["engine"], resolved["hashes"]
    install, where = engine["install"], f"{engine['id']} {engine['version']}"
    assert install is not None  # as every engine of the process runtime has one
    if install.get("source_packages"):
        found = f"{', '.join(install['source_packages'])}, compiled on the box"
        do = "bundle it with --runtime docker, or choose another method"
        raise one_problem("engine-not-bundled", found, "an engine that consists of wheels", do, where)
    backend = install.get("torch_backend")
    if backend == "auto" and torch_backend is None:
        found, needed = "the box's driver decides which torch build is installed", "a build named in advance"
        raise one_problem(
            "missing-option", found, needed, "add --torch-backend cu130 (or what the driver supports)", where
        )
    lock = root / "roles" / "engine" / "files" / "locks" / install["lock"] if install.get("lock") else None
    return Environment(
        "engine",
        python,
        tuple(with_hashes(install["python_packages"], {} if install.get("extra_index_url") else known)),
        (*with_hashes(install.get("no_deps_packages") or (), known), *(_lock(lock) if lock else ())),
        torch_backend if backend == "auto" else backend,
        install.get("extra_index_url"),
        bool(install.get("prerelease")),
    )


def _lock(path: Path) -> tuple[str, ...]:
    return tuple(read_lock(path.read_text("utf-8")))


# --- wheels ---------------------------------------------------------------------------------------------


def fetch_wheels(environment: Environment, folder: Path, uv: str, find_links: str | None, say: Say) -> None:
    """Put every wheel of ``environment`` into ``folder``. Raises DrafthouseError."""
    folder.mkdir(parents=True, exist_ok=True)
    pins: list[str] = []
    for packages, more in ((environment.packages, []), (environment.no_deps_packages, ["--no-deps"])):
        if packages:
            pins += _pins(environment, packages, [*more, *_links(find_links)], uv)
    say(f"{count(len(pins), 'package')} of the {environment.name}'s environment, Python {environment.python}")
    command = [sys.executable, "-m", "pip", *_fetch(environment.python), str(folder), "--no-deps", *_links(find_links)]
    for index in _indexes(environment, find_links):
        command += ["--extra-index-url", index]
    known = hashes_by_pin([*environment.packages, *environment.no_deps_packages])
    wanted = with_hashes(pins, {pin: digests for pin, digests in known.items() if digests})
    # pip takes either nothing without a hash or no hash at all: two calls, where a lock does not know everything.
    hashed, rest = ([pin for pin in wanted if bool(hashes_of(pin)) is sure] for sure in (True, False))
    for lines, more in ((hashed, ["--require-hashes"]), (rest, [])):
        if lines:
            _run([*command, *more, "--quiet", "--requirement", "/dev/stdin"], "\n".join(lines), environment.name)


def _pins(environment: Environment, packages: Sequence[str], more: Sequence[str], uv: str) -> list[str]:
    """Return exact versions of ``packages`` and of what they ask for, on the environment's Python."""
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    command += ["--python-version", environment.python, *more]
    if environment.torch_backend and not _has_torch(more):
        command += ["--torch-backend", environment.torch_backend]
    if environment.extra_index_url:
        command += ["--extra-index-url", environment.extra_index_url]
    if environment.prerelease:
        command += ["--prerelease", "allow"]
    printed = _run([*command, "-"], "\n".join(packages), environment.name)
    return [line for line in printed.splitlines() if "==" in line]


def _fetch(python: str) -> list[str]:
    """Return pip's command for wheels of ``python``, up to the folder's name."""
    if python == _OURS:
        return ["wheel", "--wheel-dir"]  # makes a wheel of what has none
    machine, digits = platform.machine(), python.replace(".", "")
    systems = [*(f"manylinux_2_{minor}" for minor in range(39, 4, -1)), "manylinux2014", "manylinux2010", "linux"]
    words = [word for system in systems for word in ("--platform", f"{system}_{machine}")]
    words += [word for abi in (f"cp{digits}", "abi3", "none") for word in ("--abi", abi)]
    return ["download", "--only-binary", ":all:", "--python-version", python, *words, "--dest"]


def _links(find_links: str | None) -> list[str]:
    return ["--find-links", find_links] if find_links else []


def _has_torch(links: Sequence[str]) -> bool:
    return any(any(Path(link).glob("torch-*.whl")) for link in links if link.startswith("/"))


def _indexes(environment: Environment, find_links: str | None) -> list[str]:
    indexes = [environment.extra_index_url] if environment.extra_index_url else []
    if environment.torch_backend and not _has_torch(_links(find_links)):
        indexes.append(f"{_TORCH_INDEX}/{environment.torch_backend}")
    return indexes


def _run(command: Sequence[str], given: str, where: str) -> str:
    """Run a program with ``given`` on its stdin and return what it printed. DrafthouseError has its last words."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except OSError as error:
        raise one_problem("program-missing", str(error), Path(command[0]).name, "install it", where) from error
    if done.returncode == 0:
        return done.stdout
    words = "\n".join(done.stderr.strip().splitlines()[-ERROR_LINES:]) or f"status {done.returncode} without output"
    do = next((advice for pattern, advice in ADVICE if re.search(pattern, words)), "read the lines above")
    raise one_problem("program-failed", words, f"{' '.join(command[:4])} to succeed", do, where)


# --- weights and image ----------------------------------------------------------------------------------


def weights_members(paths: Iterable[Path], models_dir: Path) -> dict[str, Path]:
    """Return the verified files of the weights there (name in the bundle -> file), and the notes that say so."""
    members: dict[str, Path] = {}
    for path in paths:
        note = path.with_name(f"{path.name}{NOTE_SUFFIX}")
        folder = path.parent if path.is_file() else path
        try:
            files = json.loads(note.read_text("utf-8"))["files"]
        except (OSError, ValueError, KeyError) as error:
            found, do = f"no record of what was verified ({error})", "run make bundle again"
            raise one_problem("weights-not-verified", found, "verified weights", do, str(path)) from error
        for file in [note, *(folder / name for name in sorted(files))]:
            members[f"weights/{file.relative_to(models_dir).as_posix()}"] = file
    return members


def _have_pinned(image: str, say: Say, file: Path, moves: bool = False) -> None:
    """Have an image on this machine, the one that its tag was at the first pull; written down if this is the first.

    A tag that ``moves``, as a nightly build's does, is taken as it is.
    """
    pins = read_pins(file)
    wanted, own_id = ("", "") if moves else (pins.images.get(image, ""), pins.ids.get(image, ""))
    found = image_digest.check(image, wanted, own_id)
    if pull := found["pull"]:
        say(f"pulling {pull}")
        images.pull(pull)
        if pull != image:
            image_digest.name_it(pull, image)
        found = image_digest.check(image, wanted, own_id)
    if found["digest"] and "@" not in image and not moves:
        remember(file, Pins(images={image: found["digest"]}, ids={image: found["id"]}))


def save_image(
    image: str, to: Path, say: Say, pins: Path, derived: DerivedImage | None = None, moves: bool = False
) -> None:
    """Write a container image as one tar, pulled or built first where it isn't there. Needs Docker on this machine.

    ``derived`` is the resolved profile's ``derived_image``: it needs a network to be built, which the box has not.
    ``pins``: the clone's record of what its images' tags were at the first pull; not asked of a tag that ``moves``.
    """
    if not derived:
        _have_pinned(image, say, pins, moves)
    elif image_digest.on_box(image) is None:
        _have_pinned(derived["base"], say, pins, moves)
        say(f"building {image}")
        images.build(image, derived["containerfile"], lambda line: say(f"  {line}"))
    to.parent.mkdir(parents=True, exist_ok=True)
    say(f"saving {image}")
    images.save(image, to)
