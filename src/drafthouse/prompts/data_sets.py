"""Data sets of others that are fetched and not shipped: where each lies, at which commit, and what its bytes are."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import one_problem
from ..core.files import replace_file

_WAIT_S = 60.0


@dataclass(frozen=True)
class DataSet:
    """A file of prompts at a commit; ``form`` is what `drafthouse bench --dataset-format` calls it."""

    url: str
    sha256: str
    size: int
    file: str
    form: str
    licence: str


DATA_SETS = {
    # Read 2026-11-22.
    "spec-bench": DataSet(
        url="https://raw.githubusercontent.com/hemingkx/Spec-Bench/fd2c1cd7d2201ef71db4c5f4e455008f017967bf/"
        "data/spec_bench/question.jsonl",
        sha256="4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04",
        size=698_768,
        file="spec-bench.jsonl",
        form="spec-bench",
        licence="Apache-2.0; its parts are of MT-Bench, WMT14, CNN/DailyMail, Natural Questions, GSM8K and DPR",
    ),
}


def add(wanted: DataSet, folder: Path) -> tuple[Path, bool]:
    """Put a data set into ``folder``; return its path, and whether it had to be fetched.

    Raises DrafthouseError where it cannot be fetched, or is not what it was.
    """
    path = folder / wanted.file
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == wanted.sha256:
        return path, False
    content = _fetched(wanted)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted.sha256:
        raise one_problem(
            "data-set-changed",
            f"{len(content):,} bytes with the sha256 {found}",
            f"{wanted.size:,} bytes with the sha256 {wanted.sha256}",
            "download it manually and inspect it; a proxy may have answered instead",
            wanted.url,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, 0o644)
    except OSError as error:
        raise one_problem(
            "file-unwritable", str(error), "a folder that can be written", "choose another: --to DIR", str(folder)
        ) from error
    return path, True


def _fetched(wanted: DataSet) -> bytes:
    try:
        # The proxies of the environment are used, as for any download.
        with urllib.request.urlopen(wanted.url, timeout=_WAIT_S) as answer:  # noqa: S310 (an address of ours)
            content: bytes = answer.read(wanted.size + 1)  # no more than shows that it is another file
            return content
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise one_problem(
            "download-broke-off",
            str(reason),
            "a download from that address",
            f"try again, or put the file there as {wanted.file}: its hash is verified",
            wanted.url,
        ) from error
