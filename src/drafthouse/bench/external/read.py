"""The runs of one arm, out of the files that somebody gives for it, whatever client wrote them.

Read by content: JSON, JSON lines, several JSON documents behind each other, and CSV. Whatever has a column that names a
speed is a record; `clients.py` knows the clients whose records need more than a column's name.
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
from .columns import ALL_SPEEDS, Answer, answer_of, believable, our_name, to_number

#: Bytes of a file at most: a result with every request's texts may have some hundred MiB.
MOST_BYTES = 512 * 1024 * 1024
#: Files of a folder at most: more are no results of one arm.
MOST_FILES = 200
_ENDINGS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")
_NEEDED = (
    "a result of vllm bench serve, SGLang's bench_serving, GuideLLM, AIPerf, llama-bench, llama-benchy or Drafthouse, "
    "answers of llama.cpp's server with timings, or CSV or JSON lines with named columns"
)
_DO = "see the columns in docs/judge.md; one record has a speed: tokens and seconds, or tokens per second"


@dataclass
class Run:
    """One run of one arm at one load.

    ``load`` is in ``unit``, None where the file does not say. ``answers`` are the requests in their order; of a run
    that a file tells in one line, ``whole`` has its time per token in ms, by kind, and there are none. ``figures`` are
    its author's own numbers. ``result`` is set where it is one of ours.
    """

    where: str
    form: str
    load: float | None = None
    unit: str = "concurrent requests"
    answers: list[Answer] = field(default_factory=list)
    whole: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    models: set[str] = field(default_factory=set)
    result: ArmResult | None = field(default=None, repr=False)

    @property
    def whole_answers(self) -> list[Answer]:
        """Those that did not fail."""
        return [answer for answer in self.answers if not answer.failed]

    @property
    def content(self) -> str:
        """A hash of what was measured: a file that is given twice is one run."""
        measured = []
        for answer in self.answers:
            request = answer.request
            numbers = request.get("tpot_ms"), request.get("e2el_ms"), request.get("output_tokens")
            measured.append((answer.key, *numbers))
        return hashlib.sha256(repr((self.load, measured, self.whole)).encode()).hexdigest()


@dataclass
class ArmFiles:
    """What was given for one arm: its runs, in their order, and what a reader must know of the files."""

    runs: list[Run]
    notes: list[str]


def read_arm(words: str) -> ArmFiles:
    """The runs of an arm: files or folders separated by commas, each with ``#NAME`` where it has several arms.

    Raises DrafthouseError for a path that is not there, and for a file in which no speed is found.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for word in [words] if Path(words).exists() else words.split(","):
        path, chosen = _place(word)
        files, skipped = [path], False
        if path.is_dir():
            files, skipped = _files_of(path), True
        before, without = len(runs), []
        for file in files:
            try:
                runs += _with_summary(file, _runs_of_file(file, chosen, notes), notes)
            except DrafthouseError as error:
                if not skipped or error.problems[0].code == "several-arms":
                    raise
                without.append(file.name)
        if without:
            notes.append(f"{path.name}: {count(len(without), 'file')} without a result, such as {without[0]}")
        if len(runs) == before:
            raise _no_result(path, "no result in it")
    kept: dict[str, Run] = {}
    for run in runs:
        if run.content in kept:
            notes.append(f"{run.where} is the same as {kept[run.content].where}: one run")
        kept.setdefault(run.content, run)
    return ArmFiles(list(kept.values()), notes)


def _with_summary(path: Path, runs: list[Run], notes: list[str]) -> list[Run]:
    """The runs of a file of AIPerf, with the load and the figures of its summary beside it; other runs as they are."""
    summary, requests = path.with_name("profile_export_aiperf.json"), path.with_name("profile_export.jsonl")
    if not runs or runs[0].form != "AIPerf" or not (summary.is_file() and requests.is_file()):
        return runs
    if path == summary:
        return []
    (summed_up,) = _runs_of_file(summary, "", notes)
    return [replace(run, load=summed_up.load, unit=summed_up.unit, figures=summed_up.figures) for run in runs]


def _place(word: str) -> tuple[Path, str]:
    """The path of a word, and the arm that it chooses in it."""
    path, chosen = Path(word), ""
    if not path.exists() and "#" in word:
        name, _, chosen = word.rpartition("#")
        path = Path(name)
    if not path.exists():
        raise one_problem("no-such-file", "no such file or folder", _NEEDED, "give the path of one", str(path))
    return path, chosen.strip()


def _files_of(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _ENDINGS and path.is_file() and not path.name.startswith("."):
            found.append(path)
    if len(found) > MOST_FILES:
        needed = f"a folder of {MOST_FILES} result files at most"
        raise one_problem("file-malformed", f"{len(found)} files", needed, "name the files", str(folder))
    return found


def _no_result(path: Path, found: str) -> DrafthouseError:
    return one_problem("client-result-format", found, _NEEDED, _DO, str(path))


def _runs_of_file(path: Path, chosen: str, notes: list[str]) -> list[Run]:
    """The runs of one arm in a file. Raises DrafthouseError where none is found, or where it has several arms."""
    documents = documents_of(path, notes)
    runs: list[Run] = []
    records: list[Record] = []
    for document in documents:
        if isinstance(document, Mapping) and str(document.get("schema")).startswith("drafthouse.result/"):
            runs += _own_runs(path, dict(document))
        else:
            records += records_in(document)
    if not runs and not records:
        raise _no_result(path, "no record with a speed")
    if records:
        runs += _grouped(path, _of_one_arm(path, records, chosen))
    return runs


# --- documents --------------------------------------------------------------------------------------


def documents_of(path: Path, notes: list[str]) -> list[Json]:
    """The JSON documents of a file, or the rows of its table. DrafthouseError for a file that is neither."""
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
    """A JSON document; NaN and Infinity, which Python's writer lets through, are values that are not known."""
    check_depth(text)
    found: Json = json.loads(text, parse_constant=lambda name: None)
    return found


def _json_lines(path: Path, text: str, notes: list[str]) -> list[Json]:
    """The documents of JSON lines; a line that is broken is named. Nothing where the first one is no JSON object."""
    found: list[Json] = []
    broken = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(_json(line))
        except ValueError:
            if not found:
                return []
            broken.append(number)
    if broken:
        notes.append(f"{path.name}: {count(len(broken), 'line')} that is no JSON, left out (first: line {broken[0]})")
    if not all(isinstance(document, Mapping) for document in found):
        return []
    return found


def _table(text: str, error: ValueError) -> list[Json]:
    """The rows of a CSV or TSV with a heading; raises ``error``, why it is no JSON, where it is no table either."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    heading = lines[0] if lines else ""
    mark = max(",;\t", key=heading.count)
    columns = next(csv.reader([heading], delimiter=mark), [])
    names = filter(None, map(our_name, columns))
    if ALL_SPEEDS.isdisjoint(name for name, _ in names):
        if heading[:1] in ("[", "{"):
            raise error
        raise BadDocument("neither JSON nor a table with a column that names a speed")
    rows: list[Json] = []
    for row in csv.DictReader(io.StringIO("\n".join(lines)), delimiter=mark, restkey="_", restval=""):
        row.pop("_", None)
        rows.append(dict(row))
    return rows


# --- arms and runs ----------------------------------------------------------------------------------


def _of_one_arm(path: Path, records: Sequence[Record], chosen: str) -> list[Record]:
    """The records of the arm that is chosen, of all where the file has one. DrafthouseError for several."""
    by_name = _arms(records)
    if not chosen and len(by_name) == 1:
        return list(records)
    matching = _matching(chosen, by_name)
    if len(matching) == 1:
        return by_name[matching[0]]
    names = [f"'{name}'" for name in matching or by_name]
    shown = first_names(names, 12)
    do = f"write {path.name}#NAME with a name (or the parts of one that tell it from the others) of: {shown}"
    found = f"no arm '{chosen}'" if chosen and not matching else f"{len(names)} arms"
    raise one_problem("several-arms", found, "one arm", do, str(path))


def _matching(chosen: str, names: Iterable[str]) -> list[str]:
    """The arms of this name, or else those whose name has all of its parts."""
    by_folded = {name: name.casefold() for name in names}
    exact = [name for name, folded in by_folded.items() if chosen and folded == chosen.casefold()]
    wanted = set(filter(None, map(str.strip, chosen.casefold().split("/"))))
    if exact or not wanted:
        return exact
    return [name for name, folded in by_folded.items() if wanted <= set(folded.split("/"))]


def _arms(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records by the name of their arm: the values of the columns that are not the same in all."""
    values: dict[str, set[str]] = {}
    for record in records:
        for column, value in record.arm.items():
            values.setdefault(column, set()).add(value)
    found: dict[str, list[Record]] = {}
    for record in records:
        parts: dict[str, None] = {}
        for column, value in record.arm.items():
            if value and len(values[column]) > 1:
                parts[value] = None
        found.setdefault("/".join(parts), []).append(record)
    return found


def _grouped(path: Path, records: Iterable[Record]) -> list[Run]:
    """The runs of an arm's records: one for each load and each number of a run that they name."""
    runs: dict[tuple[float | None, str, str], Run] = {}
    for record in sorted(records, key=lambda record: to_number(record.row.get("order")) or 0.0):
        load, unit = record.load
        key = load, unit, record.run
        if key not in runs:
            label = f"{path.name}, run {record.run}" if record.run else path.name
            runs[key] = Run(label, record.form, load, unit)
        run = runs[key]
        if record.whole:
            _add_whole(run, record)
        else:
            run.answers.append(answer_of(record.row))
        run.figures.update(record.figures)
        if model := record.row.get("model"):
            run.models.add(str(model))
    for run in runs.values():
        if run.whole_answers:
            run.whole = {}  # its author's summary of the same answers
    return list(runs.values())


def _add_whole(run: Run, record: Record) -> None:
    """A run's own figure: its time per token, or what its throughput makes of one."""
    row = record.row
    tpot = to_number(row.get("run_tpot_ms")) or to_number(row.get("tpot_ms"))
    speed = to_number(row.get("run_tps")) or to_number(row.get("tps"))
    if not tpot and speed:
        tpot = 1000.0 / speed
    value = believable(tpot)
    if value:
        kind = " ".join(str(row[name]) for name in ("kind", "settings") if row.get(name))
        run.whole.setdefault(kind, []).append(value)


def _own_runs(path: Path, document: dict[str, Json]) -> list[Run]:
    """The runs of a result of ours: one for each round."""
    result = checked_result(document, str(path))
    runs: dict[int, Run] = {}
    for request in result.get("requests") or []:
        number = int(request.get("round") or 1)
        if number not in runs:
            where = f"{path.name}, round {number}"
            runs[number] = Run(where, "drafthouse bench", result.get("max_concurrency"), result=result)
        runs[number].answers.append(_own_answer(request))
    return [runs[number] for number in sorted(runs)]


def _own_answer(request: Request) -> Answer:
    failed = ""
    if request.get("status") != "ok":
        failed = str(request.get("error") or request.get("status"))
    return Answer(request, f"{request.get('group')} {request.get('prompt_id')}", failed=failed)
