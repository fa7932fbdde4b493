"""Hosts of a fleet on this machine: network namespaces on a bridge, each with a home of its own. Needs root.

Ansible reaches them by nsenter. They share this machine's files, so the engine and the weights are installed once, from
outside; what serves is started inside, where only the bridge leads to it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.addons.fleet.traffic import order_of
from drafthouse.bench.foreign_traffic import parse_traffic
from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import BIN, Ended, play
from tests.support.gateway import real_caddy
from tests.support.programs import missing

PORT, GATEWAY_PORT, FRONT_PORT = 8000, 8443, 8444
MODEL = "fleet"
#: What site.yml does between the host and the fleet, without the measurement.
_BOOK = """\
- name: Boxes
  hosts: all
  gather_facts: false
  tags: [always]
  vars:
    _resolved: "{{ drafthouse_profile | combine(drafthouse_run, {'box': drafthouse_box}) }}"
  tasks:
    - name: Gather box facts and resolve the profile
      drafthouse.core.resolve:
    - name: Copy the programs that outlive a run to the box
      ansible.builtin.include_role: {name: box_env, tasks_from: programs}
      vars: {box_env_home: "{{ drafthouse_profile.site.home }}"}
    - name: Configure the fleet's key
      ansible.builtin.include_tasks: {file: ROOT/playbooks/tasks/fleet_key.yml, apply: {tags: [always]}}
      vars: {_boxes_are_rented: "{{ drafthouse_run.rented is not none or drafthouse_run.rented_vm }}"}
    - name: Start the arm
      ansible.builtin.include_role: {name: serve, apply: {tags: [always]}}
      vars:
        serve_resolved: "{{ _resolved }}"
        serve_arms: {speculative: 8000}
    - name: Configure the gateway
      ansible.builtin.include_tasks: {file: ROOT/playbooks/tasks/gateway.yml, apply: {tags: [always]}}
      vars: {_gateway_state: started}
    - name: Configure the replica
      ansible.builtin.include_tasks: {file: ROOT/playbooks/tasks/replica.yml, apply: {tags: [always]}}
      vars: {_replica_state: started}
"""


@dataclass
class Node:
    """A network namespace, and its address on the bridge."""

    name: str
    address: str
    pid: int

    def run(self, *argv: str) -> str:
        """Run a command inside; return what it prints. Raises CalledProcessError."""
        words = ["ip", "netns", "exec", self.name, *argv]
        return subprocess.run(words, capture_output=True, text=True, timeout=300, check=True).stdout


@contextmanager
def nodes(number: int) -> Iterator[list[Node]]:
    """Make so many hosts on one bridge, and a way there from here; skips by name where that cannot be had.

    The bridge has a namespace of its own: Docker's rules, where it runs, would drop what crosses one of this machine.
    """
    if os.geteuid() != 0 or missing("ip"):
        pytest.skip("network namespaces need root and ip (apt-get install iproute2)")
    mark = f"dhf{os.getpid() % 100_000}"
    net = f"10.{77 + os.getpid() % 100}.7"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], capture_output=True, timeout=60, check=True)

    def host(name: str) -> Node:
        try:
            ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr.decode().strip()}")
        stack.callback(ip, "netns", "del", name)
        holder = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "infinity"])
        stack.callback(holder.wait, 60)
        stack.callback(holder.kill)
        return Node(name, "", holder.pid)

    with ExitStack() as stack:
        switch = host(f"{mark}-0")
        switch.run("ip", "link", "add", "hub", "type", "bridge")
        switch.run("ip", "link", "set", "hub", "up")
        made = []
        for at in range(1, number + 1):
            node = replace(host(f"{mark}-{at}"), address=f"{net}.{at}")
            switch.run("ip", "link", "add", f"to{at}", "type", "veth", "peer", "name", "eth0", "netns", node.name)
            switch.run("ip", "link", "set", f"to{at}", "master", "hub", "up")
            node.run("ip", "addr", "add", f"{node.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                node.run("ip", "link", "set", device, "up")
            made.append(node)
        ip("link", "add", mark, "type", "veth", "peer", "name", "here", "netns", switch.name)
        stack.callback(ip, "link", "del", mark)
        switch.run("ip", "link", "set", "here", "master", "hub", "up")
        ip("addr", "add", f"{net}.254/24", "dev", mark)
        ip("link", "set", mark, "up")
        yield made


@dataclass
class Stream:
    """A streamed answer as a client saw it."""

    status: int = 0
    asked: float = 0.0
    begun: float | None = None
    text: str = ""
    error: str = ""

    @property
    def whole(self) -> bool:
        """Whether it came to its end: a stream without [DONE] is a failure."""
        return self.status == 200 and self.text.rstrip().endswith("data: [DONE]")


@dataclass
class Lab:
    """A fleet that serves: ``boxes`` and a ``stranger`` beside them."""

    boxes: list[Node]
    stranger: Node
    folder: Path
    inventory: Path
    book: Path
    played: list[Ended] = field(default_factory=list)

    def home(self, box: Node) -> Path:
        return self.folder / f"box{self.boxes.index(box) + 1}"

    @property
    def key(self) -> str:
        return (self.home(self.boxes[0]) / "secrets" / "api_key").read_text().strip()

    def play(self, playbook: str, *words: str, **variables: Any) -> Ended:
        return play(playbook, *words, inventory=str(self.inventory), **variables)

    def command(self, *words: str, ansible: tuple[str, ...] = (), status: int = 0) -> str:
        """Run `drafthouse fleet ...` as a person does, with ``ansible`` after --; what it printed."""
        line = [str(ROOT / "scripts" / "drafthouse"), "fleet", *words, "--inventory", str(self.inventory)]
        line += ["--", *ansible] if ansible else []
        done = subprocess.run(line, capture_output=True, text=True, timeout=2400, check=False)
        print(done.stdout[-8000:], done.stderr[-2000:])
        assert done.returncode == status, done.stdout[-8000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    def ask(self, tokens: int = 48, key: str = "", stream: Stream | None = None) -> Stream:
        """Ask the front for a stream; never raises for what the network does."""
        stream = stream or Stream()
        trust = ssl.create_default_context(cafile=str(self.folder / "state" / "gateway" / "fleet-box1.pem"))
        said = [{"role": "user", "content": "Count slowly from one to one hundred, one number a line."}]
        body = {"model": MODEL, "stream": True, "max_tokens": tokens, "ignore_eos": True, "messages": said}
        request = urllib.request.Request(
            f"https://{self.boxes[0].address}:{FRONT_PORT}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"},
        )
        stream.asked = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=300, context=trust) as answer:
                stream.status = answer.status
                for line in answer:
                    stream.begun = stream.begun or time.monotonic()
                    stream.text += line.decode()
        except urllib.error.HTTPError as error:
            stream.status, stream.error = error.code, error.read().decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            stream.error = f"{type(error).__name__}: {error}"
        except Exception as error:  # http.client's own: the answer broke off
            stream.error = f"{type(error).__name__}: {error}"
        return stream

    def ask_many(self, number: int, tokens: int = 48) -> tuple[list[threading.Thread], list[Stream]]:
        """Ask so many things at once."""
        streams = [Stream() for _ in range(number)]
        threads = [
            threading.Thread(target=self.ask, kwargs={"tokens": tokens, "stream": one}, daemon=True) for one in streams
        ]
        for thread in threads:
            thread.start()
        return threads, streams

    def made(self, box: Node) -> float:
        """The tokens that a box's engine has made since its start, by its own counter."""
        order = order_of(self.home(box))
        words = ["curl", "--silent", "--fail", "--header", f"Authorization: Bearer {self.key}"]
        return parse_traffic(box.run(*words, order["base_url"] + order["metrics_path"]))["output_tokens"]

    def calm(self) -> bool:
        """Whether every box is ready, and the front remembers no failure of one."""
        socket = self.home(self.boxes[0]) / "fleet" / "gateway" / "data" / "admin" / "admin.sock"
        counts = self.boxes[0].run(
            "curl", "--silent", "--unix-socket", str(socket), "http://127.0.0.1/reverse_proxy/upstreams"
        )
        return all(self.ready(box) == 200 for box in self.boxes) and not any(one["fails"] for one in json.loads(counts))

    def ready(self, box: Node) -> int:
        """What a box's own gateway says at /ready."""
        words = ["curl", "--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"]
        return int(box.run(*words, f"https://127.0.0.1:{GATEWAY_PORT}/ready"))

    def engine_pid(self, box: Node) -> int:
        """The process of a box's engine, as its supervisor knows it."""
        from drafthouse.serving.supervisor import Supervisor

        return int(Supervisor(self.home(box) / "supervisor").programs()["speculative"]["pid"])

    def log(self, box: Node) -> str:
        return (self.home(box) / "gateway" / "logs" / "gateway.log").read_text()


def until(true: Callable[[], bool], seconds: float = 240) -> None:
    """Wait until something is true. Raises AssertionError."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.2)


@contextmanager
def fleet(profile: str, overrides: dict[str, Any]) -> Iterator[Lab]:
    """Three boxes that serve a profile behind a front, and a fourth host; what was started is stopped at the end."""
    kept = ROOT / ".cache" / "fleet" / profile
    kept.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        *boxes, stranger = stack.enter_context(nodes(4))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dhf-")))
        site: dict[str, Any] = {
            "profile": profile,
            "overrides": overrides,
            "drafthouse_manage_host": False,
            "drafthouse_runtime": "process",
            "drafthouse_host": "127.0.0.1",
            "drafthouse_port": PORT,
            "drafthouse_models_dir": str(kept / "models"),
            "drafthouse_fleet": {"served_name": MODEL},
            "gateway_binary": real_caddy(),
            "ansible_python_interpreter": str(BIN / "python"),
        }
        # The box's own environment and the engine are installed from outside: a host here has no way to an index.
        with (kept / "lock").open("w") as lock:  # another process of the lane has the same profile
            fcntl.flock(lock, fcntl.LOCK_EX)
            once = play(
                "site.yml",
                "--tags",
                "host,weights",
                **{**site, "drafthouse_home": str(kept / "home")},
                ansible_connection="local",
            )
        assert once.status == 0, once.output[-4000:]
        hosts = {}
        for at, node in enumerate(boxes, 1):
            home = folder / f"box{at}"
            home.mkdir()
            for name in ("uv", "venv", "engines"):
                (home / name).symlink_to(kept / "home" / name)
            # vLLM for CPU takes the first core otherwise, on either box, and the two wait for each other.
            core = {"VLLM_CPU_OMP_THREADS_BIND": str((at - 1) % 2), "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
            words = ["nsenter", "-t", str(node.pid), "-n", "--", "env", *(f"{key}={one}" for key, one in core.items())]
            hosts[f"box{at}"] = {
                "ansible_host": node.address, "netns_enter": shlex.join(words), "drafthouse_home": str(home),
            }  # fmt: skip
        inventory, book = folder / "hosts.yml", folder / "boxes.yml"
        everywhere = {**site, "ansible_connection": "netns"}
        inventory.write_text(yaml.safe_dump({"all": {"vars": everywhere, "hosts": hosts}}))
        book.write_text(_BOOK.replace("ROOT", str(ROOT)))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("DRAFTHOUSE_STATE", str(folder / "state"))
        patch.setenv("ANSIBLE_CONNECTION_PLUGINS", str(ROOT / "tests" / "fleet" / "connection"))
        (folder / "state").mkdir()
        lab = Lab(boxes, stranger, folder, inventory, book)
        stack.callback(lab.play, "playbooks/stop.yml")
        lab.played.append(lab.play(f"{book} site.yml", "--tags", "fleet"))
        assert lab.played[0].status == 0, lab.played[0].output[-4000:]
        yield lab


def ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()


class Load:
    """Requests one after another, in several threads, until it is ended; ``pause_s`` stands between two of a thread."""

    def __init__(self, lab: Lab, threads: int, tokens: int, pause_s: float = 0) -> None:
        self.lab, self.tokens, self.pause_s, self.over = lab, tokens, pause_s, threading.Event()
        self.streams: list[Stream] = []
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def run(self) -> None:
        while not self.over.wait(self.pause_s):
            self.streams.append(self.lab.ask(tokens=self.tokens))

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        ended(self.threads)
