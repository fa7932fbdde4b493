"""Bundles of small files: what is written is what is unpacked, and what is wrong leaves nothing behind."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.requirement_lines import all_have_hashes, pin_of, without_hashes
from drafthouse.host.env_recipe import EnvRecipe, env_commands
from drafthouse.operate import bundle_make
from drafthouse.operate.offline_bundle import (
    MANIFEST,
    is_inside,
    is_unpacked,
    read_manifest,
    require_suits,
    unpack,
    write_bundle,
)
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.refusals import refuses

if TYPE_CHECKING:
    from drafthouse.operate.offline_bundle import BundleFacts

FILES = {
    "wheels/uv-0.13.9-py3-none-any.whl": b"wheel" * 1000,
    "weights/org-model/model.safetensors": bytes(range(256)) * 5000,
    "weights/org-model.drafthouse.json": b"{}",
    "images/engine.tar": b"",
}
FACTS: BundleFacts = {"profile": "p", "python": "3.11", "machine": "x86_64"}


def quiet(event: Mapping[str, Any]) -> None:
    """Tell nobody."""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    members = {}
    for name, content in FILES.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        members[name] = path
    path = tmp_path / "bundle.tar"
    write_bundle(path, members, FACTS, quiet)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if "/" in name}


def test_what_is_written_is_what_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    into = tmp_path / "home" / "bundle"
    manifest = read_manifest(bundle)
    assert manifest.facts["profile"] == "p"
    assert manifest.size() == sum(map(len, FILES.values()))
    assert unpack(bundle, into, quiet, check=True)
    assert not into.exists()
    assert unpack(bundle, into, quiet)
    assert contents(into) == FILES
    assert is_unpacked(into, manifest.id)
    assert not unpack(bundle, into, quiet)
    # Ordinary tools read it too.
    with tarfile.open(bundle) as tar:
        assert tar.getnames() == [MANIFEST, *sorted(FILES)]


def test_the_same_files_give_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    members = {name: tmp_path / "source" / name for name in reversed(FILES)}
    for path in members.values():
        path.touch()
    write_bundle(tmp_path / "again.tar", members, FACTS, quiet)
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()


def test_a_part_of_it_is_unpacked_alone(bundle: Path, tmp_path: Path) -> None:
    into = tmp_path / "wheels"
    assert unpack(bundle, into, quiet, "wheels/")
    assert list(contents(into)) == ["wheels/uv-0.13.9-py3-none-any.whl"]
    assert not unpack(bundle, into, quiet, "wheels/")
    assert unpack(bundle, into, quiet)  # now the whole
    assert contents(into) == FILES
    assert not unpack(bundle, into, quiet, "wheels/")  # which has the part


def test_another_bundle_takes_the_place_of_the_first(bundle: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    unpack(bundle, into, quiet)
    other = tmp_path / "other.tar"
    write_bundle(other, {"wheels/x.whl": bundle}, FACTS, quiet)
    assert unpack(other, into, quiet)
    assert list(contents(into)) == ["wheels/x.whl"]
    assert sorted(path.name for path in tmp_path.iterdir() if "into" in path.name) == ["into"]


def test_a_file_that_was_lost_or_changed_in_size_is_unpacked_again(bundle: Path, tmp_path: Path) -> None:
    into = tmp_path / "into"
    unpack(bundle, into, quiet)
    (into / "wheels/uv-0.13.9-py3-none-any.whl").write_bytes(b"short")
    assert unpack(bundle, into, quiet)
    assert contents(into) == FILES


def test_a_folder_that_is_not_ours_is_left_alone(bundle: Path, tmp_path: Path) -> None:
    into = tmp_path / "home"
    into.mkdir()
    (into / "precious").write_bytes(b"mine")
    with refuses("folder-not-ours"):
        unpack(bundle, into, quiet)
    link = tmp_path / "link"
    link.symlink_to(into)
    with refuses("folder-not-ours"):
        unpack(bundle, link, quiet)
    assert [path.name for path in into.iterdir()] == ["precious"]


# --- what is wrong ----------------------------------------------------------------------------------------


def rewritten(bundle: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], object]) -> Path:
    """Return the bundle with its members changed; the manifest stays as it is unless the change touches it."""
    with tarfile.open(bundle) as tar:
        members = [(member, file.read() if (file := tar.extractfile(member)) else b"") for member in tar]
    change(members)
    path = bundle.with_name("changed.tar")
    with tarfile.open(path, "w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def refused(bundle: Path, words: str) -> None:
    into = bundle.parent / "home" / "into"
    with pytest.raises(DrafthouseError, match=words):
        unpack(bundle, into, quiet)
    # Neither it nor anything half-made.
    assert not into.parent.exists() or list(into.parent.iterdir()) == []


def named(name: str, content: bytes = b"x", **change: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in change.items():
        setattr(member, key, value)
    return member, content


@pytest.mark.parametrize(
    "name", ["../evil", "/tmp/evil", "wheels/../../evil", "wheels\\..\\evil", "./wheels/evil", "evil"]
)
def test_a_member_that_leaves_the_folder(bundle: Path, name: str) -> None:
    refused(rewritten(bundle, lambda members: members.append(named(name))), "names inside the folder")


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "wheels/../evil", ".complete.json"])
def test_a_manifest_that_names_a_file_outside(bundle: Path, name: str) -> None:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        data = json.loads(members[0][1])
        data["files"][name] = {"size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        members[0] = (members[0][0], json.dumps(data).encode())
        members.append(named(name))

    refused(rewritten(bundle, change), "names inside the folder")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_member_that_is_no_plain_file(bundle: Path, kind: bytes) -> None:
    name = "weights/org-model/model.safetensors"

    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        place = [member.name for member, _ in members].index(name)
        members[place] = named(name, b"", type=kind, linkname="/etc/passwd")

    refused(rewritten(bundle, change), "plain files that the manifest names")


def test_a_member_that_nobody_named(bundle: Path) -> None:
    refused(rewritten(bundle, lambda members: members.append(named("wheels/extra.whl"))), "that the manifest names")


def test_a_member_twice(bundle: Path) -> None:
    refused(rewritten(bundle, lambda members: members.append(members[1])), "twice")


def test_a_member_that_is_missing(bundle: Path) -> None:
    refused(rewritten(bundle, lambda members: members.pop()), "are missing")


def test_a_wrong_byte(bundle: Path) -> None:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member, content = members[-1]
        members[-1] = (member, b"X" + content[1:])

    refused(rewritten(bundle, change), "sha256")


def test_a_wrong_byte_in_a_member_that_is_skipped_does_not_matter(bundle: Path, tmp_path: Path) -> None:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        place = [member.name for member, _ in members].index("weights/org-model.drafthouse.json")
        members[place] = (members[place][0], b"[]")

    assert unpack(rewritten(bundle, change), tmp_path / "into", quiet, "wheels/")


def test_a_bundle_that_was_cut_short_anywhere(bundle: Path) -> None:
    data = bundle.read_bytes()
    cut = bundle.with_name("cut.tar")
    # The end of a tar is two empty blocks and padding: without them everything is still there.
    with tarfile.open(bundle) as tar:
        whole = max(member.offset_data + member.size for member in tar)
    for kept in [0, 1, 511, 512, 700, *range(1024, whole, whole // 40), whole - 1]:
        cut.write_bytes(data[:kept])
        refused(cut, "cut short|first|empty|missing|sha256|manifest")


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100, b"\x1f\x8b" + bytes(100)])
def test_what_is_no_bundle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    refused(tmp_path / "file", "needed: ")
    with pytest.raises(DrafthouseError, match="no such file"):
        read_manifest(tmp_path / "gone")
    with pytest.raises(DrafthouseError, match="a folder"):
        read_manifest(tmp_path)


def test_a_bundle_of_another_day(bundle: Path) -> None:
    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members[0] = (members[0][0], json.dumps({**json.loads(members[0][1]), "format": 2}).encode())

    refused(rewritten(bundle, change), "format 2")


@pytest.mark.parametrize("content", [b"other" * 1000, b"short"])
def test_a_file_that_changes_while_it_is_bundled(bundle: Path, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "source" / "wheels" / "uv-0.13.9-py3-none-any.whl"

    def meddle(event: Mapping[str, Any]) -> None:
        if event["text"].startswith("writing"):
            path.write_bytes(content)

    with pytest.raises(DrafthouseError, match=r"changed while it was read|unexpected end of data"):
        write_bundle(tmp_path / "b.tar", {"a/first": bundle, "wheels/uv.whl": path}, FACTS, meddle)
    assert not list(tmp_path.glob("b.tar*"))


def test_no_room_is_said_before_the_first_byte(bundle: Path, tmp_path: Path) -> None:
    huge = {"size": 1 << 60, "sha256": "0" * 64}

    def change(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        data = json.loads(members[0][1])
        data["files"]["weights/huge"] = huge
        members[0] = (members[0][0], json.dumps(data).encode())

    refused(rewritten(bundle, change), r"GB free at .*\nneeded: 1152921504.7 GB|GB free")


@pytest.mark.parametrize(
    ("python", "machine", "words"), [("3.12", "x86_64", "ARGS='--python 3.12'"), ("3.11", "aarch64", "aarch64")]
)
def test_a_bundle_for_another_box(bundle: Path, python: str, machine: str, words: str) -> None:
    with pytest.raises(DrafthouseError, match=words):
        require_suits(read_manifest(bundle), python, machine)
    require_suits(read_manifest(bundle), "3.11", "x86_64")


def test_names() -> None:
    assert all(is_inside(name) for name in ("a/b", "a/..b", "a/b c/d.json"))
    assert not any(is_inside(name) for name in ("", "a", "/a/b", "a//b", "a/", "a/./b", "../a/b", "a\\b/c", "a/b\n"))


# --- what goes in -----------------------------------------------------------------------------------------


def profile(name: str, runtime: str) -> Any:
    return resolved_profile(name, {**site_of_inventory("local"), "runtime": runtime})


def test_the_environments_of_a_run() -> None:
    made = bundle_make.environments(profile("cpu-smollm2-ngram", "process"), ROOT, "3.12", None)
    assert [(environment.name, environment.python) for environment in made] == [
        ("controller", bundle_make._OURS), ("box", "3.12"), ("engine", "3.12"),
    ]  # fmt: skip
    assert [without_hashes(pin) for pin in made[2].packages] == ["xllamacpp==2026.10.11549"]
    assert {"uv==0.13.9", "huggingface-hub==2.4.0"} <= {pin_of(pin) for pin in made[1].no_deps_packages}
    assert any(pin.startswith("ansible-core==") for pin in made[0].no_deps_packages)
    for environment in made:
        for packages in filter(None, (environment.packages, environment.no_deps_packages)):
            assert all_have_hashes(packages), environment.name
    # In a container the engine has its own.
    docker = bundle_make.environments(profile("rtx6000-qwen-eagle3", "docker"), ROOT, "3.11", None)
    assert [environment.name for environment in docker] == ["controller", "box"]


def test_an_engine_whose_torch_the_driver_decides() -> None:
    resolved = profile("rtx6000-qwen-eagle3", "process")
    with pytest.raises(DrafthouseError, match="--torch-backend"):
        bundle_make.environments(resolved, ROOT, "3.11", None)
    assert bundle_make.environments(resolved, ROOT, "3.11", "cu130")[2].torch_backend == "cu130"


def test_an_engine_that_is_compiled_on_the_box() -> None:
    with pytest.raises(DrafthouseError, match="compiled on the box"):
        bundle_make.environments(profile("cpu-smollm2-vllm-suffix", "process"), ROOT, "3.11", None)


def test_weights_go_in_as_they_were_noted(tmp_path: Path) -> None:
    (tmp_path / "org-model" / "sub").mkdir(parents=True)
    (tmp_path / "gguf").mkdir()
    for name in ("org-model/a.safetensors", "org-model/sub/b.json", "org-model/stray", "gguf/x.gguf"):
        (tmp_path / name).write_bytes(b"x")
    note: dict[str, Any] = {"files": {"a.safetensors": {}, "sub/b.json": {}}}
    (tmp_path / "org-model.drafthouse.json").write_text(json.dumps(note))
    (tmp_path / "gguf" / "x.gguf.drafthouse.json").write_text(json.dumps({"files": {"x.gguf": {}}}))
    items = [tmp_path / "org-model", tmp_path / "gguf" / "x.gguf"]
    assert sorted(bundle_make.weights_members(items, tmp_path)) == [
        "weights/gguf/x.gguf",
        "weights/gguf/x.gguf.drafthouse.json",
        "weights/org-model.drafthouse.json",
        "weights/org-model/a.safetensors",
        "weights/org-model/sub/b.json",
    ]
    shutil.rmtree(tmp_path / "gguf")
    with refuses("weights-not-verified"):
        bundle_make.weights_members(items, tmp_path)


@pytest.mark.processes
def test_a_wheel_that_no_index_has(tmp_path: Path) -> None:
    said: list[str] = []
    environment = bundle_make.Environment("engine", bundle_make._OURS, ("no-such-package-of-ours==1.0",))
    uv = str(ROOT / ".venv" / "bin" / "uv")
    with pytest.raises(DrafthouseError) as error:
        bundle_make.fetch_wheels(environment, tmp_path, uv, None, said.append)
    assert "no-such-package-of-ours" in str(error.value)


def test_a_box_without_a_network_asks_no_index() -> None:
    recipe = EnvRecipe("/env", ["a==1"], ["b==2"], torch_backend="cpu", extra_index_url="https://index.example")
    for uv in (None, "/uv"):
        for _, command in env_commands(recipe, uv, "/wheels", no_index=True)[1:]:
            assert command[command.index("--no-index") :][:3] == ["--no-index", "--find-links", "/wheels"]
            assert not {"--torch-backend", "--extra-index-url", "https://index.example"} & set(command)


def test_where_weights_may_lie_comes_from_the_site() -> None:
    def elsewhere(**site: str) -> Any:
        whole = {**site_of_inventory("local"), "home": "/h", "models_dir": "/m", **site}
        return resolved_profile("cpu-smollm2-ngram", whole)["elsewhere"]

    assert elsewhere() == {}
    assert elsewhere(weights_from="/mnt") == {"folder": "/mnt", "models_dir": "/m"}
    assert elsewhere(weights_from="/mnt", bundle="/b.tar")["folder"] == "/h/bundle/weights"
