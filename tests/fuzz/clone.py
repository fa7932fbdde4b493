"""A clone of our own files in another folder, which every program of ours takes for its own while `moved_to` holds.

The programs run in this process, as their `main` is, with a command line, a standard input and two outputs as a
terminal in UTF-8 gives them.
"""

from __future__ import annotations

import io
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType

from drafthouse.cli import parser as _clone
from drafthouse.profiles.workspace import ROOT

COPIED = ("profiles", "benchmarks", "inventory")
LINKED = ("templates", "roles", "tests", "src", "collections", "Makefile", "vastai")
#: Seconds of CPU after which a case is given up, and bytes of memory beyond what the process has already.
LONGEST_S, MOST_BYTES = 60.0, 1_500_000_000


class TooLong(BaseException):
    """A case used more CPU than any may; not an Exception, so that nothing on the way takes it for its own."""


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status, what it said, and the traceback where it had one."""

    code: int | None
    out: str
    err: str
    raised: str
    cpu_s: float
    grown_bytes: int

    @property
    def text(self) -> str:
        return f"{self.out}\n{self.err}"


def make_clone(folder: Path) -> Path:
    """Copy what a case may change, link the rest; return the clone's root."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def _ours() -> Iterator[ModuleType]:
    scripts = str(ROOT / "scripts")
    for name, module in list(sys.modules.items()):
        if name.startswith(("drafthouse.", "ansible_collections.drafthouse")) or (
            str(getattr(module, "__file__", None) or "").startswith(scripts)
        ):
            yield module


@contextmanager
def moved_to(root: Path) -> Iterator[None]:
    """Have every module of ours that is imported by now work on the clone at ``root``."""
    undo: list[Callable[[], None]] = []
    for module in _ours():
        for name, value in list(vars(module).items()):
            if isinstance(value, Path) and (value == ROOT or ROOT in value.parents):
                setattr(module, name, root / value.relative_to(ROOT))
                undo.append(lambda module=module, name=name, value=value: setattr(module, name, value))  # type: ignore[misc]
            elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
                defaults = value.__defaults__
                if defaults and ROOT in defaults:
                    value.__defaults__ = tuple(root if one == ROOT else one for one in defaults)
                    undo.append(lambda function=value, old=defaults: setattr(function, "__defaults__", old))  # type: ignore[misc]
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


def _too_long(number: int, frame: object) -> None:
    raise TooLong


@contextmanager
def bounded() -> Iterator[None]:
    """Let nothing inside take more CPU or memory than a case may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (now + MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)


def _stream(errors: str = "strict") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode("utf-8", "replace")


def call(main: Callable[..., int], arguments: Sequence[str], stdin: bytes = b"") -> Ended:
    """Run a program's ``main`` as its last line does, and return how it ended."""
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    out, err = _stream(), _stream("backslashreplace")  # as Python opens the two
    code: int | None = None
    raised = ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    try:
        sys.argv = [main.__module__, *arguments]
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        sys.stdout, sys.stderr = out, err
        with bounded():
            _clone.run(main)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else -1
    except (Exception, TooLong):
        raised = traceback.format_exc()
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    return Ended(code, _text(out), _text(err), raised, time.process_time() - begun, grown * 1024)
