"""A signed repository, read by this machine's own apt. What a whole host makes of it stands in tests/hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host import apt_repository
from drafthouse.host.apt_repository import Repository, add, files, take_away
from tests.hosts.debs import Deb, Signer, publish
from tests.support.programs import needs
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

REPOSITORY = Repository(
    name="drafthouse-made",
    url="http://made.invalid/apt/",
    key_url="http://made.invalid/key.asc",
    fingerprint="B9096ADBC868B396AF4693B41EFE53D9EB4724AB",
    pins=("*nvidia*", "libcuda1"),
    leave=("nvidia-container*",),
)
real_apt = needs("apt-get", "dpkg-deb", "gpg")


def test_what_was_added_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    ours = files(REPOSITORY.name, tmp_path)
    other = tmp_path / "etc/apt/sources.list.d/other.sources"
    for path in [*ours, other]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert sorted(take_away(REPOSITORY.name, check=True, root=tmp_path)) == sorted(map(str, ours))
    assert all(path.exists() for path in ours)
    assert len(take_away(REPOSITORY.name, root=tmp_path)) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert take_away(REPOSITORY.name, root=tmp_path) == []


# --- what apt makes of keys and signatures ------------------------------------------------------------


@dataclass(frozen=True)
class Shelf:
    """A repository by the names of its keys: its own, one with a subkey that signs (as Docker's has), a stranger's."""

    folder: Path
    own: Signer
    subkey: Signer
    stranger: Signer

    def wish(self, index: str, **other: Any) -> Repository:
        """What is asked for where the index comes from the folder of that name."""
        return replace(REPOSITORY, url=f"file:{self.folder / index}", fingerprint=self.own.fingerprint, **other)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    keys, folder = tmp_path_factory.mktemp("k"), tmp_path_factory.mktemp("shelf")
    own, subkey, stranger = (Signer(keys, name) for name in ("own", "subkey", "stranger"))
    subkey._gpg("--quick-add-key", subkey.fingerprint, "rsa3072", "sign", "never")
    subkey.public = subkey._gpg("--armor", "--export")
    for name, signer in (("own", own), ("subkey", subkey), ("stranger", stranger), ("changed", own)):
        publish(folder / name, [Deb("made", "1.0"), Deb("made", "2.0")], signer, "Made by a test")
    index = folder / "changed/InRelease"
    index.write_text(index.read_text().replace("Label: Made", "Label: Changed"))
    yield Shelf(folder, own, subkey, stranger)
    for signer in (own, subkey, stranger):
        signer.end()


@real_apt
def test_what_the_pinned_key_has_signed_is_added_once(shelf: Shelf, tmp_path: Path) -> None:
    def asked(check: bool = False) -> apt_repository.Added:
        return add(shelf.wish("own"), lambda address: shelf.own.public, ["made", "none"], check, tmp_path)

    there = [str(path) for path in files(REPOSITORY.name, tmp_path)]
    tried = asked(check=True)
    assert (tried.files.changed, list(tmp_path.iterdir())) == (there, [])
    done = asked()
    assert (done.files.changed, done.files.diff) == (there, tried.files.diff)
    assert [part["after"] for part in done.files.diff] == [Path(path).read_text() for path in there]
    assert done.versions == {"made": ["2.0", "1.0"], "none": []}
    pins, key, sources = there
    assert "Pin: release o=Made by a test,l=Made by a test\n" in Path(pins).read_text()
    assert Path(key).read_bytes() == shelf.own.public
    assert f"Signed-By: /etc/apt/keyrings/drafthouse-made.asc {shelf.own.fingerprint}\n" in Path(sources).read_text()
    assert asked().files.changed == []


@real_apt
def test_the_fingerprint_of_the_primary_key_holds_for_its_subkeys(shelf: Shelf, tmp_path: Path) -> None:
    asked = replace(shelf.wish("subkey"), fingerprint=shelf.subkey.fingerprint)
    assert len(add(asked, lambda address: shelf.subkey.public, root=tmp_path).files.changed) == 3


@real_apt
@pytest.mark.parametrize(
    ("index", "keys"),
    [
        pytest.param("stranger", ("own",), id="signed by a stranger"),
        pytest.param("stranger", ("stranger",), id="with the stranger's key"),
        pytest.param("stranger", ("own", "stranger"), id="whose key lies beside ours"),
        pytest.param("changed", ("own",), id="changed on the way"),
        pytest.param("own", ("stranger",), id="with another key"),
        pytest.param("own", (), id="with what is no key"),
    ],
)
def test_what_the_pinned_key_has_not_signed_is_refused(
    index: str, keys: tuple[str, ...], shelf: Shelf, tmp_path: Path
) -> None:
    shown = b"".join(getattr(shelf, name).public for name in keys) or b"<html>404</html>"
    with pytest.raises(DrafthouseError) as refused:
        add(shelf.wish(index), lambda address: shown, root=tmp_path)
    (problem,) = refused.value.problems
    assert problem.found.startswith(f"apt does not accept file:{shelf.folder / index}: ")
    assert problem.needed == f"an index with a good signature by {shelf.own.fingerprint}"
    assert "do not install from it" in problem.do
    assert list(tmp_path.iterdir()) == []


@real_apt
@pytest.mark.parametrize(
    ("names", "whose"),
    [
        ("Origin: NVIDIA\nLabel: NVIDIA CUDA\n", "release o=NVIDIA,l=NVIDIA CUDA"),
        ("Label: only\n", "release l=only"),
    ],
)
def test_a_pin_means_what_the_repository_has_signed(names: str, whose: str, shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    publish(folder, [Deb("made", "1.0")], shelf.own, "LABEL")
    signed = (folder / "InRelease").read_text()
    date_and_sums = signed[signed.index("Date:") : signed.index("-----BEGIN PGP SIGNATURE")]
    (folder / "InRelease").write_bytes(shelf.own.clear(f"{names}{date_and_sums}".encode()))
    root = tmp_path / "root"
    add(replace(shelf.wish("own"), url=f"file:{folder}"), lambda address: shelf.own.public, root=root)
    assert set(re.findall("Pin: (.*)", files(REPOSITORY.name, root)[0].read_text())) == {whose}


@real_apt
def test_a_pin_means_the_host_of_a_repository_without_a_name(tmp_path: Path) -> None:
    assert apt_repository._pin_target(REPOSITORY, apt_repository._index_options(tmp_path)) == 'origin "made.invalid"'


@pytest.mark.parametrize("fingerprint", ["", "DEADBEEF", f"{'A' * 40},{'B' * 40}", f"/other.asc {'A' * 40}"])
def test_a_fingerprint_that_pins_no_key_is_refused_before_anything(fingerprint: str, tmp_path: Path) -> None:
    def never(address: str) -> bytes:
        raise AssertionError("something was fetched")

    with refuses("invalid-setting"):
        add(replace(REPOSITORY, fingerprint=fingerprint), never, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    def gone(address: str) -> bytes:
        raise OSError("HTTP Error 404")

    with refuses("repository-unreachable"):
        add(REPOSITORY, gone, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the files ----------------------------------------------------------------------------------------


def test_the_files() -> None:
    assert REPOSITORY.sources(files(REPOSITORY.name)[1]) == (
        "# Written by Drafthouse.\nTypes: deb\nURIs: http://made.invalid/apt/\nSuites: /\n"
        "Signed-By: /etc/apt/keyrings/drafthouse-made.asc B9096ADBC868B396AF4693B41EFE53D9EB4724AB\n"
    )
    text = REPOSITORY.preferences("release o=NVIDIA,l=NVIDIA CUDA")
    blocks = [block.splitlines() for block in text.partition("\n")[2].strip().split("\n\n")]
    assert [(block[0], block[2]) for block in blocks] == [
        ("Package: nvidia-container*", "Pin-Priority: 100"),
        ("Package: *nvidia* libcuda1", "Pin-Priority: 600"),
        ("Package: *", "Pin-Priority: 100"),
    ]
    assert {block[1] for block in blocks} == {"Pin: release o=NVIDIA,l=NVIDIA CUDA"}


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("sources.list", "deb http://made.invalid/apt /\n", True),
        ("sources.list.d/cuda.list", "deb [signed-by=/k.gpg] http://made.invalid/apt/ /\n", True),
        ("sources.list.d/cuda.sources", "Types: deb\nURIs: http://other/ http://made.invalid/apt\nSuites: /\n", True),
        ("sources.list.d/cuda.list", "# deb http://made.invalid/apt/ /\n", False),
        ("sources.list.d/cuda.list", "deb http://made.invalid/apt/else /\n", False),
        ("sources.list.d/cuda.list.disabled", "deb http://made.invalid/apt/ /\n", False),
        ("sources.list.d/drafthouse-made.sources", "URIs: http://made.invalid/apt/\n", False),
    ],
)
def test_a_repository_that_another_file_names(file: str, text: str, named: bool, tmp_path: Path) -> None:
    path = tmp_path / "etc/apt" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert apt_repository._other_source_file(REPOSITORY, tmp_path) == (str(path) if named else "")
