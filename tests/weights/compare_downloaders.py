"""Who fetches the same files how fast, and with how much CPU: http_get into .part files, aria2, ``hf download``.

``python -m tests.weights.compare_downloaders --mib 256 --files 8 --rounds 3``, from the repository's root. The
server is a process of its own that lets the kernel copy (sendfile) from a folder in memory, and the files go to
memory too: what is compared is the client. The rounds alternate, so that a busy neighbour meets all of them.
docs/decisions/ has what this printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from huggingface_hub.file_download import get_hf_file_metadata

from tests.fakes.hub_contents import OnDisk, sha256_of

REPO = "org/model"
HTTP_GET = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from huggingface_hub.file_download import get_hf_file_metadata, http_get
url, folder, *names = sys.argv[1:]
def fetch(name):
    known = get_hf_file_metadata(f"{url}/org/model/resolve/main/{name}")
    with (Path(folder) / (name + ".part")).open("ab") as part:
        http_get(known.location, part, resume_size=part.tell(), expected_size=known.size)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(fetch, names))
"""
HTTPX_RAW = HTTP_GET.replace(
    "    with (Path",
    "    from huggingface_hub.utils import get_session\n"
    "    with get_session().stream('GET', known.location) as answer, open(f'{folder}/{name}.part', 'ab', 0) as part:\n"
    "        for piece in answer.iter_raw():\n"
    "            part.write(piece)\n"
    "    return\n"
    "    with (Path",
)
# The same with the standard library alone: what a reader of our own could win.
OWN_READER = """
import sys, http.client
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit
from huggingface_hub.file_download import get_hf_file_metadata
url, folder, *names = sys.argv[1:]
def fetch(name):
    known = get_hf_file_metadata(f"{url}/org/model/resolve/main/{name}")
    parts = urlsplit(known.location)
    secure = parts.scheme == "https"
    connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(parts.netloc)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer, view = connection.getresponse(), memoryview(bytearray(4 << 20))
    with open(Path(folder) / (name + ".part"), "ab", buffering=0) as part:
        while count := answer.readinto(view):
            part.write(view[:count])
with ThreadPoolExecutor(8) as pool:
    list(pool.map(fetch, names))
"""


def aria2(url: str, folder: Path, hashes: dict[str, str], *, check: bool, connections: int) -> list[str]:
    """Return the command that fetches the files with aria2, each over so many connections."""
    lines = []
    for name, sha256 in hashes.items():
        lines += [f"{url}/{REPO}/resolve/main/{name}", f"  out={name}"]
        lines += [f"  checksum=sha-256={sha256}"] if check else []
    (folder / "list").write_text("\n".join(lines) + "\n")
    each = [f"--max-connection-per-server={connections}", f"--split={connections}", "--min-split-size=16M"]
    quiet = [
        "--quiet",
        "--console-log-level=error",
        "--file-allocation=none",
        "--disk-cache=0",
        "--auto-save-interval=5",
    ]
    trust = [f"--ca-certificate={os.environ['SSL_CERT_FILE']}"] if "SSL_CERT_FILE" in os.environ else []
    return ["aria2c", "--no-conf", *trust, f"--input-file={folder / 'list'}", f"--dir={folder}", "-j8", *each, *quiet]


def certificate(folder: Path) -> Path:
    """Make a certificate for loopback, and its key, in one file."""
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=loopback"]
    also = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "pem")]
    subprocess.run([*words, *also], check=True, capture_output=True)
    (folder / "pem").open("a").write((folder / "key").read_text())
    return folder / "pem"


def timed(words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall time and its CPU time, both in seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - begun, spent


def compare(count: int, mib: int, rounds: int, only: list[str], tls: bool) -> dict[str, list[tuple[float, float]]]:
    """Return each contestant's (wall, CPU) seconds by round."""
    seen: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        room = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm", prefix="drafthouse-")))
        source = room / "source"
        source.mkdir()
        names = [f"model-{i}.safetensors" for i in range(count)]
        for name in names:
            with (source / name).open("wb") as file:
                for _ in range(mib // 16):
                    file.write(os.urandom(16 << 20))
        hashes = {name: sha256_of(OnDisk(source / name)) for name in names}
        words = [sys.executable, "-m", "tests.fakes.hub_server", f"{REPO}={source}"]
        if tls:
            words += ["--certificate", str(certificate(room))]
            os.environ["SSL_CERT_FILE"] = str(room / "pem")
        server = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert server.stdin and server.stdout
        stack.callback(server.stdin.close)
        url = json.loads(server.stdout.readline())["url"]
        hf = str(Path(sys.executable).with_name("hf"))
        for name in names:  # the server hashes a file when it is first asked for it
            get_hf_file_metadata(f"{url}/{REPO}/resolve/main/{name}", timeout=60)

        def python(text: str) -> Callable[[Path], list[str]]:
            return lambda folder: [sys.executable, "-c", text, url, str(folder), *names]

        contestants: dict[str, Callable[[Path], list[str]]] = {
            "hf download": lambda folder: [hf, "download", REPO, "--local-dir", str(folder), "--quiet"],
            "http_get": python(HTTP_GET),
            "httpx2 iter_raw": python(HTTPX_RAW),
            "own reader": python(OWN_READER),
            "aria2 -x1": lambda folder: aria2(url, folder, hashes, check=False, connections=1),
            "aria2 -x4": lambda folder: aria2(url, folder, hashes, check=False, connections=4),
            "aria2 -x1, sha256": lambda folder: aria2(url, folder, hashes, check=True, connections=1),
        }
        environment = {
            **os.environ,
            "HF_ENDPOINT": url, "HF_HOME": str(room / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }  # fmt: skip
        for _ in range(rounds):
            for name, command in contestants.items():
                if (only and name not in only) or (name.startswith("aria2") and not shutil.which("aria2c")):
                    continue
                folder = room / "got"
                folder.mkdir()
                seen.setdefault(name, []).append(timed(command(folder), environment))
                assert [path.stat().st_size for path in folder.glob("model-*")] == [mib << 20] * count, name
                shutil.rmtree(folder)
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--mib", type=int, default=256, help="of each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--tls", action="store_true", help="over https, as the real hub is")
    given = parser.parse_args()
    seen = compare(given.files, given.mib, given.rounds, given.only, given.tls)
    total = given.files * given.mib * 1.048576
    plain = statistics.median(wall for wall, _ in seen[next(iter(seen))])
    for name, runs in seen.items():
        wall, spent = (statistics.median(column) for column in zip(*runs, strict=True))
        print(
            f"{name:20} {total / wall:6.0f} MB/s  {plain / wall:5.2f} x  {spent:5.2f} s CPU  "
            f"({', '.join(f'{one:.2f}' for one, _ in runs)} s)"
        )
