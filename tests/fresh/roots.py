"""Fresh machines: minimal Debian roots with the five packages that the README asks for, and an ordinary user.

debootstrap makes a root once, and it is kept. Each visit gets it below an overlay, with processes and mounts of its
own: what a command writes lies in the overlay's upper folder and nowhere else, so that a test can look at all of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drafthouse.profiles.workspace import ROOT
from tests.hosts.reach import debian_archive, environment, machine_files

KEPT = ROOT / ".cache" / "fresh"
# The README's: "You need git, make and Python 3.11 or newer" is these, on Debian.
PACKAGES = ("git", "make", "python3", "python3-venv", "ca-certificates")
BOOTSTRAP_S = 2700
LOOK_S = 0.25
UID = 1000
#: Without a terminal, without a login: what a cron job or a CI runner would have.
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/alice", "USER": "alice", "LOGNAME": "alice"}

# Mounts and processes of its own: all of it is gone when the command ends. A slave, so that nothing leaks out.
_ENTER = """
set -eu
mount --make-rslave /
mount -t overlay overlay -o lowerdir="$LOWER",upperdir="$UPPER",workdir="$WORK" "$MERGED"
mount -t proc proc "$MERGED/proc"
mount --rbind /dev "$MERGED/dev"
mount -t tmpfs -o mode=1777 tmpfs "$MERGED/dev/shm"
mount --bind /etc/resolv.conf "$MERGED/etc/resolv.conf"
mount --bind /etc/hosts "$MERGED/etc/hosts"
# Not exec: this shell is the first process of the namespace, and with it all the others end. One that changes its user
# forgets the signal that it would get when its parent ends.
"$@" || exit
exit 0
"""


class CannotMake(Exception):
    """Why there is no fresh root here."""


def missing() -> str | None:
    """What keeps this machine from making fresh roots, or None."""
    if os.geteuid() != 0:
        return "fresh roots need root (mounts, chroot)"
    for program in ("debootstrap", "setpriv", "unshare", "chroot"):
        if not shutil.which(program):
            return f"fresh roots need {program}"
    return None


def root_of(release: str) -> Path:
    """The folder of a fresh root, made unless it is there. Raises CannotMake with the reason."""
    folder = KEPT / release
    if (folder / "etc/alice").exists():
        return folder
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    making = Path(tempfile.mkdtemp(prefix=f"{release}-", dir=KEPT))
    try:
        archive = debian_archive()
        argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", release, str(making)]
        done = subprocess.run(
            [*argv, *([archive.main] if archive else [])],
            capture_output=True, text=True, timeout=BOOTSTRAP_S, check=False,
        )  # fmt: skip
        # debootstrap leaves it mounted on some machines, and whoever walks through the clone would walk into it.
        if (making / "proc").is_mount():
            subprocess.run(["umount", str(making / "proc")], check=True, capture_output=True, timeout=120)
        if done.returncode != 0:
            raise CannotMake(f"debootstrap of {release}: {(done.stdout + done.stderr)[-600:]}")
        for name, content in machine_files(release).items():
            (making / name).parent.mkdir(parents=True, exist_ok=True)
            (making / name).write_bytes(content)
        for argv in (
            ["update-ca-certificates"],
            ["useradd", "--create-home", "--uid", str(UID), "--shell", "/bin/bash", "alice"],
        ):
            subprocess.run(["chroot", str(making), *argv], check=True, capture_output=True, timeout=120)
        for name in ("hosts", "resolv.conf"):  # this machine's own are mounted over them
            (making / "etc" / name).touch()
        (making / "etc/alice").write_text("ready\n")
        making.chmod(0o755)
        making.rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


@dataclass
class Ended:
    """A command that ended: its output with the second at which each line came, and the longest silence between."""

    status: int
    seconds: float
    silence: float
    lines: list[tuple[float, str]] = field(default_factory=list)

    @property
    def output(self) -> str:
        return "".join(line for _, line in self.lines)


class Visit:
    """A fresh root for one test."""

    def __init__(self, release: str, scratch: Path) -> None:
        self.lower = root_of(release)
        self.folders = {name: scratch / name for name in ("upper", "work", "merged")}
        for folder in self.folders.values():
            folder.mkdir(parents=True, mode=0o755)
        self.upper = self.folders["upper"]

    def put_clone(self, place: str) -> Path:
        """Put a clean clone of what is committed there, owned by the user; return its folder in the upper layer."""
        folder = self.upper / place.lstrip("/")
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
        # What the user made: the clone, and the folder of it where that is not the home.
        for own in (folder.parent, folder):
            if own not in (self.upper, self.upper / "home") and own != self.upper / "home/alice":
                subprocess.run(["chown", "-R", f"{UID}:{UID}", str(own)], check=True)
        home = self.upper / "home/alice"
        if home.is_dir():
            os.chown(home, UID, UID)
        return folder

    def run(
        self,
        argv: Sequence[str],
        folder: str = "/",
        variables: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        umask: str = "022",
        timeout: float = 3600,
        user: str = "alice",
    ) -> Ended:
        """Run a command in the root, its output through a pipe; raises TimeoutExpired."""
        own = {**PLAIN, **environment(), **(variables or {})}
        own = {name: value for name, value in own.items() if name not in without}
        layers = {name.upper(): str(path) for name, path in self.folders.items()} | {"LOWER": str(self.lower)}
        inside = ["chroot", f"--userspec={user}", str(self.folders["merged"]), "/usr/bin/env", "-i"]
        inside += [f"{name}={value}" for name, value in own.items()]
        inside += ["/bin/sh", "-c", f'umask {umask}; cd -- "$0" && exec "$@"', folder, *argv]
        # Whatever ends the tests ends the command and all that it has started.
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["/bin/sh", "-c", _ENTER, "enter", *inside]
        return _followed(command, {**os.environ, **layers}, timeout)

    def packages(self) -> str:
        """The packages of the root with their versions."""
        return self.run(["dpkg-query", "-W"], user="root").output

    def written(self) -> Iterator[str]:
        """The paths of all files that commands have left, from the root's own `/`."""
        for folder, _, names in os.walk(self.upper):
            for name in names:
                yield "/" + str(Path(folder, name).relative_to(self.upper))


def _followed(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> Ended:
    """Run a command and note when each piece of its output comes; raises TimeoutExpired."""
    began = last = time.monotonic()
    lines: list[tuple[float, str]] = []
    silence, stood, rest = 0.0, 0.0, b""
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout
        try:
            while True:
                if time.monotonic() - began > timeout:
                    raise subprocess.TimeoutExpired(command, timeout, "".join(line for _, line in lines).encode())
                # Looked at often: where the machine stands still our own look is late, and that is nobody's silence.
                asked = time.monotonic()
                ready = select.select([process.stdout], [], [], LOOK_S)[0]
                stood += max(0.0, time.monotonic() - asked - 2 * LOOK_S)
                if not ready:
                    continue
                piece = os.read(process.stdout.fileno(), 65536)
                now = time.monotonic()
                silence, last, stood = max(silence, now - last - stood), now, 0.0
                if not piece:
                    break
                *whole, rest = (rest + piece).split(b"\n")
                lines += [(now - began, one.decode("utf-8", "replace") + "\n") for one in whole]
        except BaseException:
            process.kill()
            raise
    if rest:
        lines.append((last - began, rest.decode("utf-8", "replace")))
    return Ended(process.returncode, time.monotonic() - began, silence, lines)


@contextlib.contextmanager
def visit(release: str) -> Iterator[Visit]:
    """Hand out a fresh root; what was written in it goes with the end of the test."""
    root_of(release)
    scratch = Path(tempfile.mkdtemp(prefix="visit-", dir=KEPT))
    scratch.chmod(0o755)
    try:
        yield Visit(release, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
