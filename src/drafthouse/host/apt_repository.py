"""Add a signed apt repository to a box after it has been proven, and not before.

apt alone is too patient: where a repository's signature is wrong and an older index is there, `apt-get update` only
warns, ends with status 0 and goes on with the older index. Here the repository is read into an index of its own that
is thrown away, so that there is nothing older to fall back to; the signing key must have the fingerprint that was
asked for. Standard library only: it runs on a bare box, where neither gpg nor python3-debian need be.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..core.errors import DrafthouseError, Problem
from ..core.files import replace_file

_APT_S = 180  # for an index of some megabytes over a slow line
Fetch = Callable[[str], bytes]


@dataclass(frozen=True)
class Repository:
    """A repository and the files that it becomes on the box.

    ``suite`` is `/` for a flat one. ``fingerprint``: the primary key's, 40 hexadecimal digits. ``pins``: patterns of
    packages that may be taken from it; everything else in it, and what ``leave`` names, stays behind all others.
    """

    name: str
    url: str
    key_url: str
    fingerprint: str
    suite: str = "/"
    components: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()

    def key_file(self, root: Path = Path("/")) -> Path:
        """Return where the signing key is put: readable by apt 1.4 and newer by its ending."""
        return root / f"etc/apt/keyrings/{self.name}.asc"

    def sources_file(self, root: Path = Path("/")) -> Path:
        """Return where the repository is named."""
        return root / f"etc/apt/sources.list.d/{self.name}.sources"

    def pins_file(self, root: Path = Path("/")) -> Path:
        """Return where it is said what may come from the repository.

        Last by its name: the first file that names a package decides, and a vendor's own pin on a version must.
        """
        return root / f"etc/apt/preferences.d/zz-{self.name}"

    def sources(self, key: Path) -> str:
        """Return the repository in apt's deb822 form, signed by ``key`` and by no other."""
        lines = ["Types: deb", f"URIs: {self.url}", f"Suites: {self.suite}"]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        return "\n".join(["# Written by Drafthouse.", *lines, f"Signed-By: {key}", ""])

    def preferences(self, whose: str) -> str:
        """Return the pins: 600 for what we want from here (the distribution has 500), 100 for all else.

        ``whose``: apt's words for this repository, see `_whose`.
        """
        # The first block that names a package decides.
        blocks = [(" ".join(self.leave), 100), (" ".join(self.pins), 600), ("*", 100 if self.pins else 500)]
        text = "\n".join(
            f"Package: {what}\nPin: {whose}\nPin-Priority: {priority}\n" for what, priority in blocks if what
        )
        return f"# Written by Drafthouse: what may come from {self.url}\n{text}"


@dataclass
class Added:
    """What was done: the changed files with their text before and after, and the versions that were asked for.

    ``named_in``: another file of the box that names the repository already; then ours is not added beside it.
    """

    changed: list[dict[str, str]] = field(default_factory=list)
    named_in: str = ""
    versions: dict[str, list[str]] = field(default_factory=dict)


# --- the key ------------------------------------------------------------------------------------------


def fingerprints(key: bytes) -> list[str]:
    """Return the fingerprints of the primary keys in an OpenPGP file, armored or not; [] where it is none.

    A version 4 fingerprint is the SHA-1 of the key's packet (RFC 9580, 5.5.4.2).
    """
    found = []
    for tag, body in _packets(_plain(key)):
        if tag == 6 and body[:1] == b"\x04":
            packed = b"\x99" + len(body).to_bytes(2, "big") + body
            found.append(hashlib.sha1(packed).hexdigest().upper())  # noqa: S324 (the format's own hash)
    return found


def _plain(key: bytes) -> bytes:
    """Return the packets of all armored blocks, or ``key`` itself where it is not armored."""
    blocks = re.findall(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END", key, re.DOTALL)
    if not blocks:
        return key
    packets = b""
    for block in blocks:
        body = block.replace(b"\r", b"").partition(b"\n\n")[2]
        lines = [line for line in body.split(b"\n") if line and not line.startswith(b"=")]
        try:
            packets += base64.b64decode(b"".join(lines), validate=True)
        except binascii.Error:
            return b""
    return packets


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of OpenPGP packets (RFC 9580, 4.2); stops where the data is none."""
    place = 0
    while place < len(data) and data[place] & 0x80:
        first = data[place]
        place += 1
        if first & 0x40:
            tag, (length, used) = first & 0x3F, _new_length(data, place)
        else:
            tag, size = (first >> 2) & 0x0F, (1, 2, 4, 0)[first & 0x03]
            length, used = int.from_bytes(data[place : place + size], "big"), size
        if not used or place + used + length > len(data):
            return
        yield tag, data[place + used : place + used + length]
        place += used + length


def _new_length(data: bytes, place: int) -> tuple[int, int]:
    """Return a packet's length and the bytes that it is written in; (0, 0) for a partial one, which keys have not."""
    first = data[place] if place < len(data) else 255
    if first < 192:
        return first, 1
    if first < 224:
        return ((first - 192) << 8) + int.from_bytes(data[place + 1 : place + 2], "big") + 192, 2
    return (int.from_bytes(data[place + 1 : place + 5], "big"), 5) if first == 255 else (0, 0)


# --- the repository -----------------------------------------------------------------------------------


def add(
    repository: Repository, fetch: Fetch, packages: Iterable[str] = (), check: bool = False, root: Path = Path("/")
) -> Added:
    """Prove the repository, then put its three files on the box; DrafthouseError where it is not to be trusted.

    ``fetch`` returns what is at an address (OSError where nothing is). ``packages``: those whose versions are
    returned, newest first. With ``check`` the proof is the same and nothing is written.
    """
    key = _fetched_key(repository, fetch)
    done = Added()
    with tempfile.TemporaryDirectory(prefix="drafthouse-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt reads and downloads as a user of its own
        key_file = folder / "key.asc"
        key_file.write_bytes(key)
        (folder / "one.sources").write_text(repository.sources(key_file), "utf-8")
        options = _own_index(folder)
        _update(repository, options)
        done.versions = versions(packages, options)
        whose = _whose(repository, folder / "lists")
    wanted = {repository.pins_file(root): repository.preferences(whose).encode()}
    done.named_in = _named_elsewhere(repository, root)
    # Two files with two keys for one address, and apt refuses to work at all ("Conflicting values set for Signed-By").
    if not done.named_in:
        wanted[repository.key_file(root)] = key
        # Last: from here on apt uses it.
        wanted[repository.sources_file(root)] = repository.sources(repository.key_file()).encode()
    for path, content in wanted.items():
        before = path.read_bytes() if path.exists() else b""
        if path.exists() and before == content:
            continue
        done.changed.append({"path": str(path), "before": _shown(before), "after": _shown(content)})
        if not check:
            _write(path, content)
    return done


def take_away(name: str, check: bool = False, root: Path = Path("/")) -> list[str]:
    """Remove the files of the repository called ``name``; return those that were there."""
    ours = Repository(name, "", "", "")
    there = [path for path in (ours.sources_file(root), ours.key_file(root), ours.pins_file(root)) if path.exists()]
    for path in [] if check else there:
        path.unlink(missing_ok=True)
    return [str(path) for path in there]


def _fetched_key(repository: Repository, fetch: Fetch) -> bytes:
    try:
        key = fetch(repository.key_url)
    except OSError as error:
        raise DrafthouseError(
            Problem(
                f"no signing key at {repository.key_url} ({error})",
                "the key that the repository is signed with",
                "see whether this box reaches that address (proxy, DNS, firewall)",
            )
        ) from error
    found = fingerprints(key)
    if found != [repository.fingerprint]:
        raise DrafthouseError(
            Problem(
                f"{repository.key_url} holds the key {', '.join(found) or '(none)'}",
                f"the key {repository.fingerprint} and no other",
                "do not go on: find out from the repository's owner whether the key was changed; "
                "nothing was put on the box",
            )
        )
    return key


def _own_index(folder: Path) -> list[str]:
    """Return apt's options for an index in ``folder`` that holds this one repository."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True)
    return [
        *("-o", f"Dir::Etc::sourcelist={folder}/one.sources", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache::archives={folder}/archives"),
        *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
        *("-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root", "-o", "APT::Update::Post-Invoke-Success="),
    ]


def _update(repository: Repository, options: Sequence[str]) -> None:
    """Read the repository's index; raise unless apt had nothing at all to say against it."""
    try:
        done = _run(["apt-get", *options, "update"])
    except subprocess.TimeoutExpired as error:
        raise DrafthouseError(
            Problem(
                f"no index of {repository.url} within {_APT_S} s",
                "a repository that answers",
                "see whether this box reaches that address, then run again",
            )
        ) from error
    text = f"{done.stdout}\n{done.stderr}"
    against = [line for line in text.splitlines() if re.match(r"(W|E|Err|Warning|Error)(:|\s)", line)]
    if done.returncode == 0 and not against:
        return
    told = " ".join(" ".join(against).split())[:600] or f"exit status {done.returncode}"
    signature = re.search(r"signature|not signed|NO_PUBKEY|BADSIG|NOSPLIT|GPG|sqv|OpenPGP", told)
    raise DrafthouseError(
        Problem(
            f"apt does not accept {repository.url}: {told}",
            f"an index with a good signature by {repository.fingerprint}" if signature else "a repository that answers",
            "do not install from it: a mirror or a proxy on the way may have changed it; nothing was put on the box"
            if signature
            else "see whether this box reaches that address (proxy, DNS, firewall), then run again",
        )
    )


def _whose(repository: Repository, lists: Path) -> str:
    """Return the words by which a pin means this repository: the names that it has signed.

    Its host is the last resort: a mirror often has the distribution's own archive on the same one, which must not be
    put behind.
    """
    named: dict[str, str] = {}
    for file in [*lists.glob("*InRelease"), *lists.glob("*_Release")]:
        for line in file.read_text("utf-8", errors="replace").splitlines():
            key, _, value = line.partition(": ")
            if key in ("Origin", "Label") and value.strip():
                named.setdefault(key, value.strip())
    words = [f"{letter}={named[key]}" for key, letter in (("Origin", "o"), ("Label", "l")) if key in named]
    return f"release {','.join(words)}" if words else f'origin "{urlsplit(repository.url).hostname or ""}"'


def _named_elsewhere(repository: Repository, root: Path) -> str:
    """Return the file of the box, other than ours, that names the repository; '' where none does."""
    apt = root / "etc/apt"
    files = [
        apt / "sources.list",
        *sorted(apt.glob("sources.list.d/*.list")),
        *sorted(apt.glob("sources.list.d/*.sources")),
    ]
    for file in files:
        if not file.is_file() or file == repository.sources_file(root):
            continue
        for line in file.read_text("utf-8", errors="replace").splitlines():
            words = line.partition("#")[0].split()
            if any(word.rstrip("/") == repository.url.rstrip("/") for word in words):
                return str(file)
    return ""


def versions(packages: Iterable[str], options: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the versions that apt's index has of each package, newest first; [] where it has none."""
    names = list(dict.fromkeys(packages))
    found: dict[str, list[str]] = {name: [] for name in names}
    if names:
        for line in _run(["apt-cache", *options, "madison", *names]).stdout.splitlines():
            parts = [part.strip() for part in line.split("|")]
            if len(parts) == 3 and parts[1] not in found.get(parts[0], [parts[1]]):
                found[parts[0]].append(parts[1])
    return found


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(argv),
        capture_output=True,
        text=True,
        timeout=_APT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )


def _shown(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once: apt never reads half of it."""
    replace_file(path, content, 0o644)
