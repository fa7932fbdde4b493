"""Add a signed apt repository to a machine, only after apt has verified its index with the pinned key.

`apt-get update` alone is too lenient. If the signature is bad and an older index exists, it only warns, exits with
status 0 and uses the older index. This module first reads the repository into an empty temporary index, where apt
has nothing to fall back to. apt itself checks keys and signatures. The pinned fingerprint is written to
``Signed-By``, so apt enforces it at every later update too. Standard library only: gpg and python3-debian may be
missing on a bare machine.
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

_APT_TIMEOUT_S = 180  # of one apt command: enough for an index of some megabytes over a slow line
Fetch = Callable[[str], bytes]  # the bytes at a URL; raises OSError


def files(name: str, root: Path = Path("/")) -> tuple[Path, Path, Path]:
    """Paths of a repository's pins, signing key and source. Write them in this order: the source activates it.

    apt recognises an armored key by its suffix. The prefix ``zz-`` sorts the pins last: the first preferences file that
    names a package decides, and a vendor's own version pin must win over ours.
    """
    apt = root / "etc/apt"
    return apt / f"preferences.d/zz-{name}", apt / f"keyrings/{name}.asc", apt / f"sources.list.d/{name}.sources"


@dataclass(frozen=True)
class Repository:
    """A repository to add."""

    name: str  # of its files, without suffix
    url: str
    key_url: str  # of the signing key, ASCII-armored
    fingerprint: str  # of the primary key, 40 hexadecimal digits
    suite: str = "/"  # `/` for a flat repository
    components: Sequence[str] = ()
    pins: Sequence[str] = ()  # patterns of the packages to prefer from it; with any, its other packages rank lowest
    leave: Sequence[str] = ()  # patterns of the packages that always rank lowest, even if a pin matches them

    def sources(self, key: Path) -> str:
        """The repository in apt's deb822 format; of the keys in the file ``key`` only the pinned one is trusted."""
        lines = ["Types: deb", f"URIs: {self.url}", f"Suites: {self.suite}"]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        return "\n".join(["# Written by Drafthouse.", *lines, f"Signed-By: {key} {self.fingerprint}", ""])

    def preferences(self, pin_target: str) -> str:
        """The text of the pins. The distribution's packages have priority 500: 600 is preferred to it, 100 is not.

        ``pin_target`` is the expression that selects this repository, see `_pin_target`.
        """
        default_priority = 100 if self.pins else 500
        blocks = []
        # The first block that names a package decides.
        for packages, priority in ((self.leave, 100), (self.pins, 600), (["*"], default_priority)):
            if packages:
                blocks.append(f"Package: {' '.join(packages)}\nPin: {pin_target}\nPin-Priority: {priority}\n")
        return "\n".join([f"# Written by Drafthouse: what may come from {self.url}", *blocks])


@dataclass
class Added:
    """Result of `add`."""

    files: LaidOut  # that were written, or in check mode would be
    versions: dict[str, list[str]]  # available ones by package, newest first
    named_in: str  # another source file that names the repository already, so no key and source are added; '' if none


def add(
    repository: Repository, fetch: Fetch, packages: Iterable[str] = (), check: bool = False, root: Path = Path("/")
) -> Added:
    """Verify the repository, then write its three files. Raises DrafthouseError if the verification fails.

    ``packages`` are those whose available versions are returned. With ``check`` the repository is verified too, but no
    file is written. If another source file names the repository already, only the pins are written.
    """
    if not re.fullmatch("[0-9A-F]{40}", repository.fingerprint):  # without it apt trusts every key in the file
        found = f"{repository.fingerprint!r} for the fingerprint of {repository.key_url}"
        needed = "the 40 hexadecimal digits of the trusted key"
        do = "get them from the repository's owner (gpg --show-keys prints them)"
        raise one_problem("invalid-setting", found, needed, do)
    key = _fetched_key(repository, fetch)
    pins_file, key_file, sources_file = files(repository.name, root)
    with tempfile.TemporaryDirectory(prefix="drafthouse-apt-") as folder_name:
        folder = Path(folder_name)
        folder.chmod(0o755)  # apt may read it as its unprivileged user _apt
        (folder / "key.asc").write_bytes(key)
        (folder / "one.sources").write_text(repository.sources(folder / "key.asc"), "utf-8")
        options = _index_options(folder)
        _update(repository, options)
        available = versions(packages, options)
        contents: dict[Path, str | bytes] = {pins_file: repository.preferences(_pin_target(repository, options))}
    named_in = _other_source_file(repository, root)
    # Two sources with one URL and different keys stop apt altogether ("Conflicting values set for Signed-By").
    if not named_in:
        # The source names the key by its path on the machine, whatever ``root`` is.
        _, key_on_machine, _ = files(repository.name)
        contents |= {key_file: key, sources_file: repository.sources(key_on_machine)}
    entries = [{"path": path, "mode": "0644", "content": content} for path, content in contents.items()]
    return Added(lay_out(entries, check), available, named_in)


def take_away(name: str, check: bool = False, root: Path = Path("/")) -> list[str]:
    """Remove the files of the repository ``name`` and return their paths; with ``check`` only return them.

    The source goes first, so that apt never reads it without its key.
    """
    removed = []
    for path in reversed(files(name, root)):
        if not path.exists():
            continue
        removed.append(str(path))
        if not check:
            path.unlink(missing_ok=True)
    return removed


def _fetched_key(repository: Repository, fetch: Fetch) -> bytes:
    """The signing key. Raises DrafthouseError if it cannot be fetched."""
    try:
        return fetch(repository.key_url)
    except OSError as error:
        found = f"no signing key at {repository.key_url} ({error})"
        needed = "the signing key of the repository"
        do = "check that this box reaches that address (proxy, DNS, firewall)"
        raise one_problem("repository-unreachable", found, needed, do) from error


def _index_options(folder: Path) -> list[str]:
    """Prepare ``folder`` for an index of this repository alone; return the options that make apt use it."""
    for subfolder in ("lists/partial", "archives/partial"):
        (folder / subfolder).mkdir(parents=True)
    return [
        *("-o", f"Dir::Etc::sourcelist={folder}/one.sources", "-o", "Dir::Etc::sourceparts=-"),
        *("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache::archives={folder}/archives"),
        *("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="),
        *("-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root", "-o", "APT::Update::Post-Invoke-Success="),
    ]


def _update(repository: Repository, options: Sequence[str]) -> None:
    """Download and verify the repository's index. Raises DrafthouseError for any error or warning of apt.

    A warning counts because apt only warns of a bad signature while it has an older index.
    """
    try:
        completed = _run_apt(["apt-get", *options, "update"])
    except subprocess.TimeoutExpired as error:
        found = f"no index of {repository.url} within {_APT_TIMEOUT_S} s"
        needed = "a repository that answers"
        do = "check that this box reaches that address, then run again"
        raise one_problem("repository-unreachable", found, needed, do) from error
    output = f"{completed.stdout}\n{completed.stderr}"
    complaints = [line for line in output.splitlines() if re.match(r"(W|E|Err|Warning|Error)(:|\s)", line)]
    if completed.returncode == 0 and not complaints:
        return
    complaint = " ".join(" ".join(complaints).split())[:600] or f"exit status {completed.returncode}"
    needed = "a repository that answers"
    do = "check that this box reaches that address (proxy, DNS, firewall), then run again"
    if re.search(r"signature|not signed|NO_PUBKEY|BADSIG|NOSPLIT|GPG|sqv|OpenPGP", complaint):
        needed = f"an index with a good signature by {repository.fingerprint}"
        do = (
            "do not install from it: a mirror or a proxy may have altered it, or its owner may have changed the key "
            "(ask them); nothing was installed"
        )
    raise one_problem("repository-refused", f"apt does not accept {repository.url}: {complaint}", needed, do)


def _pin_target(repository: Repository, options: Sequence[str]) -> str:
    """The `Pin:` expression that selects this repository: the Origin and Label in its signed index.

    The host name is the last resort. A mirror often serves the distribution's archive from the same host, and a pin
    by host changes the archive's priority too.
    """
    targets = _run_apt(["apt-get", *options, "indextargets"]).stdout
    names = dict(re.findall(r"^(Origin|Label): (.+)$", targets, re.MULTILINE))
    terms = []
    if "Origin" in names:
        terms.append(f"o={names['Origin']}")
    if "Label" in names:
        terms.append(f"l={names['Label']}")
    if terms:
        return f"release {','.join(terms)}"
    return f'origin "{urlsplit(repository.url).hostname or ""}"'


def _other_source_file(repository: Repository, root: Path) -> str:
    """The path of another apt source file that names the repository's URL; '' if there is none."""
    _, _, source = files(repository.name, root)
    paths = sorted(path for path in source.parent.glob("*") if path.suffix in (".list", ".sources") and path != source)
    for source_file in [root / "etc/apt/sources.list", *paths]:
        if not source_file.is_file():
            continue
        for line in source_file.read_text("utf-8", errors="replace").splitlines():
            words = line.partition("#")[0].split()
            if any(word.rstrip("/") == repository.url.rstrip("/") for word in words):
                return str(source_file)
    return ""


def versions(packages: Iterable[str], options: Sequence[str] = ()) -> dict[str, list[str]]:
    """Versions in apt's index by package, newest first; [] if it has none. ``options`` go to apt-cache."""
    names = list(dict.fromkeys(packages))
    versions_by_package: dict[str, list[str]] = {name: [] for name in names}
    if names:
        for line in _run_apt(["apt-cache", *options, "madison", *names]).stdout.splitlines():
            columns = [column.strip() for column in line.split("|")]
            if len(columns) != 3:
                continue
            name, version, _ = columns
            # The same version may come from several sources; other packages than ``packages`` are skipped.
            if name in versions_by_package and version not in versions_by_package[name]:
                versions_by_package[name].append(version)
    return versions_by_package


def _run_apt(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """The result of an apt command, whose output is in English. Raises subprocess.TimeoutExpired."""
    return subprocess.run(
        list(argv),
        capture_output=True,
        text=True,
        timeout=_APT_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
