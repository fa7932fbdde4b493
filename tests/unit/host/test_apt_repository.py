"""Keys and files of a signed repository. What apt makes of them stands in tests/hosts/test_driver.py."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host import apt_repository as signed_repository
from drafthouse.host.apt_repository import Repository, add, fingerprints, take_away
from tests.support.programs import needs

pytestmark = pytest.mark.processes

# Made with gpg for this test; its secret half was thrown away. gpg --show-keys says the fingerprint below.
ARMORED = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawHChBYJKwYBBAHaRw8BAQdAkz5llvq+9r+pHlmzZ4h0d1pTqX6jXTRg2KM2
YkkFeWK0KG1hZGUgYnkgYSB0ZXN0IDx0ZXN0QGRyYWZ0aG91c2UuaW52YWxpZD6I
kAQTFggAOBYhBLkJatvIaLOWr0aTtB7+U9nrRySrBQJrAcKEAhsDBQsJCAcCBhUK
CQgLAgQWAgMBAh4BAheAAAoJEB7+U9nrRySrjOkA/iCihTwTuKYt+DHF2XifT1T2
DzntTLxwq8pPdYyYuoAiAQDjIMtj70Ayvoevwd81cYdhAq3y2A3I8KDbgJlCqE9t
Dw==
=ybnj
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "B9096ADBC868B396AF4693B41EFE53D9EB4724AB"
REPOSITORY = Repository(
    name="drafthouse-made",
    url="http://made.invalid/apt/",
    key_url="http://made.invalid/key.asc",
    fingerprint=FINGERPRINT,
    pins=("*nvidia*", "libcuda1"),
    leave=("nvidia-container*",),
)


def test_what_was_added_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    ours = [REPOSITORY.sources_file(tmp_path), REPOSITORY.key_file(tmp_path), REPOSITORY.pins_file(tmp_path)]
    other = tmp_path / "etc/apt/sources.list.d/other.sources"
    for path in [*ours, other]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert take_away(REPOSITORY.name, check=True, root=tmp_path) == [str(path) for path in ours]
    assert all(path.exists() for path in ours)
    assert len(take_away(REPOSITORY.name, root=tmp_path)) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert take_away(REPOSITORY.name, root=tmp_path) == []


def binary(armored: bytes) -> bytes:
    return signed_repository._plain(armored)


def test_a_keys_fingerprint() -> None:
    assert fingerprints(ARMORED) == [FINGERPRINT]
    assert fingerprints(binary(ARMORED)) == [FINGERPRINT]
    assert fingerprints(ARMORED.replace(b"\n", b"\r\n")) == [FINGERPRINT]
    assert fingerprints(ARMORED + ARMORED) == [FINGERPRINT, FINGERPRINT]


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"<html>404</html>",
        ARMORED[:200],
        ARMORED.replace(b"BLOCK-----\n\n", b"BLOCK-----\n\n!!!!"),
        binary(ARMORED)[:40],
        b"\xff" * 40,
    ],
)
def test_what_is_no_key_has_no_fingerprint(spoilt: bytes) -> None:
    assert fingerprints(spoilt) == []


def test_one_changed_bit_is_another_key() -> None:
    changed = bytearray(binary(ARMORED))
    changed[30] ^= 1
    assert fingerprints(bytes(changed)) != [FINGERPRINT]


@needs("gpg")
@pytest.mark.parametrize("algorithm", ["rsa2048", "ed25519"])
def test_gpg_agrees(algorithm: str, tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir(mode=0o700)

    def gpg(*argv: str) -> bytes:
        command = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", "", *argv]
        return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout

    gpg("--quick-gen-key", "made <made@made.invalid>", algorithm, "sign", "never")
    listed = gpg("--with-colons", "--list-keys").decode()
    said = [line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:")][:1]
    assert fingerprints(gpg("--export")) == said
    assert fingerprints(gpg("--armor", "--export")) == said
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], timeout=60, check=False)


def test_the_files() -> None:
    assert REPOSITORY.sources(REPOSITORY.key_file()) == (
        "# Written by Drafthouse.\nTypes: deb\nURIs: http://made.invalid/apt/\nSuites: /\n"
        "Signed-By: /etc/apt/keyrings/drafthouse-made.asc\n"
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
    ("release", "whose"),
    [
        ("Origin: NVIDIA\nLabel: NVIDIA CUDA\nOrigin: later\n", "release o=NVIDIA,l=NVIDIA CUDA"),
        ("-----BEGIN PGP SIGNED MESSAGE-----\n\nLabel: only\n", "release l=only"),
        ("Date: today\n", 'origin "made.invalid"'),
    ],
)
def test_a_pin_means_what_the_repository_has_signed(release: str, whose: str, tmp_path: Path) -> None:
    (tmp_path / "made_InRelease").write_text(release)
    assert signed_repository._whose(REPOSITORY, tmp_path) == whose


def test_a_key_that_is_not_the_one_is_refused_before_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("apt was asked")

    monkeypatch.setattr(signed_repository, "_run", never)
    for key in (b"", b"no key", ARMORED + ARMORED):
        with pytest.raises(DrafthouseError, match=FINGERPRINT):
            add(REPOSITORY, lambda address, key=key: key, root=tmp_path)  # type: ignore[misc]

    def gone(address: str) -> bytes:
        raise OSError("HTTP Error 404")

    with pytest.raises(DrafthouseError, match="no signing key"):
        add(REPOSITORY, gone, root=tmp_path)
    assert list(tmp_path.iterdir()) == []


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
    assert signed_repository._named_elsewhere(REPOSITORY, tmp_path) == (str(path) if named else "")
