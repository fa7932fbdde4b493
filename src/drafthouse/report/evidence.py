"""Write and check evidence folders, the small committed records of runs on a GPU.

    evidence/<day>-<gpu>-<profile>/
        evidence.json   what was run and where, and the SHA-256 of all other files
        report.json     the report's row (`row.py`), with predicted and used GPU memory
        fixtures/*.json outputs of nvidia-smi and NVML, marked `recorded`, without serial numbers and UUIDs

A folder holds no prompt hashes, paths or hosts of the report. A profile's ``verified`` and docs/proof.md are made from
these folders, so data that may not be from a real GPU run is refused: fixtures that are not `recorded`, an engine that
used no GPU memory, a profile that has changed since, and an `invalid` verdict.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, cast

from ..analysis.words import CANNOT_SAY, DOES_NOT_PAY, PAYS
from ..bench.gpu_text import over_groups
from ..core.documents import BadDocument, Json, json_of, read_json, text_of
from ..core.errors import DrafthouseError, Problem
from ..core.files import replace_file
from ..core.redact import redactor
from ..core.schema import Findings, List, Map, Table, Value, check
from ..profiles.profile_types import Profile
from .archive import Kept
from .report_types import ARMS, Arm
from .row import ROW_SHAPE, Row, row_of

SCHEMA: Final = "drafthouse.evidence/1"
#: In place of a profile's name: a run of `make test-gpu` without a model, that is, of its levels 0 and 1 only.
LANE: Final = "gpu-lane"
MOST_BYTES = 200_000
_WORDS = (PAYS, DOES_NOT_PAY, CANNOT_SAY)
_FILE = re.compile(r"report\.json|level[01]\.json|fixtures/[a-z0-9-]{1,40}\.json")
_NAME = re.compile(r"20\d\d-\d\d-\d\d-[a-z0-9-]+")
# UUIDs of GPUs, which identify a single card; masked ones have zeros.
_UUID = re.compile(r"(?:GPU|MIG)-(?!0{8}-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r'"(?:sha256:)?[0-9a-f]{64}(?=")')
#: Keys of texts by people, such as prompts and paths; evidence must not have them.
_TEXT_KEYS = frozenset(
    ("prompt", "prompts", "messages", "content", "text", "answer", "answers", "completion", "host", "hostname", "path")
)
#: Fraction of the weights' size that the GPUs must have held while an arm answered.
_HELD_SHARE = 0.9


_TEXT = Value(required=True)
_UNKNOWN = Value(required=True, null=True)
_FACTS = Map(
    {
        "schema": Value(required=True, choices=(SCHEMA,)),
        **dict.fromkeys(("day", "gpu", "driver", "profile", "drafthouse"), _TEXT),
        **dict.fromkeys(("profile_sha256", "engine", "engine_version", "verdict"), _UNKNOWN),
        "levels": List(Value(int, low=0, high=3), required=True),
        "files": Table(Value(), required=True),
    }
)
_BYTES = Map({arm: Value(int, required=True, low=0) for arm in ARMS}, required=True)
_MEASURED = Map({"row": ROW_SHAPE, **dict.fromkeys(("weights", "predicted", "held"), _BYTES)})


class Measured(TypedDict):
    """The report.json of an evidence folder; GPU memory is in bytes over all GPUs, by arm."""

    row: Row
    weights: dict[Arm, int]
    predicted: dict[Arm, int]
    held: dict[Arm, int]  # the maximum while the arm was measured


class Evidence(TypedDict):
    """The content of evidence.json; ``day`` is YYYY-MM-DD. Values are None if no profile was measured."""

    schema: Literal["drafthouse.evidence/1"]
    day: str
    gpu: str
    driver: str
    profile: str
    profile_sha256: str | None
    engine: str | None
    engine_version: str | None
    verdict: str | None
    levels: list[int]  # of `make test-gpu`
    drafthouse: str  # its version
    files: dict[str, str]  # SHA-256 by file name


@dataclass(frozen=True)
class Proven:
    """An evidence folder that passed all checks; ``measured`` is None if no profile was measured."""

    folder: Path
    facts: Evidence
    measured: Measured | None

    @property
    def where(self) -> str:
        """The entry for a profile's ``verified``: GPU and day."""
        return f"{self.facts['gpu']}, {self.facts['day']}"


def profile_hash(profile: Profile) -> str:
    """The SHA-256 of a profile without its key ``verified``, which evidence itself changes."""
    settings = {key: value for key, value in profile.items() if key != "verified"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def measured_of(kept: Kept, version: str) -> Measured:
    """The report.json of an evidence folder, from a kept report; ``version`` is Drafthouse's."""
    arms = kept.resolved["arms"]
    weights: dict[Arm, int] = {}
    predicted: dict[Arm, int] = {}
    held: dict[Arm, int] = {}
    for arm in ARMS:
        fit = arms[arm]["fit"]
        weights[arm] = fit["weights"] + fit["draft"]
        predicted[arm] = weights[arm] + fit["overhead"] + fit["kv_needed"]
        gpus = over_groups(kept.results[arm].get("gpus") or [])
        held[arm] = int(sum(gpu["memory_used_max_bytes"] or 0 for gpu in gpus))
    return {"row": row_of(kept, version), "weights": weights, "predicted": predicted, "held": held}


def write(folder: Path, facts: Evidence, files: Mapping[str, Json | Measured]) -> Proven:
    """Write an evidence folder and read it back. Raises DrafthouseError if a check refuses it."""
    hashes = {name: _write(folder / name, data) for name, data in files.items()}
    _write(folder / "evidence.json", {**facts, "files": hashes})
    return read(folder)


def _write(path: Path, data: object) -> str:
    """Write data as JSON; return the SHA-256 of the file."""
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, mode=0o644)
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path) -> Proven:
    """Read an evidence folder. Raises DrafthouseError with all failed checks; `check_profile` is a separate step."""
    findings = Findings(str(folder))
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    _check_files(findings, folder, files)
    _raise_if_any(findings)
    data = read_json(folder / "evidence.json", "what make test-gpu writes", "run make test-gpu again")
    facts = _facts(findings, data)
    _raise_if_any(findings)
    # evidence.json lists all files but itself.
    for name in sorted(set(facts["files"]) ^ (set(files) - {"evidence.json"})):
        _refuse(findings, name, "a file that is unlisted or missing", "the files that were written")
    for name, path in files.items():
        try:
            text = text_of(path.read_bytes())
        except BadDocument as error:
            _refuse(findings, name, str(error), "text in UTF-8, as make test-gpu writes it")
            continue
        if name in facts["files"] and hashlib.sha256(text.encode()).hexdigest() != facts["files"][name]:
            _refuse(findings, name, "content changed since it was written", "the file as it was written")
        _check_text(findings, name, text)
    measured = None
    if "report.json" in facts["files"] and not findings.problems:
        data = read_json(folder / "report.json", "what make test-gpu writes", "run make test-gpu again")
        measured = cast("Measured", data)
        if check(data, _MEASURED, findings, "report.json"):
            _check_measured(findings, facts, measured)
    elif facts["profile"] != LANE and not findings.problems:
        _refuse(findings, "report.json", "no report", f"the report of {facts['profile']}")
    _raise_if_any(findings)
    return Proven(folder, facts, measured)


def check_profile(proven: Proven, profile: Profile, version: str) -> None:
    """Raise DrafthouseError if the profile has changed since the run, or its engine ``version`` has."""
    facts, findings = proven.facts, Findings(str(proven.folder))
    advice = "measure it again"
    if facts["profile_sha256"] != profile_hash(profile):
        found = f"{facts['profile']} has changed settings since"
        _refuse(findings, "profile_sha256", found, "the profile as it was measured", advice)
    if facts["engine_version"] != version:
        found = f"engine version {facts['engine_version']}"
        _refuse(findings, "engine_version", found, f"{version}, the profile's version", advice)
    _raise_if_any(findings)


def all_proven(folder: Path) -> list[Proven]:
    """All evidence folders below ``folder``, the oldest first. Raises DrafthouseError like `read`."""
    return [read(path.parent) for path in sorted(folder.glob("*/evidence.json"))]


def with_verified(text: str, where: str) -> str:
    """A profile's text with ``where`` added to ``verified``. Raises DrafthouseError if that list has several lines."""
    match = re.search(r"(?m)^verified: *\[(.*)\] *$", text)
    if not match and re.search(r"(?m)^verified:", text):
        problem = ("`verified` on several lines", "`verified: [...]` on one line", "put it on one line")
        raise DrafthouseError(Problem("wrong-format", *problem))
    entry = json.dumps(where)
    if not match:
        return f"{text.rstrip()}\nverified: [{entry}]\n"
    if entry in match[1]:
        return text
    entries = ", ".join(filter(None, (match[1].strip(), entry)))
    return f"{text[: match.start()]}verified: [{entries}]{text[match.end() :]}"


# --- checks -----------------------------------------------------------------------------------------------------------


def _refuse(findings: Findings, where: str, found: str, needed: str, do: str = "run make test-gpu again") -> None:
    findings.add("evidence-refused", where, found, needed, do)


def _raise_if_any(findings: Findings) -> None:
    if findings.problems:
        raise DrafthouseError(findings.problems)


def _check_files(findings: Findings, folder: Path, files: Mapping[str, Path]) -> None:
    """Check names and sizes before any file is read."""
    if not _NAME.fullmatch(folder.name):
        _refuse(findings, "", folder.name, "a folder named YYYY-MM-DD-GPU-PROFILE, in lowercase")
    if "evidence.json" not in files:
        _refuse(findings, "", "no evidence.json", "a folder that make test-gpu wrote")
    for name, path in files.items():
        if path.is_symlink() or (name != "evidence.json" and not _FILE.fullmatch(name)):
            _refuse(findings, name, "a file with an unexpected name, or a link", "what make test-gpu writes")
    size = sum(path.lstat().st_size for path in files.values())
    if size > MOST_BYTES:
        _refuse(findings, "", f"{size} bytes", f"{MOST_BYTES} at most")


def _facts(findings: Findings, data: object) -> Evidence:
    """Check the content of evidence.json and return it; problems go to ``findings``."""
    facts = cast("Evidence", data)
    if not check(data, _FACTS, findings, "evidence.json"):
        return facts
    empty = [key for key in ("day", "gpu", "driver", "profile", "drafthouse") if not cast("Any", facts)[key]]
    if empty:
        _refuse(findings, "evidence.json", f"no {', '.join(empty)}", f"{SCHEMA}, as make test-gpu writes it")
    elif not _is_past_day(facts["day"]) or not Path(findings.file).name.startswith(facts["day"]):
        _refuse(findings, "evidence.json", f"the day {facts['day'][:40]}", "the day in the folder's name, in the past")
    return facts


def _is_past_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text) <= datetime.datetime.now(datetime.timezone.utc).date()
    except ValueError:
        return False


def _check_text(findings: Findings, name: str, text: str) -> None:
    """Check that a file has no secret, no text by people and no GPU UUID, and that a fixture is `recorded`."""
    # Remove hashes first, which look like keys to the redactor; fixtures have no hashes.
    without_hashes = text if name.startswith("fixtures/") else _HASH.sub('"', text)
    if redactor()(without_hashes) != without_hashes:
        _refuse(findings, name, "something that looks like a secret", "numbers only", "remove it")
    if _UUID.search(text):
        _refuse(findings, name, "the UUID of a GPU", "UUIDs masked, as make test-gpu masks them")
    try:
        data = json_of(text)
    except BadDocument as error:
        _refuse(findings, name, str(error), "the file as it was written")
        return
    text_keys = sorted(set(_keys(data)) & _TEXT_KEYS)
    if text_keys:
        _refuse(findings, name, f"the keys {', '.join(text_keys)}", "a report without text that people wrote")
    if name.startswith("fixtures/"):
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind != "recorded":
            _refuse(findings, name, f"kind {kind}", "recorded: answers of a real driver")


def _keys(data: object) -> Iterator[str]:
    """Yield all keys, at any depth, whose value is text, a list or a mapping."""
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, str | list | dict):
                yield str(key)
            yield from _keys(value)
    elif isinstance(data, list):
        for value in data:
            yield from _keys(value)


def _check_measured(findings: Findings, facts: Evidence, measured: Measured) -> None:
    """Check that the report agrees with evidence.json, and that the weights were in GPU memory."""
    row: Any = measured["row"]
    word, version, names = row["verdict"], row["engine_version"], set(row["gpus"])
    if word not in _WORDS or word != facts["verdict"]:
        needed = f"{facts['verdict']}, as evidence.json says; one of {', '.join(_WORDS)}"
        _refuse(findings, "report.json", f"the verdict {word}", needed)
    if version != facts["engine_version"]:
        found = f"engine version {version}"
        _refuse(findings, "report.json", found, f"{facts['engine_version']}, as evidence.json says")
    if facts["gpu"] not in names:
        _refuse(findings, "report.json", f"the GPUs {', '.join(sorted(names)) or 'none'}", facts["gpu"])
    for arm in ARMS:
        held, weights = measured["held"][arm], measured["weights"][arm]
        if held <= 0 or held < _HELD_SHARE * weights:
            found = f"{arm}: {held} bytes of GPU memory while it was measured"
            _refuse(findings, "report.json", found, f"its weights on the GPU, {weights} bytes")
