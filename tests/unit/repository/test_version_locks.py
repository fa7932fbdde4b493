"""Every version that we install is known by the hashes of its files, and another file under its name is refused."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.requirement_lines import hashes_by_pin, hashes_of, pin_of, read_lock, with_hashes, without_hashes
from drafthouse.host.env_recipe import EnvRecipe, env_commands
from drafthouse.host.venv import ensure_env
from drafthouse.profiles.derived_image import derived_from
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.gpu.luggage import fetch_wheels
from tests.support.page_commands import commands_of
from tests.unit.host.test_venv import UV, make_wheel, version_in

LOCKS = sorted(
    path
    for pattern in ("requirements*.txt", "roles/*/files/**/*.txt", "profiles/catalog/*.txt", "tests/*/locks/*.txt")
    for path in ROOT.glob(pattern)
)
A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_lock_has_hashes_and_names_no_index(path: Path) -> None:
    text = path.read_text("utf-8")
    entries = read_lock(text)
    assert entries
    assert [entry for entry in entries if not hashes_of(entry)] == []
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for entry in entries for digest in hashes_of(entry))
    assert "://" not in "".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "index-url" not in text


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_is_what_its_own_source_asks_for(path: Path) -> None:
    source = read_lock(re.sub(r"\s+#.*", "", path.with_suffix(".in").read_text("utf-8")))
    asked = {pin_of(entry) for entry in source if not entry.startswith("-")}
    assert asked <= {pin_of(entry) for entry in read_lock(path.read_text("utf-8"))}


def test_what_the_catalogue_pins_by_itself_has_hashes() -> None:
    """One version without them, and all that its step installs goes without a look at any."""
    site = site_of_inventory("local")
    for name in sorted(path.stem for path in (ROOT / "profiles").glob("cpu-*.yml")):
        resolved = resolved_profile(name, site)
        install: Any = resolved["engine"]["install"]
        lists = ("python_packages", "no_deps_packages", "build_packages", "source_packages")
        pins = [package for one in lists for package in install.get(one) or ()]
        assert pins or install["lock"]
        assert [pin for pin in pins if pin not in resolved["hashes"]] == [], (
            f"{name}: name it in packages.in, make lock"
        )


def test_nothing_of_ours_is_installed_without_hashes() -> None:
    text = (ROOT / "Makefile").read_text("utf-8").replace("\\\n", " ")
    installs = [line for line in text.splitlines() if re.search(r"pip install", line)]
    assert len(installs) == 2
    assert all(line.count("pip install") == line.count("--require-hashes") for line in installs)


def test_the_lines_of_a_lock() -> None:
    text = (
        f"# why\noak[x]==1.0 ; python_version < '3.12' \\\n    --hash={A} \\\n    --hash={B}\n    # via elm\nElm_b==2\n"
    )
    first, second = read_lock(text)
    assert first == f"oak[x]==1.0 ; python_version < '3.12' --hash={A} --hash={B}"
    assert (pin_of(first), without_hashes(first)) == ("oak==1.0", "oak[x]==1.0 ; python_version < '3.12'")
    assert (pin_of(second), hashes_of(second)) == ("elm-b==2", [])
    assert hashes_by_pin([first, second, f"oak==1.0 --hash={A}"]) == {"oak==1.0": [A, B], "elm-b==2": []}
    assert with_hashes(["elm-b==2", first, "ash==1"], {"elm-b==2": [A]}) == [f"elm-b==2 --hash={A}", first, "ash==1"]


def test_hashes_go_to_the_installer_by_a_file() -> None:
    recipe = EnvRecipe("/env", ["oak==1.0"], [f"elm==1.0 --hash={A}"], hashes={"oak==1.0": [A, B]})
    for uv in ("/uv", None):
        (_, _), (_, first), (_, second) = env_commands(recipe, uv, None)
        assert first[-3:] == ["--require-hashes", "-r", "/env/.drafthouse-requirements-0.txt"]
        assert second[-3:] == ["--require-hashes", "-r", "/env/.drafthouse-requirements-1.txt"]
    # Another index has other files under the same version.
    elsewhere = EnvRecipe("/env", ["oak==1.0"], ["elm==1.0"], extra_index_url="https://x", hashes={"oak==1.0": [A]})
    assert env_commands(elsewhere, "/uv", None)[1][1][-1] == "oak==1.0"
    # One without a hash: nothing of that step can be refused for want of one, and that is said.
    partly = EnvRecipe("/env", ["oak==1.0", "ash==1.0"], hashes={"oak==1.0": [A]})
    assert "--require-hashes" not in env_commands(partly, "/uv", None)[1][1]
    assert ensure_env(partly, None, check=True).unhashed == ["oak==1.0", "ash==1.0"]
    # A hash may stand in a file only: no installer takes one on its command line.
    assert not any("--hash" in word for _, words in env_commands(partly, None, None) for word in words)


def test_hashes_are_part_of_the_stamp_where_there_are_some() -> None:
    plain = EnvRecipe("/env", ["oak==1.0"])
    assert plain.sha256("3.11") != EnvRecipe("/env", ["oak==1.0"], hashes={"oak==1.0": [A]}).sha256("3.11")
    assert plain.sha256("3.11") == EnvRecipe("/env", ["oak==1.0"], hashes={}).sha256("3.11")


def test_an_image_is_built_from_files_that_are_known() -> None:
    install: Any = {"source_packages": ["oak==1.0"], "build_packages": ["elm==1.0"]}
    names = {"engine": "vllm", "version": "1", "method": "suffix"}
    derived = derived_from("base:1", **names, adds=install, hashes={"oak==1.0": [A], "elm==1.0": [B]})
    assert derived is not None
    assert derived.containerfile.count("--require-hashes") == 2
    unknown = derived_from("base:1", **names, adds=install, hashes={"oak==1.0": [A]})
    assert unknown is not None
    assert unknown.containerfile.count("--require-hashes") == 1


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the index, with two packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "oak", "1.0", [])
    make_wheel(folder, "elm", "1.0", ["oak"])
    for variable in ("UV_NO_INDEX", "PIP_NO_INDEX"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


def digest(wheel: Path) -> str:
    return f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


@pytest.mark.processes
def test_what_is_known_is_installed_once(tmp_path: Path, wheels: Path) -> None:
    known = {f"{name}==1.0": [digest(wheels / f"{name}-1.0-py3-none-any.whl")] for name in ("oak", "elm")}
    home = tmp_path / "env"
    recipe = EnvRecipe(str(home), ["elm==1.0", "oak==1.0"], hashes=known)
    first = ensure_env(recipe, UV, str(wheels))
    assert (first.changed, first.unhashed, version_in(home, "oak")) == (True, [], "1.0")
    assert not ensure_env(recipe, UV, None).changed  # the second run reads one file
    # What the locked ones bring along must be locked too.
    with pytest.raises(DrafthouseError):
        ensure_env(EnvRecipe(str(home), ["elm==1.0"], hashes=known), UV, str(wheels))


@pytest.mark.processes
@pytest.mark.parametrize("tool", ["uv", pytest.param("pip", marks=pytest.mark.soak)])
def test_another_file_under_a_known_version_is_refused(tmp_path: Path, wheels: Path, tool: str) -> None:
    uv, home = UV if tool == "uv" else None, tmp_path / "env"
    known = {"oak==1.0": [digest(wheels / "oak-1.0-py3-none-any.whl")]}
    # The same version, published a second time with something else in it.
    make_wheel(wheels, "oak", "1.0", ["elm"])
    with pytest.raises(DrafthouseError) as error:
        ensure_env(EnvRecipe(str(home), [], ["oak==1.0"], hashes=known), uv, str(wheels))
    assert "another file is served under this version" in str(error.value)
    assert not list(home.glob("lib/python3*/site-packages/oak.py"))


@pytest.mark.processes
def test_the_luggage_takes_no_other_file_either(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.setenv(variable, str(wheels))
    known = digest(wheels / "oak-1.0-py3-none-any.whl")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    fetch_wheels([f"oak==1.0 --hash={known}"], python, tmp_path / "fetched")
    assert [path.name for path in (tmp_path / "fetched").iterdir()] == ["oak-1.0-py3-none-any.whl"]
    with pytest.raises(subprocess.CalledProcessError):
        fetch_wheels([f"oak==1.0 --hash={A}"], python, tmp_path / "other")


PLAY = """
- hosts: localhost
  gather_facts: false
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}", engine_install: {lock: vllm-0.32.0-cpu.txt}}
  tasks:
    - include_vars: ROOT/roles/engine/vars/main.yml
    - include_vars: ROOT/roles/box_env/vars/main.yml
    - copy:
        dest: OUT
        content: "{{ {'e': _engine_lock, 'b': _box_env_lock, 'u': _box_env_uv} | to_json }}"
"""


@pytest.mark.processes
def test_the_roles_read_their_locks_as_we_do(tmp_path: Path) -> None:
    """What the roles' Jinja makes of a lock is what Python makes of it: whole lines, hashes included."""
    play, out = tmp_path / "play.yml", tmp_path / "out.json"
    play.write_text(PLAY.replace("ROOT", str(ROOT)).replace("OUT", str(out)), "utf-8")
    for role in ("engine", "box_env"):
        shutil.copytree(ROOT / "roles" / role / "files", tmp_path / "files", dirs_exist_ok=True)
    words = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(play)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text("utf-8"))
    engine, box = "engine/files/locks/vllm-0.32.0-cpu.txt", "box_env/files/requirements.txt"
    for key, name in {"e": engine, "b": box, "u": "box_env/files/uv.txt"}.items():
        lines = [" ".join(line.split()) for line in found[key]]
        assert lines == read_lock((ROOT / "roles" / name).read_text("utf-8"))


def test_a_page_names_the_engine_in_the_catalogues_version() -> None:
    (line,) = [
        line for line in commands_of((ROOT / "docs/weights-elsewhere.md").read_text("utf-8")) if "xllamacpp" in line
    ]
    named = {word for word in line.split() if "==" in word}
    assert len(named) == 2
    assert named <= set((ROOT / "profiles/catalog/packages.in").read_text("utf-8").split())
