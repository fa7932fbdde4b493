"""The server that behaves as vast.ai's, with a real rented container behind each instance, and a person before it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from drafthouse.cloud.vast.local_state import key_file
from drafthouse.profiles.workspace import ROOT
from tests.fakes.vast_market import offer
from tests.fakes.vast_server import SECOND_KEY, Instance, Running, vast_server
from tests.hosts.hosts import BIN, Host, Lab
from tests.support.tales import BESIDE_OTHERS

# A GPU that is rented out, and what is run on it: this machine has none, and what stands behind the offer neither.
RENTED_FOR = "rtx4090-llama32-llamacpp-draft1b"
PROFILE = "cpu-smollm2-ngram"
HOME = "/workspace/drafthouse"
WATCH = "/var/lib/drafthouse/deadline"
# Made anew each time, as the account's key is: no file of the clone has them.
HF_TOKEN = f"hf_{secrets.token_hex(17)}"
STEP_S = 2700.0
PATIENCE_S = 1800.0


@dataclass
class Done:
    """A command that has ended."""

    status: int
    output: str
    seconds: float


@dataclass
class Cloud:
    """A market whose instances are containers of ``lab``; ``folder`` is the person's."""

    lab: Lab
    folder: Path
    boxes: dict[int, Host] = field(default_factory=dict)
    said: str = ""
    """What the last `make rent` printed."""
    _exit: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Cloud:
        self.lab.images.image("rental")  # before anybody waits for a box
        key = f"vk-{secrets.token_hex(20)}"
        self.vast: Running = self._exit.enter_context(
            vast_server(host="0.0.0.0", on_create=self._start, on_destroy=self._remove, keys=(key, SECOND_KEY))
        )
        self.vast.key = key
        for number in (8500001, 8500002, 8500003):
            row = offer(number, gpu_name="RTX 4090", gpu_ram=24564, compute_cap=890, dph_base=0.3)
            self.vast.market.offers[number] = row
        self.url = f"http://{self.lab.gateway}:{self.vast.port}"
        self.state = self.folder / "state"
        self.reports = self.folder / "reports"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()
        for box in list(self.boxes.values()):
            box.remove()

    # --- what happens at the platform --------------------------------------------------------------------

    def _start(self, instance: Instance) -> Mapping[str, Any]:
        """Make the container that an instance is, and show what is reached of it; what went wrong, else."""
        try:
            return self._started(instance)
        except Exception as error:
            # Whoever waits for it is told; a thread's error is seen by nobody.
            return {"actual_status": "exited", "status_msg": f"the test's container: {error}"}

    def _started(self, instance: Instance) -> Mapping[str, Any]:
        """Start it with what the platform gives it, and run its start script."""
        number = int(instance.row["id"])
        registered = self.vast.market.ssh_keys.get(instance.owner, [])
        given = {name: value for name, value in (instance.body.get("env") or {}).items() if not name.startswith("-")}
        box = self.lab.start(
            "rental",
            f"vast-{number}",
            environment={
                **given,
                "CONTAINER_ID": str(number),
                "CONTAINER_API_KEY": instance.container_key,
                "VAST_TCP_PORT_22": "22",
                "VAST_TCP_PORT_8443": "8443",
                "VAST_CONTAINERLABEL": f"C.{number}",
                "JUPYTER_TOKEN": "jupyter-token-of-the-platform",
            },
            keys="".join(f"{key['key']}\n" for key in registered).encode(),
        )
        self.boxes[number] = box
        if script := instance.body.get("onstart"):
            box.exec("bash", "-c", script)
        ports = {f"{port}/tcp": [{"HostIp": "0.0.0.0", "HostPort": port}] for port in ("22", "8443")}
        return {"public_ipaddr": box.ip4, "ports": ports, "ssh_host": box.ip4, "ssh_port": 22}

    def _remove(self, instance: Instance) -> None:
        if box := self.boxes.pop(int(instance.row["id"]), None):
            box.remove()

    def dies(self, number: int) -> None:
        """End a box as a machine that fails: it answers no more, and the platform says so."""
        self.boxes[number].container.kill()
        with self.vast.lock:
            instance = self.vast.market.instances[number]
            instance.life.dies_after, instance.life.dies_as = 0, "exited"

    # --- what a person does ------------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """The person's environment."""
        return {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "VAST_API_KEY": self.vast.key,
            "VAST_URL": self.url,
            "DRAFTHOUSE_STATE": str(self.state),
            "HF_TOKEN": HF_TOKEN,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PRIVATE_KEY_FILE": str(self.lab.key),
            # Shared connections end with the lab, and what the inventory keeps is searched with the rest.
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.lab.folder / "cp"),
            "ANSIBLE_INVENTORY_CACHE_CONNECTION": str(self.folder / "cache"),
        }

    def run(self, *words: str, timeout: float = STEP_S) -> Done:
        """Run a command in the clone's root."""
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        print(f"$ {' '.join(words)}\n{done.stdout}")
        return Done(done.returncode, done.stdout, time.monotonic() - began)

    def rent(self) -> int:
        """Run `make rent`; return the number of the instance."""
        (number,) = self.rent_all("MAX_PRICE=0.80")
        return number

    def rent_all(self, *words: str, status: int = 0) -> list[int]:
        """Run `make rent` with these words; return the numbers of the instances that are there then, in order."""
        before = set(self.vast.ours)
        more = f"--ssh-key {self.lab.key}.pub --poll-s 0.2 --wait-min 5"
        done = self.run("make", "rent", f"PROFILE={RENTED_FOR}", "HOURS=2", "YES=1", *words, f"ARGS={more}")
        assert done.status == status, done.output
        self.said = done.output
        return sorted(set(self.vast.ours) - before)

    def play(self, playbook: str, *words: str, before: tuple[str, ...] = (), **variables: Any) -> Done:
        """Run a playbook with the inventory as it is in the clone."""
        # The lane's other tests are neighbours that do not end.
        given = {"profile": PROFILE, "overrides": BESIDE_OTHERS, "benchmark_wait_s": 0}
        given |= {"report_folder": str(self.reports), **variables}
        command = ("ansible-playbook", *playbook.split(), "-i", "vastai", "-e", json.dumps(given), *words)
        return self.run(*before, *command)

    @property
    def key_file(self) -> Path:
        """Where the controller keeps the API key."""
        return key_file(PROFILE, self.state)

    @property
    def api_key(self) -> str:
        """The API key that the controller keeps."""
        return self.key_file.read_text().strip()

    def journal(self, number: int) -> list[str]:
        """What the watch over a box's deadline has written there."""
        text = self.boxes[number].exec("cat", f"{WATCH}/journal.jsonl", check=False).stdout
        return [json.loads(line)["what"] for line in text.splitlines()]


def recap(output: str, host: str) -> dict[str, int]:
    """Ansible's counts of a host."""
    (line,) = re.findall(rf"^{re.escape(host)}\s+: (.*)$", output, re.MULTILINE)[-1:]
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}
