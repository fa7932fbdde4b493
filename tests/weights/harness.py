"""The real module, started as Ansible starts it on a box, against the tests' hub; and a look at what lies there."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.hub_contents import Content, as_content, data_of, etag_of
from tests.fakes.hub_server import COMMIT, Hub

ROOT = Path(__file__).parents[2]
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
OTHER = "b" * 40  # another commit


def safetensors(name: str, size: int, seed: int) -> bytes:
    """A file in the format: one tensor of ``size`` random bytes."""
    head = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + random.Random(seed).randbytes(size)


def a_model(first: int = 4_000_000, second: int = 1_500_000) -> dict[str, Content | bytes]:
    """A small model as the hub holds one: two shards that agree with their index, and small files."""
    index = {"metadata": {"total_size": first + second}, "weight_map": {"a": FIRST, "b": SECOND}}
    return {
        "config.json": b'{"model_type": "llama"}\n',
        FIRST: safetensors("a", first, 1),
        SECOND: safetensors("b", second, 2),
        INDEX: json.dumps(index).encode(),
        "original/params.json": b"{}\n",
    }


@dataclass
class Done:
    """What a run of the module came to."""

    returned: int
    result: dict[str, Any]
    text: str  # stdout and stderr
    seconds: float

    @property
    def problems(self) -> str:
        """What the user reads, a fact a line."""
        problems = self.result.get("problems", [])
        words = [f"{key}: {one[key]}" for one in problems for key in ("where", "found", "needed", "do") if one[key]]
        return "\n".join(words)

    @property
    def in_short(self) -> str:
        """The same without the places, each line once: where several files fail, which of them is chance."""
        return "\n".join(dict.fromkeys(line for line in self.problems.splitlines() if not line.startswith("where: ")))

    @property
    def notes(self) -> list[str]:
        """Lines for a person."""
        return [str(line) for line in self.result.get("notes", [])]


@dataclass
class Job:
    """One call of the module ``hf_snapshot``: repository, destination, options."""

    hub: Hub
    dest: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    check_mode: bool = False
    module: str = "hf_snapshot"
    before: tuple[str, ...] = ()  # words that start it, such as ip netns exec

    def start(self) -> subprocess.Popen[str]:
        """Start it; in a session of its own, so that a kill meets it alone."""
        base = {"repo": self.hub.repo, "revision": COMMIT, "dest": str(self.dest), "endpoint": self.hub.url}
        quick = {"stall_s": 20, "tries": 3}  # a machine that stands still for seconds is no silent server
        arguments = {**base, **quick, **self.options, "_ansible_check_mode": self.check_mode}
        arguments = {key: value for key, value in arguments.items() if value is not None}
        name = f"ansible_collections.drafthouse.core.plugins.modules.{self.module}"
        words = [*self.before, sys.executable, "-m", name]
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(self.dest.parent / "hf") | dict(self.environment),
            start_new_session=True,
        )
        assert child.stdin
        child.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        child.stdin.close()
        child.stdin = None
        return child

    def run(self, timeout: float = 300) -> Done:
        """Run it to its end."""
        begun = time.monotonic()
        return done(self.start(), begun, timeout)


def done(child: subprocess.Popen[str], begun: float, timeout: float = 300) -> Done:
    """Wait for a started module, and read its answer."""
    try:
        said, complained = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        said, complained = child.communicate()
        raise AssertionError(f"it hung for {timeout} s:\n{said}\n{complained}") from None
    text = said + complained
    assert "Traceback" not in text, text
    [line] = [line for line in said.splitlines() if line.startswith("{")] or ["{}"]
    return Done(child.returncode, json.loads(line), text, time.monotonic() - begun)


def clean_environment(home: Path) -> dict[str, str]:
    """An environment without anybody's token, mirror or proxy."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not re.match(r"HF_|HUGGING|https?_proxy|all_proxy", key, re.I)
    }
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "collections"), str(ROOT)])
    return {**kept, "PYTHONPATH": paths, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "LC_ALL": "C.UTF-8"}


# --- what lies there ------------------------------------------------------------------------------------------


def note_of(dest: Path) -> dict[str, Any]:
    """The note of what was verified, or nothing."""
    path = dest.with_name(f"{dest.name}.drafthouse.json")
    note = json.loads(path.read_text()) if path.exists() else {}
    assert isinstance(note, dict)
    return note


def lying(dest: Path) -> set[str]:
    """What lies in the destination, hidden files too, by its path below it."""
    return {str(path.relative_to(dest)) for path in dest.rglob("*") if path.is_symlink() or not path.is_dir()}


def wrong_names(dest: Path, *revisions: Mapping[str, Content | bytes]) -> list[str]:
    """The files that lie under their own name with bytes that no revision gave them."""
    wrong = []
    for name in sorted({name for files in revisions for name in files}):
        path = dest / name
        if path.is_file() and not path.is_symlink():
            allowed = [data_of(files[name]) for files in revisions if name in files]
            wrong += [] if path.read_bytes() in allowed else [name]
    return wrong


def right_names(dest: Path, files: Mapping[str, Content | bytes]) -> set[str]:
    """The files that lie there with the right bytes."""
    return {name for name in files if (dest / name).is_file()} - set(wrong_names(dest, files))


def assert_never_wrong(dest: Path, *revisions: Mapping[str, Content | bytes]) -> None:
    """No file lies under its own name with wrong bytes, whatever happened."""
    assert wrong_names(dest, *revisions) == []


def assert_right(dest: Path, files: Mapping[str, Content | bytes]) -> None:
    """Exactly these files lie there, with these bytes, and nothing of the work is left."""
    assert lying(dest) == set(files)
    assert_never_wrong(dest, files)
    noted = note_of(dest)
    assert set(noted["files"]) == set(files)
    assert noted["complete"] is True


def in_words(dest: Path, files: Mapping[str, Content | bytes]) -> str:
    """Say what lies in the destination, for the table of tests/weights/faults.md: the same on every machine and run."""
    there = lying(dest) if dest.is_dir() else set()
    if not there:
        return "nothing"
    keys = {etag_of(name, content) for name, content in files.items()}
    # Planted links and parts that are none do not count as ours; which files were under way differs from run to run.
    ours = {name for name in there if not (dest / name).is_symlink() and not (dest / name).parent.is_symlink()}
    parts = {name for name in ours if name.endswith(".part") and Path(name).stem in keys}
    right = {name for name in ours if name in files}
    words = ["all files" if right == set(files) else "verified files, and parts of the others" if right | parts else ""]
    words += sorted(f"`{name}`" + (" (the link)" if name not in ours else "") for name in there - parts - right)
    return in_order(", ".join(word for word in words if word))


def in_order(words: str) -> str:
    """Let a part that is a planted link be called that, whatever its hash."""
    return re.sub(r"[0-9a-f]{64}", "<sha256>", words)


def total(files: Mapping[str, Content | bytes]) -> int:
    """The bytes of all files."""
    return sum(as_content(content).size for content in files.values())
