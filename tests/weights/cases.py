"""What can go wrong on the way from the hub to the disk, and how each must end: the lines of faults.md beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.hub_contents import as_content, data_of, etag_of
from tests.fakes.hub_server import ALWAYS, COMMIT, RIGHT, STRANGER, Fault, Hub
from tests.weights.harness import FIRST, INDEX, OTHER, SECOND, a_model, safetensors


@dataclass
class Case:
    """A fault: what goes wrong at the hub, or lies in the destination before; ``ends`` right or in an error."""

    title: str
    ends: str  # "right", or words that the error must have
    hub: Callable[[Hub], object] = lambda hub: None
    before: Callable[[Path], object] = lambda dest: None
    options: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""  # words that a run which ended right must have said
    spare: int = 0  # bytes that may be sent beyond the size, without which the fault cannot be mended
    at_least_s: float = 0
    asked_for_none: bool = False  # nothing may be fetched at all
    leaves: tuple[str, ...] = ()  # what may lie there beside the files, and only that
    again: bool = True  # an error passes: without the fault the next run ends right


def size_of(name: str) -> int:
    return as_content(a_model()[name]).size


BIG, SMALL = size_of(FIRST), size_of(SECOND)


def faults(*given: Fault, of: str = FIRST) -> Callable[[Hub], object]:
    return lambda hub: hub.faults.update({of: list(given)})


def changed(**values: Any) -> Callable[[Hub], object]:
    def change(hub: Hub) -> None:
        for name, value in values.items():
            setattr(hub, name, value)

    return change


def with_name(name: str) -> Callable[[Hub], object]:
    return changed(files={**a_model(), name: b"from outside\n"})


def lie(name: str, data: bytes) -> Callable[[Path], object]:
    def write(dest: Path) -> None:
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        (dest / name).write_bytes(data)

    return write


def link(name: str, target: str) -> Callable[[Path], object]:
    def plant(dest: Path) -> None:
        victim = dest.parent / target
        (victim if target.endswith("/") else victim.parent).mkdir(parents=True, exist_ok=True)
        if not target.endswith("/"):
            victim.write_bytes(b"keep\n")
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        (dest / name).symlink_to(victim)

    return plant


PART = f".drafthouse-parts/{etag_of(FIRST, a_model()[FIRST])}.part"
RIGHT_HALF = data_of(a_model()[FIRST])[: BIG // 2]
ORPHAN = ".cache/huggingface/download/x.0a1b2c3d.incomplete"
TENTHS = [Fault(cut_at=BIG * tenth // 10) for tenth in range(1, 10)]
RESETS = [Fault(cut_at=BIG * tenth // 10, reset=True) for tenth in range(1, 10)]

ON_THE_WAY = (
    Case("a slow connection", "right", faults(Fault(ALWAYS, rate=BIG))),
    Case("a stall (no byte for `stall_s`)", "right", faults(Fault(stall_at=BIG // 2)), options={"stall_s": 1},
        spare=1 << 20, at_least_s=1),
    Case("a stall at the same byte each time", "no byte for 1 s", faults(Fault(ALWAYS, stall_at=BIG // 2)),
        options={"stall_s": 1}),
    Case("a connection cut at every tenth of a file", "right", faults(*TENTHS), at_least_s=0),
    Case("a connection reset at every tenth of a file", "right", faults(*RESETS), spare=9 << 20),
    Case("a connection cut at the same byte each time", "ended too early", faults(Fault(ALWAYS, cut_at=BIG // 2))),
    Case("429 for a file, with Retry-After", "right", faults(Fault(2, status=429, retry_after="2")), at_least_s=4),
    Case("503 for a file, with Retry-After", "right", faults(Fault(1, status=503, retry_after="3")), at_least_s=3),
    Case("503 for a file, always", "HTTP 503", faults(Fault(ALWAYS, status=503))),
    Case("429 with a Retry-After of a day", "86400", faults(Fault(ALWAYS, status=429, retry_after="86400"))),
    Case("429 for the listing", "right", faults(Fault(1, status=429, retry_after="2"), of="api"), at_least_s=2),
    Case("500 for the listing, always", "HTTP 500", faults(Fault(ALWAYS, status=500), of="api"), asked_for_none=True),
    Case("a login page instead of the listing", "not JSON", faults(Fault(ALWAYS, status=200), of="api"),
        asked_for_none=True),
    Case("a login page instead of a file, once", "right", faults(Fault(status=200)), says="fetched again", spare=BIG),
    Case("500 on the way to a file", "right", faults(Fault(2, status=500), of=f"resolve:{FIRST}")),
    Case("an address of the CDN that has expired (403)", "right", faults(Fault(status=403))),
    Case("a server without ranges, and a cut", "right", faults(Fault(cut_at=BIG // 2), Fault(no_range=True)),
        spare=BIG),
    Case("an answer shorter than it says", "right", faults(Fault(length_off=1000)), spare=1000),
    Case("an answer longer than it says", "right", faults(Fault(length_off=-1000)), spare=1000),
    Case("wrong bytes, once", "right", faults(Fault(wrong_at=BIG // 3)), says="fetched again", spare=BIG,
        leaves=(f"{FIRST}.wrong",)),
    Case("wrong bytes, always", "sha256", faults(Fault(ALWAYS, wrong_at=BIG // 3)), leaves=(f"{FIRST}.wrong",)),
    Case("wrong bytes of a small file, always", "wrong", faults(Fault(ALWAYS, wrong_at=3), of="config.json"),
        leaves=("config.json.wrong",)),
)  # fmt: skip
AT_THE_DOOR = (
    Case("a gated repository, no token", "accept it at", changed(gated=True), asked_for_none=True),
    Case("a gated repository, a token without access", "accept it at", changed(gated=True),
        options={"hub_token": STRANGER}, asked_for_none=True),
    Case("a gated repository, the right token", "right", changed(gated=True), options={"hub_token": RIGHT}),
    Case("a token that the hub does not know", "does not accept the token", options={"hub_token": "hf_old"},
        asked_for_none=True),
    Case("no such repository", "no repository org/none", options={"repo": "org/none"}, asked_for_none=True,
        again=False),
    Case("no such revision", "the revision does not", options={"revision": OTHER}, asked_for_none=True, again=False),
    Case("patterns that match nothing", "none of the 5 files", options={"allow": ["*.gguf"]}, asked_for_none=True,
        again=False),
    Case("no hub in reach", "access to the Hugging Face hub", options={"endpoint": "http://127.0.0.1:9"},
        asked_for_none=True),
    Case("a file name with `..` in the listing", "'../../evil'", with_name("../../evil"), asked_for_none=True),
    Case("an absolute file name in the listing", "'/tmp/evil'", with_name("/tmp/evil"), asked_for_none=True),
    Case("a backslash in a file name of the listing", "a name below the folder", with_name("..\\evil"),
        asked_for_none=True),
    Case("a control character in a file name of the listing", "printable", with_name("a\x1b[2J"), asked_for_none=True),
)  # fmt: skip
ON_THE_DISK = (
    Case("a symlink planted for a file", "link", before=link(FIRST, "victim"), asked_for_none=True, leaves=(FIRST,)),
    Case("a symlink planted for a folder", "link", before=link("original", "victims/"), asked_for_none=True,
        leaves=("original",)),
    Case("a symlink planted for the folder of parts", "link", before=link(".drafthouse-parts", "victims/"),
        asked_for_none=True, leaves=(".drafthouse-parts",)),
    Case("a symlink planted for a part", "link", before=link(PART, "victim"), leaves=(PART,)),
    Case("half a file left by a killed run", "right", before=lie(PART, RIGHT_HALF), spare=-(BIG // 2)),
    Case("a part with wrong bytes", "right", before=lie(PART, b"x" * (BIG // 2)), spare=BIG // 2,
        leaves=(f"{FIRST}.wrong",)),
    Case("a part longer than the file", "right", before=lie(PART, b"x" * (BIG + 5))),
    Case("wrong bytes under a file's name", "right", before=lie(FIRST, b"x" * BIG), leaves=(f"{FIRST}.wrong",)),
    Case("half a file under its own name", "right", before=lie(FIRST, RIGHT_HALF), leaves=(f"{FIRST}.wrong",)),
    Case("the right file under its own name", "right", before=lie(FIRST, data_of(a_model()[FIRST])), spare=-BIG),
    Case("orphans of other tools and revisions", "right",
        before=lambda dest: (
            lie(ORPHAN, b"x" * 999)(dest), lie(f".drafthouse-parts/{'e' * 64}.part", b"x" * 999)(dest))),
)  # fmt: skip
CASES = (*ON_THE_WAY, *AT_THE_DOOR, *ON_THE_DISK)
#: Faults that need more than one run, or a machine set up for them: test_disks.py, test_changes.py, test_xet.py.
OTHERS = (
    "a file that changes between runs (a branch that moved)",
    "a file changed on the disk after it was verified",
    "a disk that is too small",
    "a disk that fills up meanwhile",
    "a full inode table",
    "an inode table that fills up meanwhile",
    "a read-only folder",
    "Xet that works",
    "Xet without its store (then plain HTTP)",
    "Xet that hangs (then plain HTTP)",
    "`kill -9` at random moments",
)
TITLES = (*(case.title for case in CASES), *OTHERS)

__all__ = ["CASES", "COMMIT", "INDEX", "TITLES", "Case", "safetensors"]
