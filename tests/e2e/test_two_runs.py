"""Two runs at once on one home: the second is refused at once, says who works there, and changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from drafthouse.core.run_lease import lease_file, read_lease, this_machine
from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import BIN, Ended, play, quick
from tests.support.programs import needs
from tests.support.sshd import running_sshd

PROFILE = "cpu-smollm2-ngram"
# What a run does first, and then something long.
WORKS = """\
- hosts: all
  gather_facts: false
  tasks:
    - drafthouse.core.resolve:
    - drafthouse.core.one_run: {resolved: "{{ drafthouse_profile }}", phase: measuring, make: true}
    - ansible.builtin.wait_for: {path: "{{ drafthouse_profile.site.home }}/over", timeout: 900}
    - ansible.builtin.debug: {msg: "the first run has ended well"}
"""


def variables(folder: Path) -> dict[str, object]:
    return {
        "profile": PROFILE,
        "drafthouse_home": str(folder / "home"),
        "drafthouse_models_dir": str(folder / "models"),
    }


def entries(folder: Path) -> dict[str, int]:
    """Every file of a home and when it was changed; the signs of life of the run that works there left out."""
    return {
        str(path): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("lease.json", "over")
    }


@contextmanager
def working(folder: Path, inventory: str = "inventory/local") -> Iterator[subprocess.Popen[str]]:
    """A run that works on the home of ``folder`` until the file `over` is there."""
    playbook = folder / "works.yml"
    playbook.write_text(WORKS)
    words = [
        str(BIN / "ansible-playbook"),
        *str(playbook).split(),
        "-i",
        inventory,
        "-e",
        json.dumps(variables(folder)),
    ]
    environment = {
        **os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    lease = Path(lease_file(str(folder / "home")))
    try:
        end = time.monotonic() + 120
        while not lease.exists() or not (held := read_lease(lease.read_text())) or held.pid != process.pid:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def second(folder: Path, playbook: str = "site.yml", inventory: str = "inventory/local") -> Ended:
    return play(playbook, inventory=inventory, **variables(folder))


def test_the_second_is_refused_and_the_first_unaffected(tmp_path: Path, figure: Callable[[str], None]) -> None:
    with working(tmp_path) as first:
        before = entries(tmp_path / "home")
        refused = second(tmp_path)
        assert refused.status != 0
        assert refused.changed == 0
        (found,) = refused.lines("found")
        assert found.startswith(
            f"found: another run is working on this box: {PROFILE}, at: measuring (pid {first.pid} on"
        )
        assert refused.lines("needed") == [f"needed: one run at a time on {tmp_path}/home"]
        assert f"kill -INT {first.pid}" in refused.lines("do")[0]
        assert entries(tmp_path / "home") == before
        figure(f"{found}; after {refused.seconds:.1f} s")
        # One that is only stopped (Ctrl-Z, a lid) may go on, and is no orphan.
        os.kill(first.pid, signal.SIGSTOP)
        assert second(tmp_path, "site.yml --tags settle").lines("found") == [found]
        os.kill(first.pid, signal.SIGCONT)
        (tmp_path / "home" / "over").touch()
        said, _ = first.communicate(timeout=600)
        assert first.returncode == 0, said
        assert "the first run has ended well" in said
    assert second(tmp_path, "site.yml --tags settle").status == 0


@pytest.mark.soak
def test_a_run_that_was_killed_holds_nobody_up(tmp_path: Path) -> None:
    with working(tmp_path) as first:
        first.kill()
        first.wait()
        ended = second(tmp_path, "site.yml --tags settle")
        assert ended.status == 0
        assert quick(ended.seconds, 15)


@needs("ssh", "ssh-keygen", "unshare")
@pytest.mark.soak
def test_over_ssh_a_run_of_another_machine_is_known_by_its_signs_of_life() -> None:
    with running_sshd(shell=True) as sshd, tempfile.TemporaryDirectory(prefix="dh-two-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        hosts = folder / "hosts.yml"
        words = {
            "ansible_host": "127.0.0.1", "ansible_port": sshd.port, "ansible_user": sshd.user,
            "ansible_ssh_private_key_file": str(sshd.key), "ansible_remote_tmp": f"{folder}/tmp",
            "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
        }  # fmt: skip
        hosts.write_text(json.dumps({"all": {"hosts": {"box": words}}}))
        site = yaml.safe_load((ROOT / "inventory" / "local" / "group_vars" / "all.yml").read_text())
        (folder / "group_vars").mkdir()
        (folder / "group_vars" / "all.yml").write_text(
            yaml.safe_dump({k: v for k, v in site.items() if k not in ("ansible_connection", "ansible_remote_tmp")})
        )
        with working(folder, str(hosts)) as first:
            lease = Path(lease_file(str(folder / "home")))
            before = lease.stat().st_mtime_ns
            end = time.monotonic() + 120
            while lease.stat().st_mtime_ns == before:
                assert time.monotonic() < end and first.poll() is None
                time.sleep(0.1)
            # As another machine's run leaves it: nobody here can ask for its process.
            lease.write_text(lease.read_text().replace(this_machine(), "another machine"))
            refused = second(folder, "site.yml --tags settle", str(hosts))
            assert refused.lines("found")[0].startswith(
                f"found: another run is working on this box: {PROFILE}, at: measuring"
            )
            assert "Ctrl-C there" in refused.lines("do")[0]
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
            assert second(folder, "site.yml --tags settle", str(hosts)).status == 0
