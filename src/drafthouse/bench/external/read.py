"""Read the runs of one arm (server configuration) from result files of any benchmark client.

The format is detected by content: a JSON document, JSON lines, or CSV. A record is whatever has a column that names a
speed; `clients.py` handles the clients whose records need more than column names.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...core.documents import BadDocument, Json, bytes_of, check_depth, short, text_of
from ...core.errors import DrafthouseError, one_problem
from ...core.format import count, first_names
from ..kept_shapes import checked_result
from ..result_types import ArmResult, Request
from .clients import Record, records_in
from .columns import ALL_SPEEDS, Answer, answer_of, believable, canonical_name, to_number

#: The largest accepted file, in bytes. A result with the texts of all requests may have some hundred MiB.
MOST_BYTES = 512 * 1024 * 1024
#: The most files in a folder; a folder with more is not the results of one arm.
MOST_FILES = 200
#: The endings of the files that are read in a folder.
_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")
#: What an error message says that is needed, and how to get it.
_NEEDED = (
    "a result of vllm bench serve, SGLang's bench_serving, GuideLLM, AIPerf, llama-bench, llama-benchy or Drafthouse, "
    "answers of llama.cpp's server with timings, or CSV or JSON lines with named columns"
)
_DO = "see the columns in docs/judge.md; one record has a speed: tokens and seconds, or tokens per second"


@dataclass
class Run:
    """One run of one arm at one load. A run of which the file has only a summary has no ``answers``."""

    where: str  # the file's name, and the run's or round's if it has several; for people
    form: str  # the file's format
    load: float | None = None  # in ``unit``; None if unknown
    unit: str = "concurrent requests"
    answers: list[Answer] = field(default_factory=list)  # in order of time
    summary_tpots: dict[str, list[float]] = field(default_factory=dict)  # TPOTs in ms by prompt kind
    figures: dict[str, float] = field(default_factory=dict)  # the author's numbers by name
    models: set[str] = field(default_factory=set)
    result: ArmResult | None = field(default=None, repr=False)  # of Drafthouse; None for another client's file

    @property
    def whole_answers(self) -> list[Answer]:
        """The answers that did not fail."""
        return [answer for answer in self.answers if not answer.failed]

    @property
    def content(self) -> str:
        """A hash of the measured values, by which a file that is given twice is recognised."""
        measured = []
        for answer in self.answers:
            request = answer.request
            numbers = request.get("tpot_ms"), request.get("e2el_ms"), request.get("output_tokens")
            measured.append((answer.key, *numbers))
        return hashlib.sha256(repr((self.load, measured, self.summary_tpots)).encode()).hexdigest()


@dataclass
class ArmFiles:
    """The runs of one arm in the order of the files, and notes for people about the files."""

    runs: list[Run]
    notes: list[str]


def read_arm(words: str) -> ArmFiles:
    """The runs of an arm. ``words`` is a list ``PATH,PATH#ARM`` of files or folders; ``#ARM`` chooses one of several.

    Raises DrafthouseError for a missing path, and for a file without a speed.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for part in [words] if Path(words).exists() else words.split(","):  # a file's name may contain a comma
        path, chosen = _path_and_arm(part)
        is_folder = path.is_dir()
        files = [path]
        if is_folder:
            files = _files_of(path)
        runs_before = len(runs)
        unusable = []  # names of files of a folder, which may hold other JSON files too, such as settings
        for file in files:
            try:
                runs += _with_summary(file, _runs_of_file(file, chosen, notes), notes)
            except DrafthouseError as error:
                if not is_folder or error.problems[0].code == "several-arms":
                    raise  # the user must choose an arm, also of a file in a folder
                unusable.append(file.name)
        if unusable:
            notes.append(f"{path.name}: {count(len(unusable), 'file')} without a result, such as {unusable[0]}")
        if len(runs) == runs_before:
            raise _no_result(path, "no result in it")
    by_content: dict[str, Run] = {}  # a file and its copy must not count as two runs
    for run in runs:
        if run.content in by_content:
            notes.append(f"{run.where} is the same as {by_content[run.content].where}: one run")
        by_content.setdefault(run.content, run)
    return ArmFiles(list(by_content.values()), notes)


def _with_summary(path: Path, runs: list[Run], notes: list[str]) -> list[Run]:
    """The runs of an AIPerf file with load and figures from the summary file next to it; other runs are unchanged."""
    summary = path.with_name("profile_export_aiperf.json")
    requests = path.with_name("profile_export.jsonl")
    if not runs or runs[0].form != "AIPerf" or not (summary.is_file() and requests.is_file()):
        return runs
    if path == summary:
        return []  # its runs are those of the requests' file
    (summed_up,) = _runs_of_file(summary, chosen="", notes=notes)
    return [replace(run, load=summed_up.load, unit=summed_up.unit, figures=summed_up.figures) for run in runs]


def _path_and_arm(word: str) -> tuple[Path, str]:
    """The path and the arm's name ('' for none) of ``PATH`` or ``PATH#ARM``."""
    path = Path(word)
    chosen = ""
    if not path.exists() and "#" in word:
        name, _, chosen = word.rpartition("#")
        path = Path(name)
    if not path.exists():
        raise one_problem("no-such-file", "no such file or folder", _NEEDED, "give the path of one", str(path))
    return path, chosen.strip()


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder that may be results, sorted by path. Raises DrafthouseError for more than `MOST_FILES`."""
    files = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _ENDINGS and path.is_file() and not path.name.startswith("."):
            files.append(path)
    if len(files) > MOST_FILES:
        needed = f"a folder of {MOST_FILES} result files at most"
        raise one_problem("file-malformed", f"{len(files)} files", needed, "name the files", str(folder))
    return files


def _no_result(path: Path, problem: str) -> DrafthouseError:
    """The error of a file or folder without a usable result."""
    return one_problem("client-result-format", problem, _NEEDED, _DO, str(path))


def _runs_of_file(path: Path, chosen: str, notes: list[str]) -> list[Run]:
    """The runs of one arm in a file. Raises DrafthouseError if it has none, or several arms of which none is chosen.

    ``chosen`` names the arm; "" for a file with one arm. ``notes`` gets what people should know about the file.
    """
    documents = documents_of(path, notes)
    runs: list[Run] = []
    records: list[Record] = []
    for document in documents:
        if isinstance(document, Mapping) and str(document.get("schema")).startswith("drafthouse.result/"):
            runs += _drafthouse_runs(path, dict(document))
        else:
            records += records_in(document)
    if not runs and not records:
        raise _no_result(path, "no record with a speed")
    if records:
        runs += _grouped(path, _of_one_arm(path, records, chosen))
    return runs


# --- documents --------------------------------------------------------------------------------------


def documents_of(path: Path, notes: list[str]) -> list[Json]:
    """The JSON documents of a file, or the rows of its table. Raises DrafthouseError for a file that is neither."""
    try:
        text = text_of(bytes_of(path, MOST_BYTES))
        try:
            return [_json(text)]
        except json.JSONDecodeError as error:
            return _json_lines(path, text, notes) or [_table(text, error)]
    except OSError as error:
        raise _no_result(path, f"no readable file ({error.strerror})") from error
    except (BadDocument, ValueError, RecursionError) as error:
        raise one_problem("file-malformed", short(str(error), 160), _NEEDED, _DO, str(path)) from error


def _json(text: str) -> Json:
    """A JSON document; NaN and Infinity, which Python's JSON writer produces, become null."""
    check_depth(text)
    document: Json = json.loads(text, parse_constant=lambda name: None)
    return document


def _json_lines(path: Path, text: str, notes: list[str]) -> list[Json]:
    """The documents of JSON lines; broken lines are counted in ``notes``. [] if the lines are no JSON objects."""
    documents: list[Json] = []
    broken = []
    for line_number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            documents.append(_json(line))
        except ValueError:
            if not documents:
                return []
            broken.append(line_number)
    if broken:
        notes.append(f"{path.name}: {count(len(broken), 'line')} that is no JSON, left out (first: line {broken[0]})")
    if not all(isinstance(document, Mapping) for document in documents):
        return []
    return documents


def _table(text: str, error: ValueError) -> list[Json]:
    """The rows of a CSV or TSV; otherwise raises ``error`` for a text that begins like JSON, or else BadDocument."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    heading = lines[0] if lines else ""
    delimiter = max(",;\t", key=heading.count)  # the most frequent one in the heading
    columns = next(csv.reader([heading], delimiter=delimiter), [])
    names = filter(None, map(canonical_name, columns))
    if ALL_SPEEDS.isdisjoint(name for name, _ in names):
        if heading[:1] in ("[", "{"):
            raise error
        raise BadDocument("neither JSON nor a table with a column that names a speed")
    rows: list[Json] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines)), delimiter=delimiter, restkey="_", restval=""):
        row.pop("_", None)
        rows.append(dict(row))
    return rows


# --- arms and runs ----------------------------------------------------------------------------------


def _of_one_arm(path: Path, records: Sequence[Record], chosen: str) -> list[Record]:
    """The records of the chosen arm, or all if the file has one arm. Raises DrafthouseError if several arms match."""
    by_name = _arms(records)
    if not chosen and len(by_name) == 1:
        return list(records)
    matching = _matching(chosen, by_name)
    if len(matching) == 1:
        return by_name[matching[0]]
    names = [f"'{name}'" for name in matching or by_name]
    shown = first_names(names, 12)
    do = f"write {path.name}#NAME with a name (or the parts of one that tell it from the others) of: {shown}"
    problem = f"no arm '{chosen}'" if chosen and not matching else f"{len(names)} arms"
    raise one_problem("several-arms", problem, "one arm", do, str(path))


def _matching(chosen: str, names: Iterable[str]) -> list[str]:
    """The names equal to ``chosen`` (ignoring case), else those that contain all of its parts, separated by "/"."""
    by_folded = {name: name.casefold() for name in names}
    exact = [name for name, folded in by_folded.items() if chosen and folded == chosen.casefold()]
    wanted = set(filter(None, map(str.strip, chosen.casefold().split("/"))))
    if exact or not wanted:
        return exact
    return [name for name, folded in by_folded.items() if wanted <= set(folded.split("/"))]


def _arms(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records by arm; an arm's name joins its values of those arm columns that differ between records."""
    values: dict[str, set[str]] = {}
    for record in records:
        for column, value in record.arm.items():
            values.setdefault(column, set()).add(value)
    by_arm: dict[str, list[Record]] = {}
    for record in records:
        parts: dict[str, None] = {}
        for column, value in record.arm.items():
            if value and len(values[column]) > 1:
                parts[value] = None
        by_arm.setdefault("/".join(parts), []).append(record)
    return by_arm


def _grouped(path: Path, records: Iterable[Record]) -> list[Run]:
    """The runs of an arm's records, one for each load and run number."""
    runs: dict[tuple[float | None, str, str], Run] = {}
    for record in sorted(records, key=lambda record: to_number(record.row.get("order")) or 0.0):
        load, unit = record.load
        key = load, unit, record.run
        if key not in runs:
            label = f"{path.name}, run {record.run}" if record.run else path.name
            runs[key] = Run(label, record.form, load, unit)
        run = runs[key]
        if record.is_summary:
            _add_summary(run, record)
        else:
            run.answers.append(answer_of(record.row))
        run.figures.update(record.figures)
        if model := record.row.get("model"):
            run.models.add(str(model))
    for run in runs.values():
        if run.whole_answers:
            run.summary_tpots = {}  # the author's summary of the same answers
    return list(runs.values())


def _add_summary(run: Run, record: Record) -> None:
    """Add the TPOT of a summary record to the run, from its throughput if it has no TPOT."""
    row = record.row
    tpot = to_number(row.get("run_tpot_ms")) or to_number(row.get("tpot_ms"))
    speed = to_number(row.get("run_tps")) or to_number(row.get("tps"))
    if not tpot and speed:
        tpot = 1000.0 / speed
    value = believable(tpot)
    if value:
        kind = " ".join(str(row[name]) for name in ("kind", "settings") if row.get(name))
        run.summary_tpots.setdefault(kind, []).append(value)


def _drafthouse_runs(path: Path, document: dict[str, Json]) -> list[Run]:
    """The runs of a Drafthouse result, one for each round."""
    result = checked_result(document, str(path))
    runs: dict[int, Run] = {}
    for request in result.get("requests") or []:
        round_number = int(request.get("round") or 1)
        if round_number not in runs:
            where = f"{path.name}, round {round_number}"
            runs[round_number] = Run(where, "drafthouse bench", result.get("max_concurrency"), result=result)
        runs[round_number].answers.append(_drafthouse_answer(request))
    return [runs[round_number] for round_number in sorted(runs)]


def _drafthouse_answer(request: Request) -> Answer:
    """The answer of a request in a Drafthouse result; group and prompt id identify it in both arms."""
    failed = ""
    if request.get("status") != "ok":
        failed = str(request.get("error") or request.get("status"))
    return Answer(request, f"{request.get('group')} {request.get('prompt_id')}", failed=failed)
