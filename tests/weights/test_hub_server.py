"""The tests' hub, asked by the real client: what it says must be what huggingface_hub 2.4.0 reads from the real one."""

from __future__ import annotations

import io
import subprocess
import time
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, get_hf_file_metadata
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.file_download import http_get

from tests.fakes.hub_contents import Content, Made, data_of, git_sha1_of, sha256_of
from tests.fakes.hub_server import COMMIT, RIGHT, STRANGER, Fault, Hub, hub_server

BIG = Made(3_500_000, 1)
FILES: dict[str, Content | bytes] = {"config.json": b"{}\n", "sub/model.safetensors": BIG}
OTHER = "b" * 40


def api(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.url)


def resolve(hub: Hub, name: str) -> str:
    return f"{hub.url}/{hub.repo}/resolve/{COMMIT}/{name}"


def test_git_knows_a_small_file_by_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello\n")
    told = subprocess.run(["git", "hash-object", tmp_path / "f"], capture_output=True, text=True, check=True).stdout
    assert git_sha1_of(b"hello\n") == told.strip()


def test_info_and_listing() -> None:
    many: dict[str, Content | bytes] = {f"part-{i:03}.txt": b"x" * i for i in range(25)}
    with hub_server(Hub({**FILES, **many}, page=10)) as hub:
        info = api(hub).model_info(hub.repo, files_metadata=True)
        assert info.sha == COMMIT
        lfs = next(s for s in info.siblings if s.rfilename == "sub/model.safetensors").lfs
        assert (lfs.sha256, lfs.size) == (sha256_of(BIG), BIG.size)
        tree = {entry.path: entry for entry in api(hub).list_repo_tree(hub.repo, recursive=True)}
        assert set(tree) == {*FILES, *many, "sub"}
        assert tree["sub/model.safetensors"].lfs.sha256 == sha256_of(BIG)
        assert tree["config.json"].blob_id == git_sha1_of(b"{}\n")
        asked = [path for path in hub.asked if "/tree/" in path]
        assert len(asked) == 3  # ten to a page
        [one] = api(hub).get_paths_info(hub.repo, ["config.json"])
        assert one.size == 3


def test_the_way_to_a_file() -> None:
    with hub_server(Hub(FILES)) as hub:
        known = get_hf_file_metadata(resolve(hub, "sub/model.safetensors"))
        assert (known.etag, known.size, known.commit_hash) == (sha256_of(BIG), BIG.size, COMMIT)
        assert not known.location.startswith(hub.url)  # another origin
        small = get_hf_file_metadata(resolve(hub, "config.json"))
        assert (small.etag, small.size) == (git_sha1_of(b"{}\n"), 3)
        file = io.BytesIO()
        http_get(known.location, file)
        assert file.getvalue() == data_of(BIG)
        file.truncate(1_000_001)
        file.seek(1_000_001)
        http_get(known.location, file, resume_size=1_000_001, expected_size=BIG.size)
        assert file.getvalue() == data_of(BIG)
        assert hub.sent_of == {"sub/model.safetensors": 2 * BIG.size - 1_000_001}
        assert httpx2.get(known.location, headers={"Range": f"bytes={BIG.size}-"}).status_code == 416
        assert httpx2.get(resolve(hub, "config.json"), follow_redirects=True).content == b"{}\n"


def test_who_may_read() -> None:
    with hub_server(Hub(FILES, gated=True)) as hub:
        assert api(hub).model_info(hub.repo, token=False).sha == COMMIT  # that it exists is no secret
        for token in (False, STRANGER):
            with pytest.raises(GatedRepoError):
                api(hub).auth_check(hub.repo, token=token)
        api(hub).auth_check(hub.repo, token=RIGHT)
        with pytest.raises(GatedRepoError):
            get_hf_file_metadata(resolve(hub, "config.json"), token=False)
        known = get_hf_file_metadata(resolve(hub, "sub/model.safetensors"), token=RIGHT)
        assert httpx2.get(known.location).status_code == 200  # a signed address needs no token
        for token in (False, RIGHT):
            with pytest.raises(RepositoryNotFoundError):
                api(hub).model_info("org/none", token=token)
        with pytest.raises(RevisionNotFoundError):
            api(hub).model_info(hub.repo, revision="none")
        assert httpx2.get(resolve(hub, "x"), headers={"Authorization": "Bearer hf_old"}).status_code == 401
        assert hub.tokens_at_cdn == 0


def test_revisions_and_branches() -> None:
    with hub_server(Hub(FILES, commits={OTHER: {"config.json": b"[]\n"}}, refs={"main": COMMIT, "v/2": OTHER})) as hub:
        assert api(hub).model_info(hub.repo, revision="v/2").sha == OTHER
        assert [entry.path for entry in api(hub).list_repo_tree(hub.repo, revision="v/2")] == ["config.json"]
        url = f"{hub.url}/{hub.repo}/resolve/v%2F2/config.json"
        assert httpx2.get(url, follow_redirects=True).content == b"[]\n"


def test_what_goes_wrong_once_and_then_no_more() -> None:
    with hub_server(Hub({"f.bin": b"0123456789"})) as hub:
        url = httpx2.get(resolve(hub, "f.bin")).headers["Location"]
        hub.faults["f.bin"] = [
            Fault(status=503, retry_after="7"),
            Fault(wrong_at=3),
            Fault(no_range=True),
        ]
        answer = httpx2.get(url)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "7")
        assert httpx2.get(url).content == b"012\xcc456789"
        answer = httpx2.get(url, headers={"Range": "bytes=5-"})
        assert (answer.status_code, answer.content) == (200, b"0123456789")
        answer = httpx2.get(url, headers={"Range": "bytes=5-"})
        assert (answer.status_code, answer.content) == (206, b"56789")
        for fault in (Fault(cut_at=4), Fault(cut_at=4, reset=True), Fault(length_off=5)):
            hub.faults["f.bin"] = [fault]
            with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                httpx2.get(url)
            assert httpx2.get(url).content == b"0123456789"
        hub.faults["f.bin"] = [Fault(length_off=-4)]
        assert httpx2.get(url).content == b"012345"
        hub.faults["f.bin"] = [Fault(stall_at=4)]
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.get(url, timeout=0.3)
        hub.faults["resolve:f.bin"] = [Fault(status=429, retry_after="1")]
        assert [httpx2.head(resolve(hub, "f.bin")).status_code for _ in range(2)] == [429, 302]
        hub.faults["api"] = [Fault(status=500)]
        assert [httpx2.get(f"{hub.url}/api/models/{hub.repo}").status_code for _ in range(2)] == [500, 200]


@pytest.mark.parametrize("shared", [False, True])
def test_a_slow_one_keeps_its_rate(shared: bool) -> None:
    with hub_server(Hub({"f.bin": Made(1_000_000, 2)}, rate=2e6 if shared else 0)) as hub:
        url = httpx2.get(resolve(hub, "f.bin")).headers["Location"]
        hub.faults["f.bin"] = [Fault(rate=0 if shared else 2e6)]
        took: list[float] = []
        while len(took) < 4 and min(took, default=1.0) > 0.9:  # a busy machine lengthens one
            begun = time.monotonic()
            httpx2.get(url)
            took.append(time.monotonic() - begun)
        assert min(took) < 0.9
        assert all(seconds > 0.4 for seconds in took)
