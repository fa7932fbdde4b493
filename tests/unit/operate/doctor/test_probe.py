"""What the doctor reads and asks on a real machine: sockets, files, a little server. Keys stay where they are."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.port_probe import probe_ports
from drafthouse.host.box_facts import read_box
from drafthouse.operate.checks.finding import FAIL, OK, WARN
from drafthouse.operate.checks.registry import diagnose
from drafthouse.operate.doctor import collect
from drafthouse.operate.doctor.addresses import listening
from drafthouse.operate.doctor.probe import ask, read_served_key
from drafthouse.operate.doctor.weights import read_weights
from drafthouse.weights.integrity import Note, note_entry, write_note
from tests.support.doctors import CPU_PROFILE, asked, wanted

#: By hand: only what is read of what it is given.
read: Any = collect.read

pytestmark = pytest.mark.processes

KEY = "doctor-key-0123456789"


@dataclass
class Engine:
    """How the little server behaves; ``asked`` are the requests with their Authorization."""

    wants_key: bool = True
    metrics_want_key: bool = True
    models_want_key: bool = False  # vLLM's do, llama.cpp's do not
    drafts_from: int = 1  # the chat from which on its counters move; 0 never
    status: int = 200
    hangs: bool = False
    slots: list[Any] = field(default_factory=lambda: [{"id": 0, "speculative": True}])
    asked: list[tuple[str, str]] = field(default_factory=list)
    chats: int = 0
    over: threading.Event = field(default_factory=threading.Event)  # ends what hangs

    def metrics(self) -> str:
        moved = self.drafts_from and max(0, self.chats - self.drafts_from + 1)
        lines = [f"llamacpp:prompt_tokens_total {1000 + self.chats}", "# HELP something"]
        for name, value in (("num_drafts", 4), ("num_draft_tokens", 16), ("num_accepted_tokens", 9)):
            lines.append(f"llamacpp:spec_decode_{name}_total {value * moved}")
        return "\n".join(lines) + "\n"


@contextmanager
def served(engine: Engine) -> Iterator[int]:
    """Serve on a free port of loopback; return it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            engine.asked.append((self.path, given))
            if engine.hangs:
                engine.over.wait(120)
            allowed = given == f"Bearer {KEY}"
            if self.path == "/slots":
                return self.say(200 if allowed else 401, json.dumps(engine.slots))
            if self.path == "/health":
                return self.say(200, "{}")
            if self.path == "/metrics":
                open_to = allowed or not engine.metrics_want_key
                return self.say(200, engine.metrics()) if open_to else self.say(401, "no")
            if not allowed and engine.wants_key and engine.models_want_key:
                return self.say(401, json.dumps({"error": f"not {given}"}))
            return self.say(200, json.dumps({"data": [{"id": "smollm2-135m"}]}))

        def do_POST(self) -> None:
            given = self.headers.get("Authorization", "")
            engine.asked.append((self.path, given))
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if given != f"Bearer {KEY}" and engine.wants_key:
                return self.say(401, json.dumps({"error": f"not {given}"}))
            if "messages" not in body:
                return self.say(400, json.dumps({"error": "'messages' is required"}))
            engine.chats += 1
            if engine.status != 200:
                return self.say(engine.status, json.dumps({"error": f"failed for Bearer {KEY}"}))
            usage = {"prompt_tokens": 9, "completion_tokens": body["max_tokens"]}
            choice = {"message": {"content": "a secret thought"}}
            return self.say(200, json.dumps({"choices": [choice], "usage": usage, "timings": {"predicted_n": 9}}))

        def say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def profile_at(port: int, home: Path, **site: Any) -> Any:
    return wanted(CPU_PROFILE, "local", port=port, home=str(home), models_dir=str(home / "models"), **site)


def at(port: int, home: Path, **site: Any) -> Any:
    return asked(profile_at(port, home, **site))


def answered(engine: Engine, home: Path, key: str = KEY) -> Any:
    with served(engine) as port:
        return ask(at(port, home), key, 5.0)


def test_a_well_engine_is_asked_once(tmp_path: Path) -> None:
    engine = Engine()
    found = answered(engine, tmp_path)
    assert found["health"]["status"] == 200
    assert found["without_key"]["status"] == 401
    assert found["with_key"] == {"status": 200, "error": "", "models": ["smollm2-135m"]}
    (chat,) = found["chats"]
    assert chat["status"] == 200
    assert chat["tokens"] == 48
    assert "spec_decode_num_draft_tokens_total 0" in found["before"]
    assert "spec_decode_num_draft_tokens_total 16" in found["after"]
    assert engine.chats == 1


@pytest.mark.parametrize("models_want_key", [False, True])
def test_who_asks_for_the_key_is_found_by_a_request_that_costs_nothing(tmp_path: Path, models_want_key: bool) -> None:
    guarded, free = Engine(models_want_key=models_want_key), Engine(wants_key=False, drafts_from=0)
    assert answered(guarded, tmp_path)["without_key"]["status"] == 401
    assert answered(free, tmp_path)["without_key"]["status"] == 400
    # What was answered with tokens are the three prompts alone.
    assert (guarded.chats, free.chats) == (1, 3)
    # Another key than the server's; and none at all, with which nothing is asked.
    other = answered(guarded, tmp_path, "another-key-0123456789")
    assert 401 in (other["with_key"]["status"], *(chat["status"] for chat in other["chats"]))
    assert answered(guarded, tmp_path, "")["chats"] == []


def test_nothing_is_asked_while_something_is_measured(tmp_path: Path) -> None:
    engine = Engine()
    given: Any = {"parts": ["server"], "sys": "/sys", "proc": "/proc", "timeout_s": 60, "prove_container": False}
    with served(engine) as port, (tmp_path / "benchmark.lock").open("w") as lock:
        resolved = profile_at(port, tmp_path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        facts = read(asked(resolved), {**given, "firewall": True})
    assert facts["unread"] == {}
    assert facts["measured"] is True
    assert engine.asked == []
    assert {check.name: check.status for check in diagnose(resolved, facts, ["server"])}["served"] == WARN


def test_neither_key_nor_answer_is_in_what_is_told(tmp_path: Path) -> None:
    for engine in (Engine(), Engine(status=500), Engine(wants_key=False)):
        text = json.dumps(answered(engine, tmp_path))
        assert KEY not in text
        assert "secret thought" not in text
    # And the key is not given to whom it is not for: health and the first look at the counters go without.
    assert ("/health", "") in engine.asked
    assert ("/metrics", "") in engine.asked


def test_it_asks_more_where_nothing_was_drafted_and_no_more_than_three(tmp_path: Path) -> None:
    late = Engine(drafts_from=3)
    assert len(answered(late, tmp_path)["chats"]) == 3
    never = Engine(drafts_from=0)
    found = answered(never, tmp_path)
    assert never.chats == 3
    # Other counters of the engine move with every request; only those of drafting count.
    assert "1003" in found["after"]
    assert "1000" in found["before"]


def test_its_slots_tell_whether_it_speculates(tmp_path: Path) -> None:
    assert answered(Engine(), tmp_path)["speculates"] is True
    assert answered(Engine(slots=[{"id": 0, "speculative": False}]), tmp_path)["speculates"] is False
    # Switched off with --no-slots, or of a version that says nothing of it.
    assert answered(Engine(slots=[]), tmp_path)["speculates"] is None
    assert answered(Engine(slots=[{"id": 0, "prompt": "a secret"}]), tmp_path)["speculates"] is None


def test_one_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    engine = Engine(status=500)
    (chat,) = answered(engine, tmp_path)["chats"]
    assert (chat["status"], chat["tokens"]) == (500, 0)
    assert "failed for Bearer (key)" in chat["error"]


def test_nobody_there_and_nobody_who_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = ask(at(probe.getsockname()[1], tmp_path), KEY, 5.0)
    assert found["health"]["status"] is None
    assert "refused" in found["health"]["error"]
    assert found["chats"] == []
    monkeypatch.setattr("drafthouse.operate.doctor.probe._REQUEST_S", 0.3)
    begun, engine = time.monotonic(), Engine(hangs=True)
    with served(engine) as port:
        try:
            assert "timed out" in ask(at(port, tmp_path), KEY, 5.0)["health"]["error"]
        finally:
            engine.over.set()
    assert time.monotonic() - begun < 60  # half of what it hangs


def test_the_keys_file(tmp_path: Path) -> None:
    questions = at(8000, tmp_path)
    path = Path(questions["key_file"])
    assert "No such file" in (read_served_key(questions)[0]["problem"] or {})["found"]
    path.parent.mkdir()
    path.write_text(f"{KEY}\n")
    path.chmod(0o644)
    found, key = read_served_key(questions)
    assert found["problem"] and found["problem"]["found"] == "mode 0644"
    assert key == ""
    path.chmod(0o600)
    assert read_served_key(questions) == ({"problem": None}, KEY)


# --- the box ----------------------------------------------------------------------------------------


def test_who_listens_where() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        assert listening(port) == []
        one.listen()
        assert listening(port) == ["127.0.0.1"]
    with socket.create_server(("", 0)) as every:
        assert listening(every.getsockname()[1]) == ["0.0.0.0"]


def test_who_listens_on_ipv6(tmp_path: Path) -> None:
    # As the kernel writes it: ::1 and :: on port 8000, the second one not listening.
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp6").write_text(
        "  sl  local_address remote_address st\n"
        "   0: 00000000000000000000000001000000:1F40 00000000000000000000000000000000:0000 0A\n"
        "   1: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 01\n"
        "   2: 0000000000000000FFFF00000100007F:1F40 00000000000000000000000000000000:0000 0A\n"
    )
    assert listening(8000, str(tmp_path)) == ["127.0.0.1", "::1"]


def test_no_key_of_another_program_is_shown(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(
        "import socket, time\none = socket.create_server(('127.0.0.1', 0))\n"
        "print(one.getsockname()[1], flush=True)\ntime.sleep(60)\n"
    )
    words = [sys.executable, str(tmp_path / "serve.py"), "--api-key", "anothers-key"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            port = int(other.stdout.readline())
            given: Any = {"parts": ["box"], "sys": "/sys", "proc": "/proc", "timeout_s": 60, "prove_container": False}
            facts = read(at(port, tmp_path), {**given, "firewall": False})
            # What every play knows of the box, and a support bundle has in it.
            (known,) = read_box([], [port], str(tmp_path / "none"))["ports"].values()
        finally:
            other.kill()
    who = facts["box"]["ports"][str(port)]
    assert (who["pid"], who["ours"]) == (other.pid, False)
    assert who["command"].endswith("serve.py --api-key (secret)")
    assert "anothers-key" not in json.dumps([facts, known])
    assert known == who


def test_whether_the_watchdog_runs_and_when_it_last_looked(tmp_path: Path) -> None:
    questions = at(8000, tmp_path, watchdog={"mode": "report"})
    folder = tmp_path / "watchdog"

    def look() -> Any:
        given: Any = {"parts": ["server"], "sys": "/sys", "proc": "/proc", "timeout_s": 60, "prove_container": False}
        return read(questions, {**given, "firewall": False})["watchdog"]

    assert look() == {"runs": False, "written": None}
    folder.mkdir()
    (folder / "state.json").write_text("{}")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look() == {"runs": True, "written": (folder / "state.json").stat().st_mtime}
    assert look()["runs"] is False


def test_a_prometheus_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafthouse.operate.doctor.collect._MONITORING_S", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        questions = at(8000, tmp_path, monitoring={"enabled": True, "port": min(closed.getsockname()[1], 65531)})
        given: Any = {"parts": ["server"], "sys": "/sys", "proc": "/proc", "timeout_s": 60, "prove_container": False}
        facts = read(questions, {**given, "firewall": False})
    assert facts["unread"] == {}
    assert facts["monitoring"]["problem"]["found"].startswith(
        f"Prometheus at {questions['monitoring']['prometheus']}: "
    )
    assert facts["monitoring"]["problem"]["do"] == "read `make logs ONLY=prometheus`"


def test_knocking(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        doors = [
            {"address": "127.0.0.1", "port": one.getsockname()[1], "is": n} for n, one in enumerate((here, closed))
        ]
        first, second = probe_ports(doors)
    assert first == {**doors[0], "answers": True, "source": "127.0.0.1"}
    assert second == {**doors[1], "answers": False, "source": "127.0.0.1"}
    (nowhere,) = probe_ports([{"address": "no.such.name.invalid", "port": 1}])
    assert (nowhere["answers"], nowhere["source"]) == (False, "")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Two verified files in a folder, with their note."""
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    for name in ("a.safetensors", "config.json"):
        (folder / name).write_text(name)
    files = {path.name: note_entry(path, "00", None) for path in folder.iterdir()}
    write_note(folder, Note("m", "org/m", "main", "c0ffee", complete=True, files=files))
    return folder


def test_weights_as_they_were_verified_and_not(weights: Path) -> None:
    folder = weights
    assert read_weights(folder) == {
        "there": True, "link": "", "files": 2, "changed": [], "complete": True,
        "repo": "org/m", "asked": "main", "commit": "c0ffee",
    }  # fmt: skip
    accessed = (folder / "a.safetensors").stat().st_atime_ns
    with (folder / "a.safetensors").open("a") as stream:
        stream.write("x")
    assert read_weights(folder)["changed"] == ["a.safetensors"]
    (folder / "config.json").unlink()
    assert read_weights(folder)["changed"] == ["a.safetensors", "config.json"]
    assert (folder / "a.safetensors").stat().st_atime_ns == accessed
    (folder.parent / "m.drafthouse.json").unlink()
    assert read_weights(folder)["files"] == 0


def test_a_whole_look_at_this_machine_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    before = sorted(home.rglob("*"))
    given: Any = {
        "parts": [],
        "sys": "/sys",
        "proc": "/proc",
        "timeout_s": 60,
        "prove_container": False,
        "firewall": True,
    }
    with served(Engine()) as port:
        resolved = profile_at(port, home)
        facts = read(asked(resolved), given)
    assert sorted(home.rglob("*")) == before
    assert facts["unread"] == {}
    assert json.loads(json.dumps(facts)) == facts
    facts["outside"] = {"doors": [], "why": "nobody"}
    checks = {check.name: check for check in diagnose(resolved, facts)}
    assert checks["disk"].status in (OK, "warn")
    assert checks["served"].status == FAIL
    assert checks["API key"].status == FAIL
    # This very test holds the port, and is none of ours. Its command line is shown without what is secret in it.
    assert checks["ports from inside"].status == FAIL
    assert f"pid {os.getpid()}" in checks["ports from inside"].found
