"""What is read in a rented container, and what is made of it: its first process, its image's engine, its key, a VM."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.local_state import kept_key, key_file, state_folder
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.first_process import facts, for_engines, search_path
from drafthouse.core.procfs import first_environment
from drafthouse.host.env_recipe import EnvRecipe
from drafthouse.host.image_python import find_engine, wanted_versions
from drafthouse.host.venv import ensure_env, is_of_image
from drafthouse.profiles.rented_vm import site_of_vm
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.serving.supervisor import Program, configuration

pytestmark = pytest.mark.processes

GIVEN = {
    "PATH": "/venv/main/bin:/usr/local/cuda/bin:relative:/usr/bin", "VIRTUAL_ENV": "/opt/venv",
    "LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/usr/local/nvidia/lib64", "CUDA_HOME": "/usr/local/cuda",
    "NVIDIA_VISIBLE_DEVICES": "all", "NCCL_P2P_DISABLE": "1",
    "CONTAINER_ID": "31000004", "PUBLIC_IPADDR": "198.51.100.10", "VAST_TCP_PORT_22": "40022",
    "VAST_TCP_PORT_8443": "40123", "VAST_TCP_PORT_X": "1", "VAST_TCP_PORT_9": "none",
    "DRAFTHOUSE_DEADLINE": "1800000000",
}  # fmt: skip
SECRETS = {
    "CONTAINER_API_KEY": "s-1", "HF_TOKEN": "s-2", "JUPYTER_TOKEN": "s-3", "OPEN_BUTTON_TOKEN": "s-4",
    "AWS_SECRET_ACCESS_KEY": "s-5", "NCCL_AUTH_TOKEN": "s-6", "WEB_PASSWORD": "s-7", "VAST_API_KEY": "s-8",
    "VAST_TCP_PORT_22_KEY": "s-9", "DB": "s-10",
}  # fmt: skip


def test_what_the_first_process_was_given() -> None:
    found = facts({**GIVEN, **SECRETS})
    assert found["address"] == "198.51.100.10"
    assert found["ports"] == {"22": 40022, "8443": 40123}
    assert found["deadline"] == 1_800_000_000
    assert found["search_path"] == ["/opt/venv/bin", "/venv/main/bin", "/usr/local/cuda/bin", "/usr/bin"]
    assert facts({"RUNPOD_POD_ID": "abc", "RUNPOD_TCP_PORT_22": "10022"})["ports"] == {"22": 10022}
    nothing: dict[str, object] = {"address": None, "ports": {}, "deadline": None, "search_path": []}
    assert facts({}) == nothing


def test_no_secret_is_taken_along() -> None:
    everything = {**GIVEN, **SECRETS}
    for taken in (facts(everything), for_engines(everything), for_engines(everything, brings_cuda=True)):
        assert "s-" not in json.dumps(taken)
    assert for_engines(everything)["NCCL_P2P_DISABLE"] == "1"


def test_an_engine_of_our_own_does_not_get_the_images_libraries() -> None:
    assert for_engines(GIVEN)["LD_LIBRARY_PATH"] == GIVEN["LD_LIBRARY_PATH"]
    assert for_engines(GIVEN, brings_cuda=True)["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64"
    assert "LD_LIBRARY_PATH" not in for_engines({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"}, brings_cuda=True)


def test_reading_a_real_process() -> None:
    # It speaks first: while a program is being put in another one's place it has no environment to read.
    words, pipe = [sys.executable, "-c", "print(flush=True); input()"], subprocess.PIPE
    with subprocess.Popen(words, env={**GIVEN, "ODD": "a=b"}, stdin=pipe, stdout=pipe) as one:
        try:
            assert one.stdout and one.stdout.readline()
            found = first_environment(Path(f"/proc/{one.pid}/environ"))
        finally:
            one.kill()
    assert found == {**GIVEN, "ODD": "a=b"}
    assert first_environment(Path("/proc/1/no-such-file")) == {}


def test_supervisord_reads_what_was_written(tmp_path: Path) -> None:
    """Its own parser: percent signs, blanks and backslashes come through; what it cannot read is left out."""
    options = pytest.importorskip("supervisor.options")
    odd = {"CUDA_HOME": "it's 100% C:\\path, b=c; d", "CUDA_PATH": 'a "quoted" one', "NCCL_DEBUG": "'info'"}
    program = Program("arm", ["/bin/true"], str(tmp_path / "log"), "/first", search_path(GIVEN), odd)
    file = tmp_path / "supervisord.conf"
    file.write_text(configuration(tmp_path, [program]))
    read = options.ServerOptions()
    read.realize(args=["-c", str(file)])
    _, group = read.process_group_configs  # the first is a listener of ours
    environment = group.process_configs[0].environment
    assert environment["CUDA_HOME"] == odd["CUDA_HOME"]
    assert not {"CUDA_PATH", "NCCL_DEBUG"} & set(environment)
    assert environment["PATH"].startswith("/first:/opt/venv/bin:/venv/main/bin:")


# --- the image's own engine ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as images have one, with a package of the name and version of an engine."""
    home = tmp_path_factory.mktemp("image") / "venv main"
    venv.create(home, symlinks=True, with_pip=False)
    (packages,) = (home / "lib").glob("python3*/site-packages")
    (packages / "oakengine.py").write_text(
        "import sys\n\ndef main():\n    print('oak', sys.prefix, sys.argv)\n    return 3\n"
    )
    info = packages / "oakengine-0.32.0+cu129.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oakengine\nVersion: 0.32.0+cu129\n")
    (info / "entry_points.txt").write_text("[console_scripts]\noak = oakengine:main\n")
    return home


@pytest.mark.parametrize(
    ("packages", "found"),
    [
        (["oakengine==0.32.0"], True), (["oakengine[x]==0.32.0"], True), (["oakengine==0.32.0+cu129"], True),
        (["oakengine==0.32.0+cu130"], False), (["oakengine==0.33.0"], False), (["oakengine==0.32"], False),
        (["oakengine==0.32.0", "elm==1.0"], False), (["oakengine"], False), ([], False),
    ],
)  # fmt: skip
def test_only_the_pinned_version_is_used(image: Path, packages: list[str], found: bool) -> None:
    engine = find_engine(packages, [str(image / "nowhere"), str(image / "bin")])
    assert bool(engine) == found
    if engine:
        assert engine.as_words() == f"oakengine 0.32.0+cu129 of {image}/bin/python3"


def test_packages_that_are_not_exact_are_none() -> None:
    assert wanted_versions(["a==1", "b>=2"]) is None
    assert wanted_versions(["a[x,y]==1.0"]) == {"a": "1.0"}


def ran(*words: Path | str) -> tuple[int, str]:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def test_it_stands_where_an_environment_of_our_own_would(image: Path, tmp_path: Path) -> None:
    home = tmp_path / "engines" / "oak engine"
    recipe = EnvRecipe(str(home), ["oakengine==0.32.0"])
    folders = [str(image / "bin")]
    checked = ensure_env(recipe, check=True, image_folders=folders)
    assert (checked.changed, checked.tool, home.exists()) == (True, "image", False)
    made = ensure_env(recipe, image_folders=folders)
    assert (made.changed, made.tool) == (True, "image")
    assert is_of_image(home)
    # Its Python is the image's, in its own environment, and so is the program.
    assert ran(home / "bin" / "python", "-c", "import sys; print(sys.prefix)") == (0, str(image))
    assert ran(home / "bin" / "oak", "--port", "1") == (3, f"oak {image} ['oak', '--port', '1']")
    again = ensure_env(recipe, image_folders=folders)
    assert not again.changed
    assert "0.32.0+cu129" in again.image


def test_a_next_container_of_another_image_gets_its_own(image: Path, tmp_path: Path) -> None:
    home = tmp_path / "engine"
    recipe = EnvRecipe(str(home), ["oakengine==0.32.0"])
    ensure_env(recipe, image_folders=[str(image / "bin")])
    stamp = home / ".drafthouse-env.json"
    stamp.write_text(stamp.read_text().replace(str(image), str(tmp_path / "gone")))
    # Another image: the same version elsewhere is taken, and where there is none it is installed.
    assert ensure_env(recipe, image_folders=[str(image / "bin")]).changed
    stamp.write_text(stamp.read_text().replace(str(image), str(tmp_path / "gone")))
    commands = ensure_env(recipe, check=True, image_folders=[]).commands
    assert commands[-1][-1] == "oakengine==0.32.0"


@pytest.mark.parametrize(
    "more", [{"no_deps_packages": ["a==1"]}, {"source_packages": ["a==1"]}, {"metadata_stub": {"name": "a"}}]
)
def test_what_would_have_to_be_added_gets_an_environment(image: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    recipe = EnvRecipe(str(tmp_path / "engine"), ["oakengine==0.32.0"], **more)
    assert ensure_env(recipe, check=True, image_folders=[str(image / "bin")]).tool == "pip"


def test_it_is_looked_for_only_where_it_is_asked_for(image: Path, tmp_path: Path) -> None:
    recipe = EnvRecipe(str(tmp_path / "engine"), ["oakengine==0.32.0"])
    assert ensure_env(recipe, check=True).tool == "pip"


# --- the key that outlives the box -----------------------------------------------------------------------


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    key = kept_key("h100-llama33-draft3b", tmp_path)
    assert len(key) == 40
    assert kept_key("h100-llama33-draft3b", tmp_path) == key
    assert kept_key("another", tmp_path) != key
    file = key_file("h100-llama33-draft3b", tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    assert kept_key("h100-llama33-draft3b", tmp_path) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_all_who_ask_at_once_get_the_same(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    with ThreadPoolExecutor(16) as many:
        keys = set(many.map(lambda _: kept_key("p", tmp_path), range(64)))
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["p"]


@pytest.mark.parametrize("text", ["", "short", "with blanks in the midst of it", "a" * 20 + "\x07"])
def test_a_file_that_is_no_key(tmp_path: Path, text: str) -> None:
    kept_key("p", tmp_path)
    key_file("p", tmp_path).write_text(text)
    with pytest.raises(DrafthouseError) as caught:
        kept_key("p", tmp_path)
    assert "DRAFTHOUSE_API_KEY" in str(caught.value)
    assert not text or text not in str(caught.value)


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    for name in ("../../etc/passwd", "/etc/passwd", "..", "a/b"):
        assert key_file(name, tmp_path).parent == tmp_path / "keys"


def test_the_folder_of_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    for folder in (tmp_path / "open", tmp_path / "new" / "deep"):
        made = state_folder({"DRAFTHOUSE_STATE": str(folder)})
        assert made == folder
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert state_folder({}, tmp_path) == tmp_path / "rentals"
    (tmp_path / "file").touch()
    with pytest.raises(DrafthouseError, match="DRAFTHOUSE_STATE"):
        state_folder({"DRAFTHOUSE_STATE": str(tmp_path / "file")})


# --- a rented machine that is a whole VM -----------------------------------------------------------------

VM: Any = {"has_systemd": True, "has_docker": True, "is_root": True}


@pytest.mark.parametrize(
    ("box", "variables", "recognised"),
    [
        ({}, {"drafthouse_recognise_vm": True}, True),
        ({}, {"drafthouse_is_vm": True}, True),
        ({}, {}, False),
        ({"has_systemd": False}, {"drafthouse_recognise_vm": True}, False),
        ({"has_docker": False}, {"drafthouse_recognise_vm": True}, False),
        ({"is_root": False}, {"drafthouse_recognise_vm": True}, False),
    ],
)
def test_a_vm_is_a_workstation(box: Any, variables: dict[str, bool], recognised: bool) -> None:
    resolved = resolved_profile("h100-llama33-draft3b", site_of_inventory("vastai"))
    signs: Any = {**VM, **box}
    site = site_of_vm(resolved, signs, variables)
    assert bool(site) == recognised
    if site:
        assert (site["manage_host"], site["runtime"], site["home"]) == (True, "docker", resolved["site"]["home"])
        assert resolved_profile("h100-llama33-draft3b", site)["engine"]["image"]


def test_a_vm_keeps_the_process_runtime_where_there_is_no_image() -> None:
    resolved = resolved_profile("rtx6000-gptoss-arctic", site_of_inventory("vastai"))
    site = site_of_vm(resolved, VM, {"drafthouse_is_vm": True})
    assert site is not None
    assert site["runtime"] == "process"


def test_the_environment_of_this_test_is_not_needed() -> None:
    """What the modules read of their own process is nothing of the container's."""
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST_CURRENT_TEST" not in for_engines(dict(os.environ))
