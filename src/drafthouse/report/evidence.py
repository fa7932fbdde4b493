"""Write and check evidence folders, the small committed records of runs on a GPU.

    evidence/<day>-<gpu>-<profile>/
        evidence.json   what was run and where, and the SHA-256 of all other files
        report.json     the report's row (`row.py`: the report reduced to its public fields), with the GPU memory that
                        was predicted and used; missing if no profile was measured
        level0.json, level1.json   results of these levels of `make test-gpu` (docs/gpu-lane.md)
        fixtures/*.json outputs of nvidia-smi and NVML, marked `recorded`, without serial numbers and UUIDs

A folder holds no hashes of prompts, no paths and no hosts, all of which a report has. A profile's ``verified`` and
docs/proof.md are made from these folders, so anything that might not come from a real GPU run is refused: fixtures that
are not `recorded`, an engine that used no GPU memory, a profile that has changed since, and an `invalid` verdict.
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
#: Stands in place of a profile's name if only levels 0 and 1 of `make test-gpu` were run, which measure no profile.
NO_PROFILE: Final = "gpu-lane"
#: The maximum size of a folder's files together. Folders are committed, so they have to be small.
MAX_FOLDER_BYTES = 200_000
#: The verdicts that evidence may have: all except `invalid`.
_VERDICTS = (PAYS, DOES_NOT_PAY, CANNOT_SAY)
#: The paths of the files that a folder may contain besides evidence.json.
_FILE = re.compile(r"report\.json|level[01]\.json|fixtures/[a-z0-9-]{1,40}\.json")
#: The name of a folder: its day, GPU and profile.
_NAME = re.compile(r"20\d\d-\d\d-\d\d-[a-z0-9-]+")
#: A UUID of a GPU, which identifies a single card. Masked UUIDs, which begin with eight zeros, do not match.
_UUID = re.compile(r"(?:GPU|MIG)-(?!0{8}-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
#: A SHA-256 as a JSON string, without the closing quotation mark.
_SHA256 = re.compile(r'"(?:sha256:)?[0-9a-f]{64}(?=")')
#: Keys that hold prompts, answers, host names and paths in other files; evidence must not have them.
_PRIVATE_KEYS = frozenset(
    ("prompt", "prompts", "messages", "content", "text", "answer", "answers", "completion", "host", "hostname", "path")
)
#: The GPU memory in use while an arm answered must be at least this fraction of the weights' size.
_MIN_WEIGHTS_SHARE = 0.9
#: The default advice for a refused folder.
_RUN_AGAIN = "run make test-gpu again"

#: The shapes of evidence.json and report.json, which match `EvidenceFacts` and `EvidenceReport`.
_REQUIRED_TEXT = Value(required=True)
_TEXT_OR_NULL = Value(required=True, null=True)
_FACTS = Map(
    {
        "schema": Value(required=True, choices=(SCHEMA,)),
        **dict.fromkeys(("day", "gpu", "driver", "profile", "drafthouse"), _REQUIRED_TEXT),
        **dict.fromkeys(("profile_sha256", "engine", "engine_version", "verdict"), _TEXT_OR_NULL),
        "levels": List(Value(int, low=0, high=3), required=True),
        "files": Table(Value(), required=True),
    }
)
_BYTES_BY_ARM = Map({arm: Value(int, required=True, low=0) for arm in ARMS}, required=True)
_MEASURED = Map({"row": ROW_SHAPE, **dict.fromkeys(("weights", "predicted", "held"), _BYTES_BY_ARM)})


class EvidenceReport(TypedDict):
    """The report.json of an evidence folder; GPU memory is in bytes over all GPUs, by arm."""

    row: Row  # the report, as `row.py` reduces it
    weights: dict[Arm, int]  # weights of the target, and of the draft model if the arm has one
    predicted: dict[Arm, int]  # what the plan said before the run
    held: dict[Arm, int]  # the maximum in use while the arm answered


class EvidenceFacts(TypedDict):
    """The content of evidence.json: what was run, and where. Values are None if no profile was measured."""

    schema: Literal["drafthouse.evidence/1"]
    day: str  # of the run, YYYY-MM-DD
    gpu: str  # name of the GPU, as its driver gives it
    driver: str  # version of the driver
    profile: str  # name of the profile; `NO_PROFILE` if none was measured
    profile_sha256: str | None  # from `profile_hash`, when the profile was measured
    engine: str | None
    engine_version: str | None
    verdict: str | None  # one of `_VERDICTS`
    levels: list[int]  # the levels of `make test-gpu` that were run
    drafthouse: str  # version of Drafthouse
    files: dict[str, str]  # SHA-256 of each other file, by its path in the folder


@dataclass(frozen=True)
class CheckedEvidence:
    """An evidence folder that passed all checks; ``measured`` is None if no profile was measured."""

    folder: Path
    facts: EvidenceFacts
    measured: EvidenceReport | None

    @property
    def gpu_and_day(self) -> str:
        """The GPU and the day of the run, as an entry of a profile's ``verified``."""
        return f"{self.facts['gpu']}, {self.facts['day']}"


def profile_hash(profile: Profile) -> str:
    """The SHA-256 of a profile without its key ``verified``, which evidence itself changes."""
    settings = {key: value for key, value in profile.items() if key != "verified"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":"), default=str).encode()).hexdigest()


def evidence_report(kept: Kept, version: str) -> EvidenceReport:
    """The report.json of an evidence folder, from a kept report; ``version`` is Drafthouse's.

    A GPU whose memory could not be read counts as 0 bytes, which can only make `read` refuse the folder.
    """
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


def write(folder: Path, facts: EvidenceFacts, files: Mapping[str, Json | EvidenceReport]) -> CheckedEvidence:
    """Write an evidence folder and read it back. Raises DrafthouseError if a check refuses it.

    ``files`` are the contents by path in the folder; their hashes replace those of ``facts``.
    """
    hashes = {name: _write(folder / name, data) for name, data in files.items()}
    _write(folder / "evidence.json", {**facts, "files": hashes})
    return read(folder)


def _write(path: Path, data: object) -> str:
    """Write data as JSON; return the SHA-256 of the file."""
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, mode=0o644)
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path) -> CheckedEvidence:
    """Read an evidence folder and check everything that it can tell by itself (`check_profile` needs the profile).

    The checks have four stages: names and sizes, evidence.json, the text of all files, report.json. The first stage
    with a failed check raises DrafthouseError, which has all failures of that stage.
    """
    findings = Findings(str(folder))
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.is_dir()}
    _check_files(findings, folder, files)
    _raise_if_any(findings)
    facts = _checked_facts(findings, read_json(folder / "evidence.json", "what make test-gpu writes", _RUN_AGAIN))
    _raise_if_any(findings)
    _check_contents(findings, files, facts["files"])
    _raise_if_any(findings)
    measured = None
    if "report.json" in facts["files"]:
        data = read_json(folder / "report.json", "what make test-gpu writes", _RUN_AGAIN)
        measured = cast("EvidenceReport", data)
        if check(data, _MEASURED, findings, "report.json"):
            _check_measured(findings, facts, measured)
    elif facts["profile"] != NO_PROFILE:
        _refuse(findings, "report.json", found="no report", needed=f"the report of {facts['profile']}")
    _raise_if_any(findings)
    return CheckedEvidence(folder, facts, measured)


def check_profile(evidence: CheckedEvidence, profile: Profile, engine_version: str) -> None:
    """Raise DrafthouseError if the profile, or the engine's version that it resolves to, has changed since the run."""
    facts = evidence.facts
    findings = Findings(str(evidence.folder))
    advice = "measure it again"
    if facts["profile_sha256"] != profile_hash(profile):
        found = f"{facts['profile']} has changed settings since"
        _refuse(findings, "profile_sha256", found=found, needed="the profile as it was measured", do=advice)
    if facts["engine_version"] != engine_version:
        found = f"engine version {facts['engine_version']}"
        _refuse(findings, "engine_version", found=found, needed=f"{engine_version}, the profile's version", do=advice)
    _raise_if_any(findings)


def all_evidence(folder: Path) -> list[CheckedEvidence]:
    """All evidence folders below ``folder``, the oldest first. Raises DrafthouseError like `read`."""
    return [read(path.parent) for path in sorted(folder.glob("*/evidence.json"))]


def add_verified_entry(text: str, gpu_and_day: str) -> str:
    """A profile's text with ``gpu_and_day`` as the last entry of ``verified``; unchanged if it has the entry already.

    If the profile has no ``verified``, a line for it is appended. Raises DrafthouseError if the list has several lines.
    """
    match = re.search(r"(?m)^verified: *\[(.*)\] *$", text)
    if not match and re.search(r"(?m)^verified:", text):
        problem = ("`verified` on several lines", "`verified: [...]` on one line", "put it on one line")
        raise DrafthouseError(Problem("wrong-format", *problem))
    entry = json.dumps(gpu_and_day)
    if not match:
        return f"{text.rstrip()}\nverified: [{entry}]\n"
    if entry in match[1]:
        return text
    entries = ", ".join(filter(None, (match[1].strip(), entry)))
    return f"{text[: match.start()]}verified: [{entries}]{text[match.end() :]}"


# --- checks -----------------------------------------------------------------------------------------------------------


def _refuse(findings: Findings, place: str, *, found: str, needed: str, do: str = _RUN_AGAIN) -> None:
    """Add a problem: what was found at a place, what is needed, and what to do.

    ``place`` is the path of a file in the folder, or a key of evidence.json; "" is the folder itself.
    """
    findings.add("evidence-refused", place, found, needed, do)


def _raise_if_any(findings: Findings) -> None:
    if findings.problems:
        raise DrafthouseError(findings.problems)


def _check_files(findings: Findings, folder: Path, files: Mapping[str, Path]) -> None:
    """Check names and sizes before any file is read."""
    if not _NAME.fullmatch(folder.name):
        _refuse(findings, "", found=folder.name, needed="a folder named YYYY-MM-DD-GPU-PROFILE, in lowercase")
    if "evidence.json" not in files:
        _refuse(findings, "", found="no evidence.json", needed="a folder that make test-gpu wrote")
    for name, path in files.items():
        if path.is_symlink() or (name != "evidence.json" and not _FILE.fullmatch(name)):
            found = "a file with an unexpected name, or a link"
            _refuse(findings, name, found=found, needed="what make test-gpu writes")
    size = sum(path.lstat().st_size for path in files.values())
    if size > MAX_FOLDER_BYTES:
        _refuse(findings, "", found=f"{size} bytes", needed=f"{MAX_FOLDER_BYTES} at most")


def _checked_facts(findings: Findings, data: object) -> EvidenceFacts:
    """The content of evidence.json. If this adds problems to ``findings``, the content may be malformed."""
    place = "evidence.json"
    facts = cast("EvidenceFacts", data)
    if not check(data, _FACTS, findings, place):
        return facts
    empty = [key for key in ("day", "gpu", "driver", "profile", "drafthouse") if not cast("Any", facts)[key]]
    if empty:
        _refuse(findings, place, found=f"no {', '.join(empty)}", needed=f"{SCHEMA}, as make test-gpu writes it")
    elif not _is_day_not_in_future(facts["day"]) or not Path(findings.file).name.startswith(facts["day"]):
        found = f"the day {facts['day'][:40]}"
        _refuse(findings, place, found=found, needed="the date in the folder's name, not later than today (UTC)")
    return facts


def _is_day_not_in_future(text: str) -> bool:
    """True if ``text`` is a day as YYYY-MM-DD, at the latest today in UTC."""
    try:
        return datetime.date.fromisoformat(text) <= datetime.datetime.now(datetime.timezone.utc).date()
    except ValueError:
        return False


def _check_contents(findings: Findings, files: Mapping[str, Path], hashes: Mapping[str, str]) -> None:
    """Check the files against their ``hashes`` (SHA-256 by path, from evidence.json), and the text of each.

    evidence.json itself is in ``files`` but has no hash.
    """
    for name in sorted(set(hashes) ^ (set(files) - {"evidence.json"})):
        found = "a file that is unlisted or missing"
        _refuse(findings, name, found=found, needed="the files that were written")
    for name, path in files.items():
        try:
            text = text_of(path.read_bytes())
        except BadDocument as error:
            _refuse(findings, name, found=str(error), needed="text in UTF-8, as make test-gpu writes it")
            continue
        if name in hashes and hashlib.sha256(text.encode()).hexdigest() != hashes[name]:
            found = "content changed since it was written"
            _refuse(findings, name, found=found, needed="the file as it was written")
        _check_content(findings, name, text)


def _check_content(findings: Findings, name: str, text: str) -> None:
    """Check that a file has no secret, no GPU UUID and no private field, and that a fixture is `recorded`."""
    # The redactor would take hashes for API keys. Fixtures never have hashes, so a hash in them is suspicious too.
    without_hashes = text if name.startswith("fixtures/") else _SHA256.sub('"', text)
    if redactor()(without_hashes) != without_hashes:
        found = "something that looks like a secret"
        _refuse(findings, name, found=found, needed="no secrets", do="remove it")
    if _UUID.search(text):
        _refuse(findings, name, found="the UUID of a GPU", needed="UUIDs masked, as make test-gpu masks them")
    try:
        data = json_of(text)
    except BadDocument as error:
        _refuse(findings, name, found=str(error), needed="the file as it was written")
        return
    private_keys = sorted(set(_keys(data)) & _PRIVATE_KEYS)
    if private_keys:
        found = f"the keys {', '.join(private_keys)}"
        _refuse(findings, name, found=found, needed="no prompts, answers, host names or paths")
    if name.startswith("fixtures/"):
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind != "recorded":
            _refuse(findings, name, found=f"kind {kind}", needed="recorded: answers of a real driver")


def _keys(data: object) -> Iterator[str]:
    """Yield all keys, at any depth, whose value is text, a list or a mapping; other values are always public."""
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, str | list | dict):
                yield str(key)
            yield from _keys(value)
    elif isinstance(data, list):
        for value in data:
            yield from _keys(value)


def _check_measured(findings: Findings, facts: EvidenceFacts, measured: EvidenceReport) -> None:
    """Check that the report agrees with evidence.json, and that the weights were in GPU memory."""
    place = "report.json"
    row: Any = measured["row"]
    verdict = row["verdict"]
    version = row["engine_version"]
    gpus = set(row["gpus"])
    if verdict not in _VERDICTS or verdict != facts["verdict"]:
        needed = f"{facts['verdict']}, as evidence.json says; one of {', '.join(_VERDICTS)}"
        _refuse(findings, place, found=f"the verdict {verdict}", needed=needed)
    if version != facts["engine_version"]:
        needed = f"{facts['engine_version']}, as evidence.json says"
        _refuse(findings, place, found=f"engine version {version}", needed=needed)
    if facts["gpu"] not in gpus:
        _refuse(findings, place, found=f"the GPUs {', '.join(sorted(gpus)) or 'none'}", needed=facts["gpu"])
    for arm in ARMS:
        held = measured["held"][arm]
        weights = measured["weights"][arm]
        if held <= 0 or held < _MIN_WEIGHTS_SHARE * weights:
            found = f"{arm}: {held} bytes of GPU memory while it was measured"
            _refuse(findings, place, found=found, needed=f"its weights on the GPU, {weights} bytes")
