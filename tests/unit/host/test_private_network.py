"""Addresses inside a private network by their interface, on this machine; adapters as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

from drafthouse.host.env_stamp import versions
from drafthouse.host.private_network import private_network
from drafthouse.weights.integrity import Note, Verified, manifest_hash, write_note


def test_an_address_is_found_with_its_interface(tmp_path: Path) -> None:
    assert private_network("127.0.0.0/8", tmp_path) == {"addresses": {"127.0.0.1": "lo"}, "infiniband": []}
    assert private_network("240.0.0.0/8", tmp_path)["addresses"] == {}


def test_adapters_whose_link_is_up(tmp_path: Path) -> None:
    for name, state in (("mlx5_1", "4: ACTIVE"), ("mlx5_0", "4: ACTIVE"), ("mlx5_2", "1: DOWN")):
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
    assert private_network("240.0.0.0/8", tmp_path)["infiniband"] == ["mlx5_0", "mlx5_1"]


def test_the_versions_of_what_talks_to_other_hosts(tmp_path: Path) -> None:
    patterns = ("vllm", "torch", "nvidia-nccl-*")
    assert versions(tmp_path, patterns) == {}
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.12.3\n")
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    spoken = {"vllm": "0.32.0", "torch": "2.9.1+cu130", "nvidia-nccl-cu13": "2.28.9"}
    for name, version in {**spoken, "six": "1.17"}.items():
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    assert versions(tmp_path, patterns) == {"Python": "3.12.3", **spoken}


def test_weights_are_told_apart_by_their_hashes_or_else_their_sizes(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    assert manifest_hash(folder) == ""
    folder.mkdir()
    (folder / "a").write_bytes(b"12")
    unknown = manifest_hash(folder)
    (folder / "a").write_bytes(b"123")
    assert manifest_hash(folder) not in ("", unknown)
    hashes = []
    for sha256 in ("1" * 64, "2" * 64):
        entry = Verified(size=3, mtime_ns=1, inode=1, sha256=sha256, git_sha1=None)
        write_note(folder, Note(identity="x", complete=True, files={"a": entry}))
        hashes.append(manifest_hash(folder))
    assert len({unknown, *hashes}) == 3
