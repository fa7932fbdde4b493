"""A real sshd on a free port of loopback: an installed one, or Debian's, unpacked. It lets in one key and one user."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.support.ports import free_port

_CACHE = ROOT / ".cache" / "tools" / "sshd"
_PACKAGES = ("openssh-server", "libwrap0")


def real_sshd() -> Path:
    """The program, or skip by name where it cannot be had."""
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found:
        return Path(found)
    program = _CACHE / "usr/sbin/sshd"
    if not program.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as name:
            words = ["apt-get", "download", "--quiet", *_PACKAGES]
            try:
                subprocess.run(words, cwd=name, capture_output=True, timeout=180, check=True)
                for package in sorted(Path(name).glob("*.deb")):
                    subprocess.run(["dpkg-deb", "--extract", str(package), str(_CACHE)], timeout=180, check=True)
            except (OSError, subprocess.SubprocessError):
                pytest.skip("no sshd (apt-get install openssh-server)")
    return program


@dataclass
class Sshd:
    """A server that runs: where, for whom, and with which key of the client's."""

    folder: Path
    port: int
    user: str
    key: Path
    process: subprocess.Popen[bytes]

    def end(self) -> None:
        """End it, and every connection it holds."""
        for child in children(self.process.pid):
            subprocess.run(["kill", "-KILL", str(child)], check=False)
        self.process.kill()
        self.process.wait(120)


def children(pid: int) -> list[int]:
    """The processes below ``pid``."""
    try:
        own = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return own + [below for child in own for below in children(child)]


@contextmanager
def running_sshd(*, shell: bool = False) -> Iterator[Sshd]:
    """Run it in the foreground, as nobody where we are root: so it needs neither a user of its own nor privileges.

    ``shell``: commands are run there, for which nobody gets a shell; skips where that cannot be had.
    """
    program = real_sshd()
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="dh-sshd-"))
    folder.chmod(0o755)
    key = folder / "client"
    for name in ("client", "stranger", "host", "other_host"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(words, check=True, timeout=180)
    (folder / "authorized_keys").write_text((folder / "client.pub").read_text())
    (folder / "authorized_keys").chmod(0o644)
    if os.geteuid() == 0:
        for name in ("host", "other_host"):
            shutil.chown(folder / name, user)
    server = start(program, folder, user, shell=shell)
    found = Sshd(folder, server[0], user, key, server[1])
    try:
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


def start(
    program: Path, folder: Path, user: str, port: int = 0, host_key: str = "host", *, shell: bool = False
) -> tuple[int, subprocess.Popen[bytes]]:
    """Start it on ``port``, or on a free one; return the port and the process."""
    port = port or free_port()
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / host_key}\nPidFile none\n"
        f"AuthorizedKeysFile {folder / 'authorized_keys'}\nStrictModes no\n"
        # nobody counts as a locked account, which only PAM lets in.
        f"UsePAM {'yes' if os.geteuid() == 0 else 'no'}\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nAllowTcpForwarding yes\n"
    )
    config.chmod(0o644)
    libraries = f"{_CACHE}/lib/x86_64-linux-gnu:{_CACHE}/usr/lib/x86_64-linux-gnu"
    words = [str(program), "-D", "-e", "-f", str(config)]
    if os.geteuid() == 0:
        words = [*_as(user, folder, shell), *words]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LD_LIBRARY_PATH": libraries},
    )  # fmt: skip
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return port, process
        except OSError:
            if process.poll() is not None:
                said = process.stdout.read().decode() if process.stdout else ""
                pytest.skip(f"sshd does not run here: {said.strip()}")
            assert time.monotonic() < end
            time.sleep(0.05)


def _as(user: str, folder: Path, shell: bool) -> list[str]:
    """What runs a command as ``user``; with ``shell`` in a look of its own at /etc/passwd, where it has one."""
    entry = pwd.getpwnam(user)
    become = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    if not shell:
        return become
    passwd = folder / "passwd"
    passwd.write_text(f"root:x:0:0:root:/root:/bin/sh\n{user}:x:{entry.pw_uid}:{entry.pw_gid}:{user}:/:/bin/sh\n")
    passwd.chmod(0o644)
    # A terminal must be of the group that sshd wants: nobody may not give it another one.
    own = f"newinstance,ptmxmode=666,mode=620,gid={grp.getgrnam('tty').gr_gid}"
    mounts = f"mount --bind {passwd} /etc/passwd && mount -t devpts -o {own} devpts /dev/pts"
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh", *become]
