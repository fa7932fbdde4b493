"""How this machine reaches packages, so that what is built and run on it reaches them the same way.

Everything is read at run time from the machine's own configuration (apt's, pip's, the local certificate
authorities, the proxy variables) and goes into images that stay on this machine.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_OWN_CAS = Path("/usr/local/share/ca-certificates")  # where Debian keeps what its administrator added
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"  # what update-ca-certificates writes, on a box as well
# Settings of apt about the network, and about the age of an index where an archive is a snapshot.
_APT_SETTING = re.compile(r"^Acquire::(https?::(Proxy|CaInfo|Verify|Timeout)|Check-|Retries|ForceIPv)", re.IGNORECASE)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_INDEXES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
_PIP_TO_UV = {"PIP_INDEX_URL": "UV_DEFAULT_INDEX"}


@dataclass(frozen=True)
class Archive:
    """A Debian archive as this machine's apt names it; ``security`` is empty where apt has none."""

    main: str
    security: str = ""


@functools.cache
def _asked(*argv: str) -> str:
    """What a program prints, or nothing where it is missing or fails. Asked once: pip takes a second."""
    if not shutil.which(argv[0]):
        return ""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)
    return done.stdout if done.returncode == 0 else ""


def debian_archive() -> Archive | None:
    """The archive of this machine's apt, or None where the machine is not Debian."""
    try:
        release = Path("/etc/os-release").read_text("utf-8")
    except OSError:
        return None
    if not re.search(r"^ID=\"?debian\"?$", release, re.MULTILINE):
        return None
    text = _asked("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages")
    main = security = ""
    for line in text.splitlines():
        uri, suite, component = line.split()
        if component != "main":
            continue
        if suite.endswith("-security"):
            security = security or uri
        elif "-" not in suite:
            main = main or uri
    return Archive(main, security) if main else None


def apt_settings() -> str:
    """Return this machine's settings of apt that a box needs too, as an apt.conf."""
    kept = [line for line in _asked("apt-config", "dump").splitlines() if _APT_SETTING.match(line)]
    return "".join(f"{line}\n" for line in kept if not line.endswith('"";'))


def own_authorities() -> dict[str, bytes]:
    """The certificate authorities that this machine's administrator added, by file name."""
    return {path.name: path.read_bytes() for path in sorted(_OWN_CAS.rglob("*.crt"))}


def _remote(value: str) -> str:
    """The addresses in a setting of pip that another machine can use too."""
    return " ".join(word for word in value.split() if word.startswith(("http://", "https://")))


def environment() -> dict[str, str]:
    """The variables that a login on a box needs to reach package indexes as this machine does."""
    found = {}
    for name in _PROXIES:
        for spelling in (name, name.upper()):
            if value := os.environ.get(spelling):
                found[spelling] = value
    for line in _asked("pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        name = f"PIP_{key.rpartition('.')[2].replace('-', '_').upper()}"
        if name in _INDEXES and (kept := _remote(value.strip().strip("'").replace("\\n", " "))):
            found[name] = kept
    for name in _INDEXES:
        if kept := _remote(os.environ.get(name, "")):
            found[name] = kept
    for pip, uv in _PIP_TO_UV.items():
        if pip in found:
            found.setdefault(uv, found[pip])
    if own_authorities():
        # pip before 24.2, uv and requests bring certificates of their own and do not look at the system's.
        found |= dict.fromkeys(("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"), _BUNDLE)
    return found


def nameservers() -> list[str]:
    """The name servers that something else than this machine can ask, too."""
    for path in (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")):
        if not path.exists():
            continue
        words = [line.split() for line in path.read_text("utf-8").splitlines()]
        found = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver" and "%" not in line[1]]
        if usable := [address for address in found if not ipaddress.ip_address(address).is_loopback]:
            return usable
    return []


def machine_files(release: str) -> dict[str, bytes]:
    """The files, by their path in an image, that let it reach packages as this machine does."""
    files = {f"usr/local/share/ca-certificates/{name}": content for name, content in own_authorities().items()}
    if settings := apt_settings():
        files["etc/apt/apt.conf.d/90machine"] = settings.encode()
    files["etc/environment"] = "".join(f"{k}={shlex.quote(v)}\n" for k, v in environment().items()).encode()
    if archive := debian_archive():
        suites = [(archive.main, f"{release} {release}-updates")]
        if archive.security:
            suites.append((archive.security, f"{release}-security"))
        files["etc/apt/sources.list.d/debian.sources"] = "\n".join(
            f"Types: deb\nURIs: {uri}\nSuites: {names}\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
            for uri, names in suites
        ).encode()
    return files
