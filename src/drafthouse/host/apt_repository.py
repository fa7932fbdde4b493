"""Add a signed apt repository to a box after it has been proven, and not before.

apt alone is too patient: where a repository's signature is wrong and an older index is there, `apt-get update` only
warns, ends with status 0 and goes on with the older index. Here the repository is read into an index of its own that
is thrown away, so that there is nothing older to fall back to. Keys and signatures are apt's to read, and the pinned
fingerprint stands in ``Signed-By``: apt holds the repository to it now and at every later update. Standard library
only: it runs on a bare box, where neither gpg nor python3-debian need be.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..core.errors import one_problem
from ..core.files import LaidOut, lay_out

_APT_S = 180  # for an index of some megabytes over a slow line
Fetch = Callable[[str], bytes]


def files(name: str, root: Path = Path("/")) -> tuple[Path, Path, Path]:
    """Where pins, signing key and source of a repository are put, in this order: apt uses it from the last on.

    apt knows an armored key by its ending. The pins are last by their name: the first file that names a package
    decides, and a vendor's own pin on a version must.
    """
    apt = root / "etc/apt"
    return apt / f"preferences.d/zz-{name}", apt / f"keyrings/{name}.asc", apt / f"sources.list.d/{name}.sources"


@dataclass(frozen=True)
class Repository:
    """A repository as it is asked for.

    ``suite`` is `/` for a flat one. ``fingerprint``: the primary key's, 40 hexadecimal digits. ``pins``: patterns of
    packages that may be taken from it; everything else in it, and what ``leave`` names, stays behind all others.
    """

    name: str
    url: str
    key_url: str
    fingerprint: str
    suite: str = "/"
    components: Sequence[str] = ()
    pins: Sequence[str] = ()
    leave: Sequence[str] = ()

    def sources(self, key: Path) -> str:
        """The repository in apt's deb822 form, signed by the pinned key in ``key`` and by no other in it."""
        lines = ["Types: deb", f"URIs: {self.url}", f"Suites: {self.suite}"]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        return "\n".join(["# Written by Drafthouse.", *lines, f"Signed-By: {key} {self.fingerprint}", ""])

    def preferences(self, whose: str) -> str:
        """The pins: 600 for what we want from here (the distribution has 500), 100 for all else.

        ``whose``: apt's words for this repository, see `_whose`.
        """
        all_others = 100 if self.pins else 500
        blocks = []
        # The first block that names a package decides.
        for packages, priority in ((self.leave, 100), (self.pins, 600), (["*"], all_others)):
            if packages:
                blocks.append(f"Package: {' '.join(packages)}\nPin: {whose}\nPin-Priority: {priority}\n")
        return "\n".join([f"# Written by Drafthouse: what may come from {self.url}", *blocks])


@dataclass
class Added:
    """What was done, and the versions that were asked for.

    ``named_in``: another file of the box that names the repository already; then ours is not added beside it.
    """

    files: LaidOut
    versions: dict[str, list[str]]
    named_in: str


def add(
    repository: Repository, fetch: Fetch, packages: Iterable[str] = (), check: bool = False, root: Path = Path("/")
) -> Added:
    """Prove the repository, then put its three files on the box; DrafthouseError where it is not to be trusted.

    ``fetch`` returns what is at an address (OSError where nothing is). ``packages``: those whose versions are
    returned, newest first. With ``check`` the proof is the same and nothing is written.
    """
    if not re.fullmatch("[0-9A-F]{40}", repository.fingerprint):  # beside no fingerprint, apt takes any key of the file
        raise one_problem(
            "invalid-setting",
            f"{repository.fingerprint!r} for the fingerprint of {repository.key_url}",
            "the 40 hexadecimal digits of the trusted key",
            "get them from the repository's owner (gpg --show-keys prints them)",
        )
    key = _fetched_key(repository, fetch)
    pins_file, key_file, sources_file = files(repository.name, root)
    with tempfile.TemporaryDirectory(prefix="drafthouse-apt-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt reads and downloads as a user of its own
        (folder / "key.asc").write_bytes(key)
        (folder / "one.sources").write_text(repository.sources(folder / "key.asc"), "utf-8")
        options = _own_index(folder)
        _update(repository, options)
        there = versions(packages, options)
        wanted: dict[Path, str | bytes] = {pins_file: repository.preferences(_whose(repository, options))}
    named_in = _named_elsewhere(repository, root)
    # Two files with two keys for one address, and apt refuses to work at all ("Conflicting values set for Signed-By").
    if not named_in:
        wanted |= {key_file: key, sources_file: repository.sources(files(repository.name)[1])}
    entries = [{"path": path, "mode": "0644", "content": content} for path, content in wanted.items()]
    return Added(lay_out(entries, check), there, named_in)


def take_away(name: str, check: bool = False, root: Path = Path("/")) -> list[str]:
    """The removed files of the repository called ``name``; with ``check`` those that would be removed."""
    removed = []
    for path in reversed(files(name, root)):
        if not path.exists():
            continue
        removed.append(str(path))
        if not check:
            path.unlink(missing_ok=True)
    return removed


def _fetched_key(repository: Repository, fetch: Fetch) -> bytes:
    try:
        return fetch(repository.key_url)
    except OSError as error:
        raise one_problem(
            "repository-unreachable",
            f"no signing key at {repository.key_url} ({error})",
            "the signing key of the repository",
            "check that this box reaches that address (proxy, DNS, firewall)",
        ) from error


def _own_index(folder: Path) -> list[str]:
    """Apt's options for an index in ``folder`` that holds this one repository."""
    for part in ("lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True)
    return [
        *("-o", f"Dir::Etc::sourcelist={folder}/one.sources", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache::archives={folder}/archives"),
        *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
        *("-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root", "-o", "APT::Update::Post-Invoke-Success="),
    ]


def _update(repository: Repository, options: Sequence[str]) -> None:
    """Read the repository's index. Raises DrafthouseError for every error and every warning of apt."""
    try:
        done = _run(["apt-get", *options, "update"])
    except subprocess.TimeoutExpired as error:
        raise one_problem(
            "repository-unreachable",
            f"no index of {repository.url} within {_APT_S} s",
            "a repository that answers",
            "check that this box reaches that address, then run again",
        ) from error
    text = f"{done.stdout}\n{done.stderr}"
    complaints = [line for line in text.splitlines() if re.match(r"(W|E|Err|Warning|Error)(:|\s)", line)]
    if done.returncode == 0 and not complaints:
        return
    complaint = " ".join(" ".join(complaints).split())[:600] or f"exit status {done.returncode}"
    needed = "a repository that answers"
    do = "check that this box reaches that address (proxy, DNS, firewall), then run again"
    if re.search(r"signature|not signed|NO_PUBKEY|BADSIG|NOSPLIT|GPG|sqv|OpenPGP", complaint):
        needed = f"an index with a good signature by {repository.fingerprint}"
        do = (
            "do not install from it: a mirror or a proxy may have altered it, or its owner may have changed the key "
            "(ask them); nothing was installed"
        )
    raise one_problem("repository-refused", f"apt does not accept {repository.url}: {complaint}", needed, do)


def _whose(repository: Repository, options: Sequence[str]) -> str:
    """The words by which a pin means this repository: the names that it has signed.

    Its host is the last resort: a mirror often has the distribution's own archive on the same one, which must not be
    put behind.
    """
    targets = _run(["apt-get", *options, "indextargets"]).stdout
    names = dict(re.findall(r"^(Origin|Label): (.+)$", targets, re.MULTILINE))
    terms = []
    if "Origin" in names:
        terms.append(f"o={names['Origin']}")
    if "Label" in names:
        terms.append(f"l={names['Label']}")
    if terms:
        return f"release {','.join(terms)}"
    return f'origin "{urlsplit(repository.url).hostname or ""}"'


def _named_elsewhere(repository: Repository, root: Path) -> str:
    """The file of the box, other than ours, that names the repository; '' where none does."""
    ours = files(repository.name, root)[-1]
    parts = sorted(part for part in ours.parent.glob("*") if part.suffix in (".list", ".sources") and part != ours)
    for file in [root / "etc/apt/sources.list", *parts]:
        if not file.is_file():
            continue
        for line in file.read_text("utf-8", errors="replace").splitlines():
            words = line.partition("#")[0].split()
            if any(word.rstrip("/") == repository.url.rstrip("/") for word in words):
                return str(file)
    return ""


def versions(packages: Iterable[str], options: Sequence[str] = ()) -> dict[str, list[str]]:
    """The versions that apt's index has of each package, newest first; [] where it has none."""
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
