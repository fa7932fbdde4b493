"""The role gateway, played on this machine in the process runtime: made, kept, changed, stopped, and taken away."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Ended, play
from tests.fakes.stepping_server import MODEL, Stepping, stepping_server
from tests.support.gateway import give_key, real_caddy
from tests.support.ports import free_port

KEY, OTHER_KEY = "e2e-key-of-the-gateway-0001", "e2e-key-of-the-gateway-0002"
Role = Callable[..., Ended]


@pytest.fixture(scope="module")
def engine() -> Iterator[Stepping]:
    with stepping_server() as running:
        yield running


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("gw")
    give_key(home, KEY)
    return home


@pytest.fixture(scope="module")
def role(home: Path, engine: Stepping, monkeymodule: pytest.MonkeyPatch) -> Iterator[Role]:
    monkeymodule.setenv("DRAFTHOUSE_STATE", str(home / "state"))
    given = {
        "gateway_runtime": "process",
        "gateway_home": str(home),
        "gateway_python": sys.executable,  # it has supervisor
        "gateway_port": free_port(),
        "gateway_upstream": f"127.0.0.1:{engine.port}",
        "gateway_key_file": str(home / "secrets" / "api_key"),
        "gateway_model": MODEL,
        "gateway_binary": real_caddy(),
        "gateway_addresses": ["203.0.113.7", "box.example.org"],
    }
    task = {"name": "Gateway", "ansible.builtin.include_role": {"name": "gateway"}}
    book = home / "gateway.yml"
    book.write_text(yaml.safe_dump([{"name": "Gateway", "hosts": "all", "gather_facts": False, "tasks": [task]}]))

    def run(*words: str, **changed: Any) -> Ended:
        return play(str(book), *words, **{**given, **changed})

    yield run
    if (home / "gateway/supervisor/supervisord.pid").exists():
        run(gateway_state="stopped")


@pytest.fixture(scope="module")
def monkeymodule() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def first(role: Role) -> Ended:
    done = role()
    assert done.status == 0, done.output
    return done


def presented(done: Ended) -> tuple[str, bytes]:
    """The port that a run named, and the certificate that is presented there."""
    port = done.output.partition("https://127.0.0.1:")[2].split("/")[0]
    loose = ssl.create_default_context()
    loose.check_hostname, loose.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", int(port)), 10) as plain,
        loose.wrap_socket(plain, server_hostname="box.example.org") as secure,
    ):
        return port, secure.getpeercert(binary_form=True) or b""


def test_check_mode_foresees_it_where_nothing_is_yet(role: Role, tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    done = role("--check", gateway_home=str(nowhere), gateway_key_file=str(nowhere / "secrets/api_key"))
    assert done.status == 0, done.output
    assert done.changed > 0
    assert not nowhere.exists()


def test_the_first_run_ends_with_lines_that_work(first: Ended, home: Path) -> None:
    assert KEY not in first.output
    _, der = presented(first)
    digest = hashlib.sha256(der).hexdigest().upper()
    assert ":".join(digest[at : at + 2] for at in range(0, 64, 2)) in first.output
    lines = first.output.partition("# bash")[2].splitlines()[1:3]
    done = subprocess.run(["bash", "-euc", "\n".join(lines)], capture_output=True, text=True, timeout=180, check=False)
    assert json.loads(done.stdout)["data"][0]["id"] == MODEL, done.stderr
    python = first.output.partition("# Python\n")[2].partition("\n\n")[0]
    done = subprocess.run(
        ["bash", "-euc", f"{lines[0]}\npython3 -"],
        input=python,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.startswith("yes\n"), done.stderr


def test_the_certificate_is_for_what_was_named_and_strict_clients_take_it(first: Ended, home: Path) -> None:
    port, _ = presented(first)
    kept = next((home / "state/gateway").glob("*.pem"))
    trust = ssl.create_default_context(cafile=str(kept))
    trust.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    for name in ("127.0.0.1", "localhost", "203.0.113.7", "box.example.org"):
        with (
            socket.create_connection(("127.0.0.1", int(port)), 10) as plain,
            trust.wrap_socket(plain, server_hostname=name) as secure,
        ):
            found = secure.getpeercert()
    assert found is not None
    until = ssl.cert_time_to_seconds(str(found["notAfter"])) - ssl.cert_time_to_seconds(str(found["notBefore"]))
    assert until / 86400 == pytest.approx(3650, abs=2)
    assert (home / "gateway/tls/key.pem").stat().st_mode & 0o777 == 0o600


def test_a_second_run_changes_nothing(first: Ended, role: Role, home: Path) -> None:
    pid = (home / "gateway/supervisor/supervisord.pid").read_text()
    again = role("--diff")
    assert (again.status, again.changed) == (0, 0), again.output
    assert presented(again) == presented(first)
    assert (home / "gateway/supervisor/supervisord.pid").read_text() == pid


@pytest.mark.soak
def test_check_mode_finds_nothing_to_change_afterwards(first: Ended, role: Role) -> None:
    done = role("--check")
    assert (done.status, done.changed) == (0, 0), done.output


def test_another_key_is_taken_up_and_the_old_one_is_not(first: Ended, role: Role, home: Path, engine: Stepping) -> None:
    give_key(home, OTHER_KEY)
    done = role()
    assert done.status == 0, done.output
    assert presented(done) == presented(first)
    port, _ = presented(done)
    for key, status in ((KEY, "401"), (OTHER_KEY, "200")):
        words = ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {key}"]
        url = f"https://127.0.0.1:{port}/v1/models"
        assert subprocess.run([*words, url], capture_output=True, text=True, check=False).stdout == status


def test_what_is_no_setting_is_refused(role: Role) -> None:
    done = role(gateway_state="up", gateway_runtime="podman", gateway_max_body_mb="much")
    assert done.status == 2
    for said in ("started, stopped, absent", "process, docker", "gateway_max_body_mb"):
        assert said in done.output


@pytest.mark.soak
def test_a_port_that_is_taken_is_said(first: Ended, role: Role) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = int(other.getsockname()[1])
        done = role(gateway_port=port)
    assert done.status == 2
    assert f"do: stop what listens on port {port}" in done.output


@pytest.mark.soak
def test_stopped_it_keeps_its_certificate(first: Ended, role: Role) -> None:
    assert role(gateway_state="stopped").status == 0
    with pytest.raises(ConnectionRefusedError):
        presented(first)
    again = role()
    assert again.status == 0, again.output
    fingerprint = first.output.partition("SHA-256 ")[2].split()[0]
    assert f"SHA-256 {fingerprint}" in again.output
    presented(again)


def test_other_addresses_make_another_certificate_of_the_same_key(first: Ended, role: Role, home: Path) -> None:
    tls = home / "gateway/tls"
    key, before = (tls / "key.pem").read_bytes(), (tls / "certificate.pem").read_bytes()
    moved = {"gateway_addresses": ["198.51.100.9"]}
    foreseen = role("--check", "--diff", **moved)
    assert foreseen.status == 0, foreseen.output
    assert "+subjectAltName = DNS:localhost, IP:127.0.0.1, IP:198.51.100.9" in foreseen.output
    assert (tls / "certificate.pem").read_bytes() == before
    done = role(**moved)
    assert done.status == 0, done.output
    after = (tls / "certificate.pem").read_bytes()
    assert after != before and (tls / "key.pem").read_bytes() == key
    # Either that is lost is made again; another key takes another certificate.
    for lost in ("certificate.pem", "key.pem"):
        (tls / lost).unlink()
        again = role(**moved)
        assert again.status == 0, again.output
        assert presented(again)[1] == ssl.PEM_cert_to_DER_cert((tls / "certificate.pem").read_text())
    assert (tls / "key.pem").read_bytes() != key
    assert (role(**moved).changed, sorted(path.name for path in tls.iterdir())) == (
        0, ["certificate.pem", "key.pem", "request.cnf"],
    )  # fmt: skip


def test_absent_leaves_nothing(first: Ended, role: Role, home: Path) -> None:
    done = role(gateway_state="absent")
    assert done.status == 0, done.output
    assert not (home / "gateway").exists()
    with pytest.raises(ConnectionRefusedError):
        presented(first)
    again = role(gateway_state="absent")
    assert (again.status, again.changed) == (0, 0), again.output


@pytest.mark.soak
def test_an_inventory_asks_for_it_and_asks_no_more(
    engine: Stepping, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTHOUSE_STATE", str(tmp_path / "state"))
    home = tmp_path_factory.mktemp("h")  # short: the supervisor's socket lies below it, and may have 107 characters
    give_key(home, KEY)
    given: dict[str, Any] = {
        "drafthouse_home": str(home),
        "drafthouse_models_dir": str(tmp_path / "models"),
        "drafthouse_port": engine.port,
        "drafthouse_gateway_port": free_port(),
    }
    done = play("site.yml --tags gateway", drafthouse_gateway="true", **given)
    assert done.status == 0, done.output
    assert f"gateway of localhost: https://127.0.0.1:{given['drafthouse_gateway_port']}/v1" in done.output
    presented(done)
    # From its lock, in an environment of its own.
    assert (home / "caddy" / "bin" / "caddy").is_file()
    try:
        stopped = play("playbooks/stop.yml", drafthouse_gateway="true", **given)
        assert stopped.status == 0, stopped.output
        with pytest.raises(ConnectionRefusedError):
            presented(done)
        assert (home / "gateway/tls/key.pem").exists()
    finally:
        gone = play("site.yml --tags gateway", **given)
    assert gone.status == 0, gone.output
    assert not (home / "gateway").exists()
    again = play("site.yml --tags gateway", **given)
    assert (again.status, again.changed) == (0, 0), again.output
    assert "TASK [gateway" not in again.output
