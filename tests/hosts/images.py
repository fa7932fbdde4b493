"""The images of the test hosts: built from nothing, and found again by the hash of what they are made of.

The base is Debian from a registry where one answers, and otherwise what debootstrap makes out of the archive
that this machine's own apt uses. An image's tag carries the hash of its Dockerfile, its files and its base, so
a second run builds nothing, and a change builds just what stands on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.workspace import ROOT
from tests.hosts.reach import debian_archive, environment, machine_files
from tests.support.catalogue import table

CACHE = ROOT / ".cache" / "hosts"
REPOSITORY = "drafthouse-test"
RELEASES = ("trixie", "bookworm")
_RECIPES = Path(__file__).resolve().parent / "images"
_LAUNCHER = ROOT / "roles" / "engine" / "files" / "llama-server"
# Dockerfile → the image it stands on, and the files its build sees beside it.
_STANDS_ON = {
    "peer": "base",
    "rental": "base",
    "workstation": "base",
    "workstation-docker": "workstation",
    "registry": "peer",
    "llama-server": "base",
}
_FILES: dict[str, tuple[Path, ...]] = {
    "peer": (_RECIPES / "hold-sshd",),
    "rental": (_RECIPES / "hold-sshd",),
    "workstation": (_RECIPES / "boot",),
    "registry": (_RECIPES / "hold-registry",),
    "llama-server": (_LAUNCHER,),
}
REGISTRY_S = 10  # silence of a registry after which it counts as out of reach
BOOTSTRAP_S = 1800
BUILD_S = 2700

Say = Callable[[str], None]


class Images:
    """Makes the images of the test hosts, and remembers what each one cost in this session."""

    def __init__(self, client: Any, say: Say = lambda line: None) -> None:
        self.client, self.say = client, say
        self._tags: dict[tuple[str, str], str] = {}
        self._machine: dict[str, dict[str, bytes]] = {}

    def image(self, kind: str, release: str = "trixie") -> str:
        """The tag of a kind of image, which is built unless it is there. Raises DrafthouseError."""
        known = (*_STANDS_ON, "base")
        if kind not in known or release not in RELEASES:
            raise DrafthouseError(
                Problem(
                    code="program-failed",
                    where="tests/hosts",
                    found=f"the image '{kind}' of '{release}'",
                    needed="a known one",
                    do=f"use one of {', '.join(known)} of {' or '.join(RELEASES)}",
                )
            )
        if (kind, release) not in self._tags:
            with _alone():
                self._tags[kind, release] = self._base(release) if kind == "base" else self._built(kind, release)
        return self._tags[kind, release]

    def engine(self, release: str = "trixie") -> str:
        """The tag of the image of the real llama.cpp server: ``drafthouse-test/llama-server:<version>``."""
        made = self.image("llama-server", release)
        name = f"{REPOSITORY}/llama-server:{engine_version()}"
        self.client.images.get(made).tag(name)
        return name

    def engine_tar(self, release: str = "trixie") -> Path:
        """The engine's image as a file that another container engine loads, kept from run to run."""
        name = self.engine(release)
        file = CACHE / f"llama-server-{self._tags['llama-server', release].rpartition('-')[2]}.tar"
        with _alone():
            if not file.exists():
                for older in CACHE.glob("llama-server-*.tar"):
                    older.unlink()
                partial = file.with_suffix(".partial")
                with partial.open("wb") as target:
                    for chunk in self.client.images.get(name).save(named=name):
                        target.write(chunk)
                partial.rename(file)
        return file

    def _built(self, kind: str, release: str) -> str:
        below = _STANDS_ON[kind]
        base = self._base(release) if below == "base" else self._built(below, release)
        files = {path.name: path.read_bytes() for path in _FILES.get(kind, ())}
        arguments = {"FROM": base} | ({"VERSION": engine_version()} if kind == "llama-server" else {})
        return self._made(kind, release, files, arguments)

    def _base(self, release: str) -> str:
        if release not in self._machine:
            self._machine[release] = machine_files(release)
        files = {f"machine/{name}": content for name, content in self._machine[release].items()}
        root = self._root(release)
        return self._made("base", release, files, {"FROM": root})

    def _made(self, kind: str, release: str, files: Mapping[str, bytes], arguments: Mapping[str, str]) -> str:
        recipe = (_RECIPES / f"{kind}.Dockerfile").read_bytes()
        tag = f"{REPOSITORY}/{kind}:{release}-{_hash(recipe, files, arguments)}"
        if self._there(tag):
            return tag
        began = time.monotonic()
        self._build(tag, {**files, "Dockerfile": recipe}, arguments)
        self._forget_older(tag)
        self.say(f"image {kind} ({release}): built in {time.monotonic() - began:.0f} s")
        return tag

    def _there(self, tag: str) -> bool:
        try:
            self.client.images.get(tag)
        except docker.errors.ImageNotFound:
            return False
        return True

    def _build(self, tag: str, files: Mapping[str, bytes], arguments: Mapping[str, str]) -> None:
        proxies = {name: value for name, value in environment().items() if name.lower().endswith("_proxy")}
        words: list[str] = []
        deadline = time.monotonic() + BUILD_S
        answer = self.client.api.build(
            fileobj=_context(files),
            custom_context=True,
            tag=tag,
            buildargs={**arguments, **proxies},
            labels={"drafthouse-test": "image"},
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_S,
        )
        for part in answer:
            words.append(part.get("stream", ""))
            error = part.get("error")
            if error or time.monotonic() > deadline:
                raise DrafthouseError(
                    Problem(
                        code="program-failed",
                        where=f"the image {tag}",
                        found=error or f"no end after {BUILD_S} s",
                        needed="an image of a test host",
                        do="read the build's last words:\n" + "".join(words)[-3000:],
                    )
                )

    def _forget_older(self, tag: str) -> None:
        """Remove what this recipe gave before it changed, unless a container still uses it."""
        repository, _, name = tag.partition(":")
        for image in self.client.images.list(repository):
            for other in image.tags:
                if other.startswith(f"{repository}:{name.partition('-')[0]}-") and other != tag:
                    with contextlib.suppress(docker.errors.APIError):
                        self.client.images.remove(other, noprune=False)

    def _root(self, release: str) -> str:
        """The tag of a Debian without anything of ours: from a registry, or by debootstrap."""
        archive = debian_archive()
        wanted = _hash(b"root 2", {}, {"archive": archive.main if archive else ""})
        tag = f"{REPOSITORY}/root:{release}-{wanted}"
        if self._there(tag):
            return tag
        began = time.monotonic()
        way = "pulled" if self._pulled(f"debian:{release}", tag) else "debootstrapped"
        if way == "debootstrapped":
            self._bootstrapped(release, archive.main if archive else None, tag)
        self._forget_older(tag)
        self.say(f"image root ({release}): {way} in {time.monotonic() - began:.0f} s")
        return tag

    def _pulled(self, name: str, tag: str) -> bool:
        impatient = docker.from_env(timeout=REGISTRY_S)
        try:
            image = impatient.images.pull(name)
            return bool(image.tag(tag))
        except (docker.errors.DockerException, OSError):
            return False
        finally:
            impatient.close()

    def _bootstrapped(self, release: str, mirror: str | None, tag: str) -> None:
        missing = [name for name in ("debootstrap", "tar") if not shutil.which(name)]
        if missing or os.geteuid() != 0:
            raise DrafthouseError(
                Problem(
                    code="program-failed",
                    where="tests/hosts",
                    found="no registry in reach, and " + (f"no {missing[0]}" if missing else "no root for debootstrap"),
                    needed="a Debian for the test hosts",
                    do="apt-get install debootstrap and run as root, or make a registry reachable",
                )
            )
        with tempfile.TemporaryDirectory(prefix="dh-root-") as folder:
            argv = ["nice", "-n", "19", "debootstrap", "--variant=minbase", "--include=ca-certificates"]
            argv += [release, folder, *([mirror] if mirror else [])]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=BOOTSTRAP_S, check=False)
            if done.returncode != 0:
                raise DrafthouseError(
                    Problem(
                        code="program-failed",
                        where="debootstrap",
                        found=f"exit status {done.returncode}",
                        needed="a Debian for the test hosts",
                        do="read its last words:\n" + (done.stdout + done.stderr)[-2000:],
                    )
                )
            argv = ["tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "--one-file-system", "-c", "."]
            packer = subprocess.Popen(argv, stdout=subprocess.PIPE)
            assert packer.stdout
            repository, _, name = tag.partition(":")
            self.client.api.import_image_from_stream(packer.stdout, repository=repository, tag=name)
            packer.stdout.close()
            if packer.wait(BOOTSTRAP_S) != 0:
                raise DrafthouseError(
                    Problem("program-failed", "tar failed", "a Debian for the test hosts", "look at the disk's space")
                )


def engine_version() -> str:
    """The version of xllamacpp that the engine catalogue pins."""
    return str(table("engines")["llamacpp"]["default_version"])


def _hash(recipe: bytes, files: Mapping[str, bytes], arguments: Mapping[str, str]) -> str:
    """A short hash of everything an image is made of."""
    digest = hashlib.sha256(recipe)
    for name, content in sorted(files.items()):
        digest.update(f"\0{name}\0".encode() + content)
    for name, value in sorted(arguments.items()):
        digest.update(f"\0{name}={value}".encode())
    return digest.hexdigest()[:12]


def _context(files: Mapping[str, bytes]) -> io.BytesIO:
    """A build's context as a tar file; scripts are those that begin with ``#!``."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o755 if content.startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes from building the same images meanwhile."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
