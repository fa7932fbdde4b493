"""Target, draft and image at once over a link of 200 Mbit/s: the link is full, and the slowest of them is the end.

Two network namespaces with a token bucket between them (``tc``: TBF). The image is played by a plain third download;
it is Docker that pulls it in reality.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.fakes.hub_server import COMMIT
from tests.weights.harness import ROOT, clean_environment, done

pytestmark = pytest.mark.alone

RATE = 200e6 / 8  # bytes/s of the link, all headers included
MB = 1_000_000
BOUND = 1.10  # of bytes / rate, of which TCP's and Ethernet's headers take 0.046
TRIES = 4  # a busy machine hashes late: whoever has two cores and other tests on them gets another try
MODULE = "ansible_collections.drafthouse.core.plugins.modules.weights"
PULL = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1] + "/library/image/resolve/main/layer.bin") as answer:
    while answer.read(1 << 20):
        pass
"""
HERE, THERE = "10.213.77.2", "10.213.77.1"


@contextmanager
def limited_link() -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words that start a program on either side: the hub's, and the box's. Skips without the right to."""
    near, far = f"drafthouse-box-{os.getpid()}", f"drafthouse-hub-{os.getpid()}"
    one, other = f"dhb{os.getpid() % 100000}", f"dhh{os.getpid() % 100000}"
    setup = f"""
        ip netns add {near}; ip netns add {far}
        ip link add {one} netns {near} type veth peer name {other} netns {far}
        ip -n {near} addr add {HERE}/30 dev {one}; ip -n {far} addr add {THERE}/30 dev {other}
        ip -n {near} link set {one} up; ip -n {far} link set {other} up
        ip -n {far} link set lo up; ip -n {near} link set lo up
        tc -n {far} qdisc add dev {other} root tbf rate 200mbit burst 128kb latency 50ms
    """
    try:
        done_ = subprocess.run(["bash", "-ec", setup], capture_output=True, text=True, check=False)
        if done_.returncode:
            pytest.skip(f"needs network namespaces and tc (root): {done_.stderr.strip()}")
        yield ["ip", "netns", "exec", far], ["ip", "netns", "exec", near]
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def safetensors_file(path: Path, size: int) -> None:
    """Write a file in the format, one tensor of ``size`` bytes."""
    path.parent.mkdir(parents=True)
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for at in range(0, size, 16 * MB):
            file.write(os.urandom(min(16 * MB, size - at)))


class Link:
    """A hub on the other side of the link, and what is fetched from it."""

    def __init__(self, room: Path, sizes: dict[str, int], stack: ExitStack) -> None:
        self.room = room
        for name, size in sizes.items():
            file = {"image": "layer.bin"}.get(name, "model.safetensors")
            safetensors_file(room / "source" / name / file, size)
        far, self.near = stack.enter_context(limited_link())
        repos = [f"{'library' if name == 'image' else 'org'}/{name}={room / 'source' / name}" for name in sizes]
        words = [*far, sys.executable, "-m", "tests.fakes.hub_server", "--host", THERE, *repos]
        server = stack.enter_context(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        )
        assert server.stdin
        assert server.stdout
        stack.callback(server.stdin.close)
        self.url = json.loads(server.stdout.readline())["url"]
        self.environment = clean_environment(room / "hf") | {"HF_ENDPOINT": self.url}
        self.bytes = sum(path.stat().st_size for path in (room / "source").rglob("*.*"))
        # The server hashes its files when they are first asked for: not on our time.
        listing = "; ".join(
            f"u.urlopen('{self.url}/api/models/org/{name}/tree/main').read()" for name in sizes if name != "image"
        )
        subprocess.run([*self.near, sys.executable, "-c", f"import urllib.request as u; {listing}"], check=True)

    def weights(self, folder: str, *names: str) -> subprocess.Popen[str]:
        """Start the module ``weights`` for some of the models."""
        items = [
            {
                "id": name, "name": name, "source": "hub", "bytes": 1, "path": str(self.room / folder / name),
                "details": {"repo": f"org/{name}", "revision": COMMIT},
            }
            for name in names
        ]  # fmt: skip
        (self.room / folder).mkdir(exist_ok=True)
        arguments = {"items": items, "engine_python": sys.executable, "uv": "uv", "lock": str(self.room / "lock")}
        return self.start(["-m", MODULE], json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))

    def image(self) -> subprocess.Popen[str]:
        """Start the third stream."""
        return self.start(["-c", PULL, self.url])

    def start(self, words: list[str], given: str = "") -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            [*self.near, sys.executable, *words],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self.environment,
        )  # fmt: skip
        assert child.stdin
        child.stdin.write(given)
        child.stdin.close()
        child.stdin = None
        return child


def timed(*starts: Callable[[], subprocess.Popen[str]]) -> float:
    """Start all at once; return the seconds until the last one has ended."""
    begun = time.monotonic()
    for child in [start() for start in starts]:
        ended = done(child, begun, 300)
        assert ended.returned == 0, ended.text
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("sizes", "apart_too"),
    [
        ({"target": 440 * MB, "draft": 100 * MB, "image": 260 * MB}, False),
        pytest.param({"target": 1600 * MB, "draft": 300 * MB, "image": 600 * MB}, True, marks=pytest.mark.soak),
    ],
    ids=["800 MB", "2.5 GB"],
)
def test_target_draft_and_image_fill_the_link(
    sizes: dict[str, int], apart_too: bool, figure: Callable[[str], None]
) -> None:
    """The long one also fetches one after another, which is shown beside it."""
    with ExitStack() as stack:
        room = Path(stack.enter_context(TemporaryDirectory(dir="/dev/shm", prefix="drafthouse-test-")))
        link = Link(room, sizes, stack)
        least = link.bytes / RATE
        took: list[float] = []
        while not took or (min(took) > BOUND * least and len(took) < TRIES):
            folder = f"together{len(took)}"
            took.append(timed(partial(link.weights, folder, "target", "draft"), link.image))
            for name in ("target", "draft"):
                fetched, source = (room / where / name / "model.safetensors" for where in (folder, "source"))
                assert filecmp.cmp(fetched, source, shallow=False)
            shutil.rmtree(room / folder)
        text = "at once " + ", again ".join(f"{one:.1f} s ({one / least:.3f} of bytes / rate)" for one in took)
        if apart_too:
            alone = (lambda: link.weights("apart", "target"), lambda: link.weights("apart", "draft"), link.image)
            apart = sum(timed(start) for start in alone)
            text += f", one after another {apart:.1f} s ({apart / least:.3f})"
        figure(f"{link.bytes / MB:.0f} MB over 200 Mbit/s (headers included), target, draft and image: {text}")
        assert min(took) <= BOUND * least
