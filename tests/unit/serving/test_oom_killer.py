"""What the kernel says of memory, on cgroup v1 and v2, in containers, and where it says nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drafthouse.serving.oom_killer import Kills, is_out_of_memory, read_kills, why_it_died
from drafthouse.serving.supervisor import Supervisor

KILLED = "killed by signal 9 (SIGKILL)"
# As supervisor 4 writes them.
LOG = """\
2026-11-23 07:20:01,120 INFO spawned: 'baseline' with pid 100
2026-11-23 07:20:09,004 WARN exited: baseline (exit status 1; not expected)
2026-11-23 07:20:10,120 INFO spawned: 'baseline' with pid 101
2026-11-23 07:20:19,004 WARN exited: speculative (terminated by SIGSEGV (core dumped); not expected)
2026-11-23 07:20:29,004 WARN exited: baseline (terminated by SIGKILL; not expected)
2026-11-23 07:20:39,004 WARN stopped: baseline (terminated by SIGTERM)
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (LOG, KILLED),
        (LOG.replace("terminated by SIGKILL", "exit status 137"), KILLED),
        (LOG.replace("terminated by SIGKILL", "exit status 2"), "exit status 2"),
        ("", ""),
    ],
)
def test_how_a_program_ended_stands_in_the_log_of_supervisord(tmp_path: Path, log: str, told: str) -> None:
    (tmp_path / "supervisord.log").write_text(log)
    assert Supervisor(tmp_path).ending("baseline") == told
    assert Supervisor(tmp_path / "none").ending("baseline") == ""


def box(root: Path, version: int, kills: int = 0, machine: int = 0) -> Path:
    """A root with the kernel's files of one process in a group of 512 MiB."""
    own = "user.slice/engine"
    top = root / "sys/fs/cgroup"
    line, folder = ("0::", top / own) if version == 2 else ("4:memory:", top / "memory" / own)
    for place in (root / "proc/7", folder):
        place.mkdir(parents=True, exist_ok=True)
    (root / "proc/7/cgroup").write_text(f"1:cpu:/\n{line}/{own}\n")
    (root / "proc/vmstat").write_text(f"nr_free_pages 1\noom_kill {machine}\n")
    (root / "proc/meminfo").write_text("MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")
    if version == 2:
        (top / "cgroup.controllers").write_text("cpu memory\n")
        files = {
            "memory.events": f"low 0\noom 1\noom_kill {kills}\n",
            "memory.max": "536870912",
            "memory.peak": "1048576",
        }
    else:
        names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        files = {
            "memory.oom_control": f"under_oom 0\noom_kill {kills}\n",
            **dict(zip(names, ("536870912", "1048576"), strict=True)),
        }
    for name, text in files.items():
        (folder / name).write_text(text)
    return root


@pytest.mark.parametrize("version", [1, 2])
def test_a_kill_in_the_engines_own_group(tmp_path: Path, version: int) -> None:
    before = read_kills(7, box(tmp_path, version))
    why = why_it_died(KILLED, before, box(tmp_path, version, kills=1, machine=1))
    assert why == (
        f"{KILLED}, by the kernel's out-of-memory killer (oom_kill of its group rose by 1 and oom_kill of the machine "
        "rose by 1; its group's limit is 512 MiB, its peak use 1 MiB; the machine now has 1,024 of 2,048 MiB free)"
    )
    assert is_out_of_memory(why)


def test_a_kill_of_the_whole_machine_is_very_likely_it(tmp_path: Path) -> None:
    before = read_kills(7, box(tmp_path, 2))
    assert f"{KILLED}, very likely by the kernel's" in why_it_died(KILLED, before, box(tmp_path, 2, machine=1))


def test_the_group_of_a_container_is_what_is_mounted(tmp_path: Path) -> None:
    root = box(tmp_path, 1)
    (root / "proc/7/cgroup").write_text("4:memory:/docker/of-the-host\n")
    top = root / "sys/fs/cgroup/memory"
    (top / "memory.oom_control").write_text("oom_kill 3\n")
    assert read_kills(7, root).group == 3


def test_a_signal_without_a_kill_is_somebody_elses(tmp_path: Path) -> None:
    before = read_kills(7, box(tmp_path, 2))
    why = why_it_died(KILLED, before, tmp_path)
    assert "has not struck" in why
    assert not is_out_of_memory(why)


def test_a_child_that_the_kernel_ended_takes_its_parent_along(tmp_path: Path) -> None:
    """vLLM's core is a process of its own: what supervisord sees is an exit status."""
    before = read_kills(7, box(tmp_path, 2))
    why = why_it_died("exit status 1", before, box(tmp_path, 2, kills=1))
    assert why.startswith("exit status 1, after the kernel's out-of-memory killer had ended a process (")


def test_where_nothing_can_be_read_it_is_a_guess_and_says_so(tmp_path: Path) -> None:
    nothing = read_kills(7, tmp_path)
    assert not nothing.known
    assert "whose counters cannot be read here" in why_it_died(KILLED, nothing, tmp_path)
    assert "(see dmesg)" in why_it_died(KILLED, None, tmp_path)
    assert why_it_died("exit status 1", None, tmp_path) == "exit status 1"
    assert why_it_died("exit status 1", nothing, tmp_path) == "exit status 1"


def test_dockers_own_word_is_enough(tmp_path: Path) -> None:
    why = why_it_died("exit status 137 (OOMKilled)", Kills(0.0, None, None, None), tmp_path)
    assert why.startswith(
        "exit status 137 (OOMKilled), by the kernel's out-of-memory killer (the container engine says"
    )


def test_this_machine_can_be_read() -> None:
    assert read_kills(os.getpid()).machine is not None
    assert read_kills(None).folder is None
