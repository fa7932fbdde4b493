"""The archive of the programs that outlive a run on a box."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from drafthouse.core import box_archive
from drafthouse.core.box_archive import archive, archive_file, needed_by

# Of the controller: what a box's programs have no use for.
ELSEWHERE = ("cli", "cloud", "experiment", "host", "prompts", "report", "translate", "tuning", "weights")


@pytest.fixture
def lain(tmp_path: Path) -> Path:
    """The archive, alone in an empty folder."""
    name, data = archive()
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it without site packages, environment variables and the folder that it is started in."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(file), *words],
        cwd=file.parent, env={}, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip


@pytest.mark.processes
def test_the_same_sources_are_the_same_archive() -> None:
    name, data = archive()
    archive.cache_clear()
    assert archive() == (name, data)
    # Another process, with another hash seed.
    code = "from drafthouse.core.box_archive import archive; print(archive()[0])"
    environment = {"PYTHONPATH": str(box_archive.LIBRARY.parent), "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name
    assert re.fullmatch(r"drafthouse-[0-9a-f]{12}\.pyz", name)
    assert hashlib.sha256(data).hexdigest().startswith(name[11:23])
    assert archive_file("/w") == f"/w/{name}"


def test_other_sources_are_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive()[0]
    archive.cache_clear()
    texts = needed_by([box_archive._PROGRAMS])
    monkeypatch.setattr(box_archive, "needed_by", lambda _: {**texts, "core/locks.py": "# another\n"})
    assert archive()[0] != before
    archive.cache_clear()


def test_it_holds_what_is_imported_and_nothing_else() -> None:
    with zipfile.ZipFile(io.BytesIO(archive()[1])) as file:
        names = file.namelist()
        assert names == sorted(names)
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        texts = {name: file.read(name).decode() for name in names if name != "__main__.py"}
    assert {"drafthouse/addons/watchdog/run.py", "drafthouse/serving/restore.py",
            "drafthouse/serving/rollback_guard.py"} <= set(texts)  # fmt: skip
    assert not [name for name in texts if name.split("/")[1].removesuffix(".py") in ELSEWHERE]
    imported = {"drafthouse.operate.box_programs"}
    for name, text in texts.items():
        folder = name.removesuffix(".py").split("/")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = ".".join([*folder[: -node.level], *([node.module] if node.module else [])])
                imported |= {base, *(f"{base}.{one.name}" for one in node.names)}
    files = [name for name in texts if not name.endswith("__init__.py")]
    assert {name.removesuffix(".py").replace("/", ".") for name in files} <= imported


@pytest.mark.processes
@pytest.mark.parametrize("program", ["watchdog", "restore", "guard"])
def test_each_program_says_what_it_does(lain: Path, program: str) -> None:
    done = run(lain, program, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: drafthouse {program}")


@pytest.mark.processes
def test_where_nothing_should_serve_nothing_is_done(lain: Path) -> None:
    home = lain.parent / "home"
    (home / "run").mkdir(parents=True)
    for program in ("restore", "guard"):
        done = run(lain, program, str(home))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run(lain).returncode == run(lain, "serve", str(home)).returncode == 2
