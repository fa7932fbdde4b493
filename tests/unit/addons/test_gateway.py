"""The gateway with the real Caddy: who gets in, what passes and how, and where the key is."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.plugin_utils.key_command import key_command_of

from drafthouse.addons.gateway import Reached, Settings, alternative_names, files, key_command, problems, reached_text
from drafthouse.addons.gateway_ready import read_key, wait_for_gateway
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.files import lay_out
from drafthouse.serving.runtimes import State
from tests.fakes.stepping_server import MODEL, Stepping, stepping_server
from tests.support.gateway import KEY, NAMED, TEMPLATES, Gateway, real_caddy, settings_for, started, with_
from tests.support.ports import free_port
from tests.support.programs import needs
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

CHAT = "/v1/chat/completions"
GOOD = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def caddy() -> str:
    return real_caddy()


@pytest.fixture(scope="module")
def engine() -> Iterator[Stepping]:
    with stepping_server() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(caddy: str, engine: Stepping, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("box") / "a home"
    with started(settings_for(home, f"127.0.0.1:{engine.port}", caddy)) as running:
        yield running


@pytest.fixture(autouse=True)
def _forgets(engine: Stepping) -> None:
    engine.forget()


def connect(gateway: Gateway) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", gateway.settings.port, timeout=60, context=gateway.trust())


def ask(
    gateway: Gateway, path: str, method: str = "GET", body: Any = None, headers: dict[str, str] = GOOD, **more: Any
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = connect(gateway)
    try:
        connection.request(method, path, body, headers, **more)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def error_of(content: bytes) -> dict[str, Any]:
    document = json.loads(content)
    assert set(document) == {"error"}
    assert set(document["error"]) == {"message", "type", "param", "code"}
    return dict(document["error"])


# --- who gets in ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": f"Bearer {KEY}x"},
        {"Authorization": f"Bearer {KEY[:-1]}"},
        {"Authorization": f"Bearer {KEY.replace('*', 'x')}"},
        {"Authorization": "Bearer *"},
        {"Authorization": "Bearer {env.DRAFTHOUSE_GATEWAY_KEY}"},
        {"X-Api-Key": KEY},
    ],
    ids=lambda headers: str(headers).replace(KEY, "KEY"),
)
def test_without_the_key_the_engine_is_not_asked(gateway: Gateway, engine: Stepping, headers: dict[str, str]) -> None:
    for path in ("/v1/models", CHAT, "/v1/", "/v1/anything"):
        status, content, answered = ask(gateway, path, headers=headers)
        assert status == 401
        assert error_of(content)["code"] == "invalid_api_key"
        assert answered["Content-Type"] == "application/json"
        assert answered["WWW-Authenticate"] == "Bearer"
    assert engine.asked == []


def test_with_the_key_the_api_answers(gateway: Gateway, engine: Stepping) -> None:
    status, content, answered = ask(gateway, "/v1/models")
    assert status == 200
    assert json.loads(content)["data"][0]["id"] == MODEL
    assert "Caddy" not in str(answered)
    assert engine.asked[0][2]["Authorization"] == f"Bearer {KEY}"


def test_an_engine_that_asks_for_no_key_does_not_learn_it(caddy: str, engine: Stepping, tmp_path: Path) -> None:
    with started(with_(settings_for(tmp_path, f"127.0.0.1:{engine.port}", caddy), pass_key=False)) as running:
        assert ask(running, "/v1/models")[0] == 200
    assert KEY not in str(engine.asked)


def test_anybody_may_ask_whether_it_lives(gateway: Gateway, engine: Stepping) -> None:
    assert ask(gateway, "/health", headers={})[0] == 200
    assert ask(gateway, "/health", "POST", headers={})[0] == 404
    assert [(method, path) for method, path, _ in engine.asked] == [("GET", "/health")]
    # The engine need not learn what somebody sends along.
    ask(gateway, "/health")
    assert KEY not in str(engine.asked)


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/metrics/", "//metrics", "/v1/../metrics", "/v1/%2e%2e/metrics", "/v1/..%2fmetrics"),
        *("/v1//../metrics", "/v1%2f..%2fmetrics", "/health/../metrics", "/health%2f..%2fmetrics", "/v1/./../metrics"),
        *(
            "/metrics/../v1/x",
            "/metrics%2f..%2fv1/x",
            "/metrics/%2e%2e/v1/x",
            "/v1//models",
            "/v1/models;x",
            "/v1%5cmodels",
        ),
        *("/v1/x%2Fy", "/v1\\models", "/v1/x/..", "/v1/%2E%2E/v1/models"),
        *("/", "/docs", "/openapi.json", "/load", "/tokenize", "/v1", "/v10/models", "/metrics?/v1/", "/%6d%65trics"),
    ],
)
def test_everything_else_is_closed_also_with_the_key(gateway: Gateway, engine: Stepping, path: str) -> None:
    status, content, _ = ask(gateway, path)
    assert status == 404
    assert error_of(content)["code"] == "not_found"
    assert engine.asked == []


# --- TLS --------------------------------------------------------------------------------------------


def test_plain_http_is_refused(gateway: Gateway, engine: Stepping) -> None:
    with socket.create_connection(("127.0.0.1", gateway.settings.port), 10) as plain:
        plain.sendall(f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        answer = plain.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert MODEL.encode() not in answer
    assert engine.asked == []


def test_the_certificate_is_what_is_trusted(gateway: Gateway) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        http.client.HTTPSConnection("127.0.0.1", gateway.settings.port, timeout=60).request("GET", "/health")
    for name in ("localhost", "127.0.0.1"):
        assert handshake(gateway, name) in ("TLSv1.2", "TLSv1.3")
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(gateway, "elsewhere.example.org")


def handshake(gateway: Gateway, name: str) -> str | None:
    with (
        socket.create_connection(("127.0.0.1", gateway.settings.port), 10) as plain,
        gateway.trust().wrap_socket(plain, server_hostname=name) as secure,
    ):
        return secure.version()


def test_nothing_listens_but_the_one_port(gateway: Gateway) -> None:
    assert sockets(gateway.process.pid, "tcp", "0A") == {gateway.settings.port}
    assert sockets(gateway.process.pid, "udp", "07") == set()


def sockets(pid: int, kind: str, state: str) -> set[int]:
    """The local ports of a process in that state, over both IP families."""
    links = [fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    own = {match[1] for link in links if (match := re.fullmatch(r"socket:\[(\d+)\]", str(link)))}
    found = set()
    for table in (kind, f"{kind}6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in own and words[3] == state:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


# --- what passes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [{"stream": True, "stepped": True, "chunks": 3}, {"seconds": 120}], ids=str)
def test_the_engine_stops_when_the_reader_is_gone(gateway: Gateway, engine: Stepping, request_: dict[str, Any]) -> None:
    leave(gateway, engine, request_)
    assert engine.gone.wait(120)
    assert not engine.finished.is_set()


def leave(gateway: Gateway, engine: Stepping, request: dict[str, Any]) -> None:
    """Ask for something, and go away before it is there."""
    connection = connect(gateway)
    connection.request("POST", CHAT, json.dumps(request), GOOD)
    assert engine.began.wait(120)
    connection.close()


@pytest.mark.alone
def test_the_first_byte_comes_as_soon_as_from_the_engine(
    gateway: Gateway, engine: Stepping, figure: Callable[[str], None]
) -> None:
    direct = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    through = connect(gateway)

    def seconds(connection: http.client.HTTPConnection) -> float:
        begun = time.perf_counter()
        connection.request("POST", CHAT, '{"stream": true}', GOOD)
        answer = connection.getresponse()
        answer.read(1)
        taken = time.perf_counter() - begun
        answer.read()
        return taken

    for connection in (direct, through):
        seconds(connection)  # connections are kept, as clients keep them
    pairs = [(seconds(direct), seconds(through)) for _ in range(50)]
    more = statistics.median(one[1] - one[0] for one in pairs) * 1000
    alone = statistics.median(one[0] for one in pairs) * 1000
    figure(f"gateway: first byte {more:.2f} ms after the engine's own (median of {len(pairs)} pairs)")
    assert more < max(5, 5 * alone)  # the engine's own on a slow machine
    direct.close()
    through.close()


def test_an_engine_that_is_away_is_said_in_json(caddy: str, tmp_path: Path) -> None:
    with started(settings_for(tmp_path, f"127.0.0.1:{free_port()}", caddy)) as running:
        status, content, _ = ask(running, CHAT, "POST", '{"messages": "a-private-prompt"}')
        ask(running, "/v1/models?key=a-private-query")
        log = running.log.read_text()
    assert (status, error_of(content)["code"]) == (502, "engine_away")
    assert "a-private" not in log
    assert KEY not in log


# --- where the key is -------------------------------------------------------------------------------


def test_the_key_is_in_its_file_and_nowhere_else(gateway: Gateway, engine: Stepping) -> None:
    ask(gateway, "/v1/models")
    ask(gateway, f"/v1/models?api_key={KEY}", headers={})
    leave(gateway, engine, {"stream": True, "stepped": True, "chunks": 3})
    assert engine.gone.wait(120)
    assert "/v1/" not in gateway.log.read_text()
    secret = KEY.encode()
    shown = {path: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()}
    assert [path for path, words in shown.items() if secret in words] == []
    home = Path(gateway.settings.home)
    having = [path for path in home.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert having == [Path(gateway.settings.key_file)]
    assert having[0].stat().st_mode & 0o077 == 0
    # Its own copy of its configuration lies here too, not in the user's home.
    assert (home / "gateway/data/caddy/autosave.json").is_file()
    # What Caddy keeps of its own, and the certificate's key, are for their owner alone.
    private = {path.name for path in home.rglob("*") if path.is_file() and path.stat().st_mode & 0o077 == 0}
    assert {"api_key", "key.pem"} <= private
    assert (home / "gateway/data").stat().st_mode & 0o077 == 0
    assert secret in Path(f"/proc/{gateway.process.pid}/environ").read_bytes()  # its owner's and root's to read
    assert Path(f"/proc/{gateway.process.pid}/environ").stat().st_mode & 0o077 == 0


def test_without_a_key_it_does_not_start(caddy: str, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "127.0.0.1:8000", caddy)
    lay_out(files(TEMPLATES, settings))
    for text in ("", "\n"):
        Path(settings.key_file).write_text(text)
        script = [f"{settings.folder}/serve.sh"]
        done = subprocess.run(script, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("found: no key")


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [("", 0o600, "nothing"), ("k\u00e9y", 0o600, "characters"), ("a\x01b", 0o600, "characters"), ("k", 0o644, "0644")],
)
def test_a_key_that_will_not_do(tmp_path: Path, text: str, mode: int, found: str) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(DrafthouseError) as caught:
        read_key(str(file))
    assert found in caught.value.problems[0].found
    with pytest.raises(DrafthouseError, match="No such file"):
        read_key(str(tmp_path / "none"))


# --- the files --------------------------------------------------------------------------------------


def plain(**changed: Any) -> Settings:
    base = Settings(home="/opt/drafthouse", port=8443, upstream="127.0.0.1:8000", key_file="/opt/drafthouse/key")
    return with_(base, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"home": "/opt/a home", "key_file": "/opt/a home/it's"},
        {"pass_key": False, "max_body_mb": 1000, "health": "/v2/health/ready"},
        {"name": "llm.example.org", "port": 443},
        {"name": "llm.example.org", "acme_email": "me+llm@example.org", "acme_ca": "https://ca.example.org:14000/dir"},
        {"upstream": "[::1]:8000"},
    ],
    ids=str,
)
def test_every_variant_is_valid_to_caddy(caddy: str, tmp_path: Path, changed: dict[str, Any]) -> None:
    settings = with_(
        settings_for(tmp_path / "a home", "127.0.0.1:8000", caddy), **{**changed, "home": f"{tmp_path}/a home"}
    )
    lay_out(files(TEMPLATES, settings))
    command = [caddy, "validate", "--adapter", "caddyfile", "--config", f"{settings.folder}/Caddyfile"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert "Valid configuration" in done.stdout + done.stderr
    subprocess.run(["sh", "-n", f"{settings.folder}/serve.sh"], check=True)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"port": 0}, "gateway_port"),
        ({"port": 65536}, "gateway_port"),
        ({"upstream": "0.0.0.0:8000"}, "gateway_upstream"),
        ({"upstream": "127.0.0.1:8000 {\n}"}, "gateway_upstream"),
        ({"name": "203.0.113.7"}, "gateway_name"),
        ({"name": "localhost"}, "gateway_name"),
        ({"name": "LLM.example.org"}, "gateway_name"),
        ({"name": "a.example.org, b.example.org"}, "gateway_name"),
        ({"health": "/health {"}, "gateway_health"),
        ({"max_body_mb": 0}, "gateway_max_body_mb"),
        ({"acme_email": "me@example.org\nadmin :2019"}, "gateway_acme_email"),
        ({"acme_ca": "http://ca.example.org"}, "gateway_acme_ca"),
        ({"home": "relative"}, "gateway_home"),
        ({"home": '/opt/"x'}, "gateway_home"),
        ({"key_file": "/opt/{env.HOME}"}, "gateway_key_file"),
    ],
    ids=str,
)
def test_what_would_not_do_is_refused(changed: dict[str, Any], where: str) -> None:
    assert [problem.where for problem in problems(plain(**changed))] == [where]
    with pytest.raises(DrafthouseError):
        files(TEMPLATES, plain(**changed))


def test_another_certificate_limit_or_key_is_another_script() -> None:
    scripts = {
        str(dict(files(TEMPLATES, one)[-1])["content"]) for one in (plain(), plain(digest="x"), plain(max_body_mb=3))
    }
    assert len(scripts) == 3
    assert files(TEMPLATES, plain()) == files(TEMPLATES, plain())


def test_what_a_certificate_is_for() -> None:
    always = ["DNS:localhost", "IP:127.0.0.1"]
    given = ["203.0.113.7", "[2001:DB8::1]", "Box.example.org", "not_a_name", "", "127.0.0.1", "a b"]
    assert alternative_names([]) == always
    assert alternative_names(given) == [*always, "IP:203.0.113.7", "IP:2001:db8::1", "DNS:box.example.org"]


# --- how it is reached ------------------------------------------------------------------------------


@needs("curl")
def test_the_printed_lines_work(gateway: Gateway) -> None:
    reached = Reached(
        "127.0.0.1", gateway.settings.port, MODEL, key_command(gateway.settings.key_file), gateway.certificate, "AB:CD"
    )
    text = reached_text(reached, "my-box")
    assert KEY not in text
    assert "AB:CD" in text
    shell, python = text.split("# bash")[1].split("# Python\n")
    lines = "\n".join(shell.splitlines()[1:])
    done = subprocess.run(["bash", "-euc", lines], capture_output=True, text=True, timeout=180, check=False)
    assert json.loads(done.stdout)["data"][0]["id"] == MODEL, done.stderr
    export = next(line for line in lines.splitlines() if line.startswith("export"))
    command = ["bash", "-euc", f"{export}\npython3 -"]
    done = subprocess.run(command, input=python, capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout == "yes\n", done.stderr


def test_the_address_of_a_name_and_of_ipv6() -> None:
    assert Reached("llm.example.org", 443, "m", "cat k").url == "https://llm.example.org"
    assert Reached("2001:db8::1", 8443, "m", "cat k").url == "https://[2001:db8::1]:8443"
    text = reached_text(Reached("llm.example.org", 443, 'a"b', "cat k"), "h")
    assert "--cacert" not in text
    assert '"model": "a\\"b"' in text
    over_ssh = key_command("/opt/a b/key", ["ssh", "-p", "40022", "root@203.0.113.7"])
    assert over_ssh == """ssh -p 40022 root@203.0.113.7 'cat '"'"'/opt/a b/key'"'"''"""
    assert key_command("/k", sudo=True) == "sudo cat /k"


@pytest.mark.parametrize(
    ("options", "become", "said"),
    [
        ({"host": "203.0.113.7"}, None, "ssh 203.0.113.7 'cat /k'"),
        # docs/clouds.md: a machine whose user has sudo.
        ({"host": "h", "port": 22, "remote_user": "ubuntu"}, object(), "ssh -p 22 ubuntu@h 'sudo cat /k'"),
        ({"host": "h", "remote_user": "root"}, object(), "ssh root@h 'cat /k'"),
        # A rented box: whoever had its address yesterday had another host key.
        (
            {"host": "h", "ssh_common_args": "-o HostKeyAlias=vast-7", "private_key_file": "/id", "port": 40022},
            None,
            "ssh -p 40022 -i /id -o HostKeyAlias=vast-7 h 'cat /k'",
        ),
    ],
)
def test_the_key_is_fetched_as_ansible_gets_there(options: dict[str, Any], become: object, said: str) -> None:
    connection = SimpleNamespace(
        transport="ssh", become=become, has_option=options.__contains__, get_option=options.__getitem__
    )
    assert key_command_of(connection, "/k", "box") == said
    connection.transport = "local"
    assert key_command_of(connection, "/k", "box") == ("sudo cat /k" if become else "cat /k")


# --- whether it is ready ----------------------------------------------------------------------------


class Held:
    """A runtime of one program, as a supervisor tells it."""

    def __init__(self, running: bool, last: str = "") -> None:
        self._state, self._last = State(running, 1.0, "exit status 1"), last

    def state(self, arm: str) -> State:
        return self._state

    def tail(self, arm: str, lines: int) -> str:
        return self._last

    def ending(self, arm: str) -> str:
        return ""

    def log_name(self, arm: str) -> str:
        return "its log"

    def mark(self, arm: str) -> str:
        return ""

    def printed(self, arm: str, since: str = "") -> str:
        return self._last

    def start(self, arm: str) -> None:
        pass

    def stop(self, arm: str) -> None:
        pass


def look(gateway: Gateway, held: Held, key: str = KEY, timeout_s: float = 0, **changed: Any) -> None:
    given = {"port": gateway.settings.port, "name": "", "certificate": gateway.certificate, **changed}
    wait_for_gateway(held, "gateway", key=key, timeout_s=timeout_s, sleep=lambda seconds: None, **given)


def test_a_gateway_that_does_what_it_is_for(gateway: Gateway) -> None:
    look(gateway, Held(True))


def test_a_gateway_with_a_name(caddy: str, engine: Stepping, tmp_path: Path) -> None:
    settings = with_(settings_for(tmp_path, f"127.0.0.1:{engine.port}", caddy), name=NAMED)
    # Instead of an authority's certificate, which nobody here can have.
    tls = f"\ttls {settings.folder}/tls/certificate.pem {settings.folder}/tls/key.pem\n"
    with started(settings, ("\theader -Server", f"{tls}\theader -Server")) as running:
        look(running, Held(True), name=NAMED)


def test_a_gateway_that_does_not(gateway: Gateway, engine: Stepping, caddy: str, tmp_path: Path) -> None:
    for change, said in (
        ({"key": "another"}, "401 for /v1/models"),
        ({"name": "llm.example.org"}, "llm.example.org"),
        ({"certificate": ""}, "certificate verify failed"),
        ({"port": free_port()}, "Connection refused"),
    ):
        with pytest.raises(DrafthouseError) as caught:
            look(gateway, Held(True), **change)
        assert said in str(caught.value)
        assert KEY not in str(caught.value)
    with pytest.raises(DrafthouseError, match="stop what listens on port"):
        look(gateway, Held(False, "listen tcp :8443: bind: address already in use"))
    with pytest.raises(DrafthouseError, match="only root may listen"):
        look(gateway, Held(False, "listen tcp :443: bind: permission denied"))
    alone = settings_for(tmp_path, f"127.0.0.1:{free_port()}", caddy)
    with started(alone) as running, refuses("gateway-without-engine"):
        look(running, Held(True))


def test_a_port_that_is_taken_is_said(caddy: str, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "127.0.0.1:8000", caddy)
    lay_out(files(TEMPLATES, settings))
    with socket.socket() as other:
        other.bind(("", settings.port))
        other.listen()
        script = [f"{settings.folder}/serve.sh"]
        done = subprocess.run(script, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode
    ended = Held(False, done.stderr)
    with pytest.raises(DrafthouseError, match=f"stop what listens on port {settings.port}"):
        wait_for_gateway(ended, "gateway", port=settings.port, name="", certificate="", key=KEY, timeout_s=0)
