"""Published prompt data sets, downloaded at a pinned commit and checked by sha256; they are not shipped."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import one_problem
from ..core.files import replace_file

_TIMEOUT_S = 60.0  # longest wait for the server


@dataclass(frozen=True)
class DataSet:
    """A prompt file to download."""

    url: str  # with the pinned commit
    sha256: str
    size: int  # in bytes
    file: str  # its local name
    form: str  # its `--dataset-format`
    licence: str


#: The data sets by the name that users give.
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


def add(data_set: DataSet, folder: Path) -> tuple[Path, bool]:
    """Download a data set into ``folder`` unless it is there; return its path, and True if it was downloaded.

    Raises DrafthouseError if the download fails, its sha256 is wrong, or ``folder`` cannot be written.
    """
    path = folder / data_set.file
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == data_set.sha256:
        return path, False
    content = _fetched(data_set)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != data_set.sha256:
        raise one_problem(
            "data-set-changed",
            f"{len(content):,} bytes with the sha256 {sha256}",
            f"{data_set.size:,} bytes with the sha256 {data_set.sha256}",
            "download it manually and inspect it; a proxy may have answered instead",
            data_set.url,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, 0o644)
    except OSError as error:
        raise one_problem(
            "file-unwritable", str(error), "a folder that can be written", "choose another: --to DIR", str(folder)
        ) from error
    return path, True


def _fetched(data_set: DataSet) -> bytes:
    """The content at the data set's address, unchecked. Raises DrafthouseError if the download fails."""
    try:
        # urlopen uses the proxies of the environment.
        with urllib.request.urlopen(data_set.url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (a constant address)
            content: bytes = answer.read(data_set.size + 1)  # one byte more shows that the file is too large
            return content
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise one_problem(
            "download-broke-off",
            str(reason),
            "a download from that address",
            f"try again, or put the file there as {data_set.file}: its hash is verified",
            data_set.url,
        ) from error
