"""Tiny apt repositories with real names: built, signed and served by the tests, and spoilt where a test wants it.

The packages are `dpkg-deb`'s own, the index is written here, the signature is gpg's, so that apt on a host treats a
repository of ours as it treats any other. What a package does is a file or two.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MAINTAINER = "Drafthouse tests <tests@drafthouse.invalid>"


@dataclass(frozen=True)
class Deb:
    """One package: ``relations`` are control fields (Depends, Provides, Conflicts), ``files`` path -> (text, mode)."""

    name: str
    version: str
    relations: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def control(self) -> str:
        """The package's control file."""
        lines = [f"Package: {self.name}", f"Version: {self.version}", "Architecture: all", f"Maintainer: {MAINTAINER}"]
        lines += [f"{key}: {value}" for key, value in self.relations.items()]
        return "\n".join([*lines, f"Description: {self.name}, made by a test", ""])


class Signer:
    """An OpenPGP key of gpg's in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.home = folder / name
        self.home.mkdir(mode=0o700, parents=True)
        self._gpg("--quick-gen-key", f"{name} <{name}@drafthouse.invalid>", "rsa3072", "sign", "never")
        listed = self._gpg("--with-colons", "--list-keys").decode()
        self.fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))
        self.public = self._gpg("--armor", "--export")

    def _gpg(self, *argv: str, data: bytes | None = None) -> bytes:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--passphrase", "", *argv]
        return subprocess.run(command, input=data, capture_output=True, timeout=180, check=True).stdout

    def clear(self, text: bytes) -> bytes:
        """The text with its signature around it, as an InRelease file is."""
        return self._gpg("--digest-algo", "SHA512", "--clearsign", data=text)

    def end(self) -> None:
        """End the agent that gpg has started."""
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], timeout=180, check=False)


def publish(folder: Path, debs: Iterable[Deb], signer: Signer, label: str) -> None:
    """Write a flat, signed repository of the packages: Packages, Release, InRelease and the key."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for deb in debs:
        file = folder / f"{deb.name}_{deb.version.replace(':', '%3a')}_all.deb"
        _build(deb, file)
        content = file.read_bytes()
        entries.append(
            f"{deb.control()}Filename: ./{file.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    index = "\n".join(entries).encode()
    parts = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
    sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in parts.items())
    release = f"Origin: {label}\nLabel: {label}\nDate: Sat, 21 Nov 2026 00:00:00 UTC\nSHA256:\n{sums}"
    for name, data in {**parts, "InRelease": signer.clear(release.encode()), "key.pub": signer.public}.items():
        (folder / name).write_bytes(data)


def _build(deb: Deb, file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="dh-deb-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(deb.control())
        for path, (text, mode) in deb.files.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(mode)
        # Uncompressed: a test's packages are bytes.
        command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(file)]
        subprocess.run(command, capture_output=True, timeout=180, check=True)


@contextlib.contextmanager
def served(folder: Path, address: str) -> Iterator[str]:
    """Serve a folder over HTTP at an address of this machine; yields the URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(120)
