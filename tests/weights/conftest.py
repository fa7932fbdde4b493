"""What the tests of the weights share: the table of tests/weights/faults.md, from what they saw, and small disks."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).with_name("faults.md")
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
HEAD = ["| fault | what the user sees | what is left on disk |", "|---|---|---|"]
_SEEN = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SEEN] = {}


def documented() -> dict[str, str]:
    """The lines of the table in tests/weights/faults.md, by fault."""
    _, _, rest = DOCS.read_text().partition(BEGIN)
    lines = [line for line in rest.partition(END)[0].splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines if line not in HEAD}


def in_general(text: str) -> str:
    """Replace what differs from run to run: ports, folders, times, hashes."""
    text = re.sub(r"https?://127\.0\.0\.1:\d+", "https://huggingface.co", text)
    text = re.sub(r"(/tmp|/mnt|/root|/home|/var)/\S*?/(models|room\d)\b", "/models", text)
    text = re.sub(r"\b([0-9a-f])\1{39}\b", "<commit>", text)
    text = re.sub(r"\b([0-9a-f])\1{11}\b", "<commit>", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "<sha1>", text)
    text = re.sub(r"\b\d[\d,]* of (\d[\d,]*) bytes", r"… of \1 bytes", text)
    return text.replace("|", "\\|").replace("\n", "<br>")


def found(text: str) -> str:
    """What was found, of a message that also says where, what is needed and what to do."""
    return re.sub(r"^where: .*?<br>(?=found: )|<br>needed: .*?<br>do: .*$", "", text)


@pytest.fixture
def row(request: pytest.FixtureRequest) -> Callable[[str, str, str], None]:
    """Compare one line of the table in tests/weights/faults.md with what was seen, or keep it for WRITE_DOCS=1."""

    def check(fault: str, sees: str, left: str) -> None:
        line = f"| {fault} | {found(in_general(sees))} | {in_general(left)} |"
        request.config.stash[_SEEN][fault] = line
        if not os.environ.get("WRITE_DOCS"):
            assert documented().get(fault) == line, "tests/weights/faults.md differs; WRITE_DOCS=1 writes it anew"

    return check


def pytest_sessionfinish(session: pytest.Session) -> None:
    seen = session.config.stash[_SEEN]
    if not os.environ.get("WRITE_DOCS") or not seen:
        return
    from tests.weights.cases import TITLES

    lines = {**documented(), **seen}
    kept = [lines[title] for title in TITLES if title in lines]
    before, _, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text("\n".join([before + BEGIN, *HEAD, *kept, END]) + rest.partition(END)[2])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a small file system in memory (``size=8m``, ``nr_inodes=20``, ``ro``); skips where that is not allowed."""
    made: list[Path] = []

    def mount(options: str) -> Path:
        folder = tmp_path / f"room{len(made)}"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", options, "drafthouse-test", str(folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs the right to mount (root): {done.stderr.strip() or done.stdout.strip()}")
        made.append(folder)
        return folder

    yield mount
    for folder in made:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
