"""Pinned environments. Packages come from wheels made here, so that nothing is asked of an index."""

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host import venv as python_env
from drafthouse.host.env_recipe import TORCH_CPU_INDEX, EnvRecipe, env_commands
from drafthouse.host.env_stamp import STAMP
from drafthouse.host.venv import ensure_env
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

UV = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, version, needs in (
        ("oak", "1.0", []),
        ("oak", "2.0", []),
        ("elm", "1.0", ["oak"]),
        ("ash", "1.0", ["no-such-package"]),
    ):
        make_wheel(folder, name, version, needs)
    # No index at all: a test that passes has used nothing but the folder.
    for variable in ("UV_NO_INDEX", "PIP_NO_INDEX"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


def make_wheel(folder: Path, name: str, version: str, needs: list[str]) -> None:
    info = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {need}\n" for need in needs)
    files = {
        f"{name}.py": f'version = "{version}"\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{file},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}\n"
        for file, text in files.items()
    )
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(file, text)


def version_in(home: Path, name: str) -> str:
    words = [str(home / "bin" / "python"), "-c", f"import {name}; print({name}.version)"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.soak)])
def test_it_is_made_once_and_then_left_alone(tmp_path: Path, wheels: Path, tool: str) -> None:
    uv = UV if tool == "uv" else None
    assert tool == "pip" or uv, "uv belongs into the tests' environment"
    home = tmp_path / "a folder" / "env"
    recipe = EnvRecipe(str(home), ["elm==1.0"], ["ash==1.0"])
    first = ensure_env(recipe, uv, str(wheels))
    assert (first.changed, first.tool) == (True, tool)
    assert version_in(home, "oak") == "2.0"
    assert version_in(home, "ash") == "1.0"
    before = {file: file.stat().st_mtime_ns for file in home.rglob("*")}
    second = ensure_env(recipe, uv, None)  # not even the wheels are needed
    assert not second.changed
    assert second.sha256 == first.sha256
    assert {file: file.stat().st_mtime_ns for file in home.rglob("*")} == before


def test_another_recipe_makes_it_again_without_remains(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    ensure_env(EnvRecipe(str(home), ["elm==1.0"]), UV, str(wheels))
    assert ensure_env(EnvRecipe(str(home), ["oak==1.0"]), UV, str(wheels)).changed
    assert version_in(home, "oak") == "1.0"
    with pytest.raises(subprocess.CalledProcessError):
        version_in(home, "elm")


def test_check_mode_returns_the_commands_and_does_nothing(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    result = ensure_env(EnvRecipe(str(home), ["oak==1.0"]), UV, str(wheels), check=True)
    assert result.changed
    assert result.commands[-1][-1] == "oak==1.0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wheels"]


def test_a_run_that_was_killed_is_made_again(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    recipe = EnvRecipe(str(home), ["oak==1.0"])
    ensure_env(recipe, UV, str(wheels))
    # As after SIGKILL while packages were being written: marker set, no stamp, not even pyvenv.cfg.
    python_env._marker(home).write_text("being made\n")
    (home / STAMP).unlink()
    (home / "pyvenv.cfg").unlink()
    next(home.glob("lib/python3*/site-packages/oak.py")).unlink()
    assert ensure_env(recipe, UV, str(wheels)).changed
    assert version_in(home, "oak") == "1.0"


def test_an_environment_whose_interpreter_is_gone_is_made_again(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    recipe = EnvRecipe(str(home), ["oak==1.0"])
    ensure_env(recipe, UV, str(wheels))
    for link in (home / "bin").glob("python*"):
        link.unlink()
    assert ensure_env(recipe, UV, str(wheels)).changed
    assert version_in(home, "oak") == "1.0"


def test_two_runs_at_once_make_it_once(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    recipe = EnvRecipe(str(home), ["oak==1.0"])
    results = []
    said: list[str] = []

    def make() -> None:
        done = ensure_env(recipe, UV, str(wheels), progress=lambda step, line: said.append(f"{step}: {line}"))
        results.append(done.changed)

    with python_env._marker(home).open("a") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        runs = [threading.Thread(target=make) for _ in range(2)]
        for run in runs:
            run.start()
        end = time.monotonic() + 120
        while len(said) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        assert said == [f"waiting: an earlier run is still making {home}"] * 2
    for run in runs:
        run.join(120)
    assert sorted(results) == [False, True]


def test_a_folder_of_other_files_is_not_deleted(tmp_path: Path, wheels: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with refuses("folder-not-ours"):
        ensure_env(EnvRecipe(str(tmp_path), ["oak==1.0"]), UV, str(wheels))
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_version_that_does_not_exist_is_told(tmp_path: Path, wheels: Path, tool: str) -> None:
    """The daily one of both tools: what pip says, and that it is asked where there is no uv, is seen here."""
    home = tmp_path / "env"
    with pytest.raises(DrafthouseError) as error:
        ensure_env(EnvRecipe(str(home), ["oak==3.0"]), UV if tool == "uv" else None, str(wheels))
    assert "oak==3.0" in str(error.value)
    assert "check that the pinned versions exist" in str(error.value)
    assert not (home / STAMP).exists()


@pytest.mark.parametrize("entry", ["oak", "oak>=1", "oak==1.*", "oak @ https://example.org/oak.whl", "-r x", ""])
def test_only_exact_versions_are_taken(tmp_path: Path, entry: str) -> None:
    with refuses("package-not-pinned"):
        ensure_env(EnvRecipe(str(tmp_path / "env"), [entry]), UV)


@pytest.mark.parametrize(
    "entry",
    ["torch==2.13.0+cpu", "fastapi[standard]==0.133.0", "numpy==2.3.5 ; python_full_version < '3.13'"],
)
def test_exact_versions_of_every_spelling_are_taken(tmp_path: Path, entry: str) -> None:
    assert ensure_env(EnvRecipe(str(tmp_path / "env"), [entry]), UV, check=True).changed


def test_all_wrong_entries_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError) as error:
        ensure_env(EnvRecipe(str(tmp_path / "env"), ["oak", "elm==1.0"], ["ash"]), UV)
    assert len(error.value.problems) == 2


def test_no_packages_at_all_is_an_error(tmp_path: Path) -> None:
    with refuses("empty-value"):
        ensure_env(EnvRecipe(str(tmp_path / "env"), []), UV)


def test_a_uv_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match="make the box's environment first"):
        ensure_env(EnvRecipe(str(tmp_path / "env"), ["oak==1.0"]), str(tmp_path / "uv"))


def test_the_stub_makes_a_distribution_known_by_its_other_name(tmp_path: Path, wheels: Path) -> None:
    home = tmp_path / "env"
    stub = {"name": "tree", "version": "9.1+cpu"}
    ensure_env(EnvRecipe(str(home), ["oak==1.0"], metadata_stub=stub), UV, str(wheels))
    words = [
        str(home / "bin" / "python"),
        "-c",
        "from importlib.metadata import version; print(version('tree'))",
    ]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "9.1+cpu"


@pytest.mark.parametrize(
    ("torch_here", "uv", "expected"),
    [
        (True, "uv", []),
        (True, None, []),
        (False, "uv", ["--torch-backend", "cpu"]),
        (False, None, ["--extra-index-url", TORCH_CPU_INDEX]),
    ],
)
def test_torch_comes_from_find_links_where_it_is_there(
    tmp_path: Path, torch_here: bool, uv: str | None, expected: list[str]
) -> None:
    if torch_here:
        (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    recipe = EnvRecipe("/env", ["torch==2.13.0+cpu"], torch_backend="cpu")
    _, install = env_commands(recipe, uv, str(tmp_path))[-1]
    words = install[install.index("install") :]
    assert [word for word in words if word in expected] == expected
    assert ("--torch-backend" in words or "--extra-index-url" in words) == bool(expected)


def test_a_box_without_a_network_asks_no_index() -> None:
    recipe = EnvRecipe("/env", ["a==1"], ["b==2"], torch_backend="cpu", extra_index_url="https://index.example")
    for uv in (None, "/uv"):
        for _, command in env_commands(recipe, uv, "/wheels", no_index=True)[1:]:
            assert command[command.index("--no-index") :][:3] == ["--no-index", "--find-links", "/wheels"]
            assert not {"--torch-backend", "--extra-index-url", "https://index.example"} & set(command)


def test_choosing_torch_by_the_driver_needs_uv() -> None:
    with pytest.raises(DrafthouseError, match="without uv"):
        env_commands(EnvRecipe("/env", ["vllm==0.32.0"], torch_backend="auto"), None, None)


def test_the_stamp_knows_what_belongs_into_it() -> None:
    base = EnvRecipe("/env", ["oak==1.0"])
    others = [
        EnvRecipe("/env", ["oak==2.0"]),
        EnvRecipe("/env", [], ["oak==1.0"]),
        EnvRecipe("/env", ["oak==1.0"], torch_backend="cpu"),
        EnvRecipe("/env", ["oak==1.0"], metadata_stub={"name": "a", "version": "1"}),
    ]
    hashes = {base.sha256("3.11"), base.sha256("3.12"), *(other.sha256("3.11") for other in others)}
    assert len(hashes) == 6
    assert EnvRecipe("/elsewhere", ["oak==1.0"]).sha256("3.11") == base.sha256("3.11")


def test_each_line_of_the_installers_is_passed_on(tmp_path: Path, wheels: Path) -> None:
    told: list[tuple[str, str]] = []
    recipe = EnvRecipe(str(tmp_path / "env"), ["oak==1.0"])
    ensure_env(recipe, UV, str(wheels), progress=lambda step, line: told.append((step, line)))
    assert {step for step, _ in told} == {"environment", "packages"}
    assert any("oak==1.0" in line for _, line in told)


def test_what_an_installer_says_leads_to_advice() -> None:
    for words, advice in (
        ("error: Failed to fetch: `https://…` dns error", "reaches its package index"),
        ("OSError: [Errno 28] No space left on device", "free disk space"),
        ("error: Permission denied (os error 13)", "may write to"),
        ("something new", "can also be run by hand"),
    ):
        assert advice in python_env._advice(words)
