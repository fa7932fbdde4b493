"""Suites from files: YAML, and the formats of `formats.py`.

On the controller only, for it needs PyYAML and jsonschema.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.documents import MIB, BadDocument, bytes_of, text_of
from ..core.errors import DrafthouseError, did_you_mean, one_problem
from ..core.parsed_files import parsed_once
from ..core.schema import Findings
from ..core.yaml_documents import yaml_of
from .checks import schemas_of
from .fill import fill
from .formats import MESSAGES, SUITE, format_of, is_json, is_suite, read_prompts
from .json_schema import schema_problem
from .suites import check_suite

if TYPE_CHECKING:
    from drafthouse.prompts.suite_types import AskFields, Suite

#: Bytes of a file of prompts at most: the largest of those that people send, ShareGPT's, has 700 MB.
MOST_BYTES, MOST_LINES = 1024 * MIB, 1_000_000

_YAML = (".yml", ".yaml")
_JSON = (".json", ".jsonl")


def load_suite(
    name: str, folder: Path, *, filled: bool = True, form: str | None = None, with_files: bool = True
) -> Suite:
    """The suite called ``name`` in ``folder``, or the prompts of the file ``name``.

    A name with an ending or a folder in it is a file, and so is that of a file that is there where no suite has it.
    What a file holds is told by its content, or by ``form``, one of `formats.FORMATS`. Long texts are put in
    unless ``filled`` says otherwise (`long_context.fill` does it for a context). Without ``with_files`` a kind has the
    prompts of its suite alone, and not those of its `file`. Raises DrafthouseError when the file
    is not there, cannot be read, or holds something else than prompts.
    """
    path, own = Path(name), folder / f"{name}.yml"
    if not (path.suffix or path.name != name or (path.is_file() and not own.is_file())):
        path = own

    def parsed() -> Suite:
        text = _text_of(path, name, folder)
        if _is_yaml(text, path, form):
            suite = _from_yaml(text, path, with_files)
        else:
            suite = read_prompts(text, path.stem, str(path), form)
        _check_schemas(suite, str(path))
        return suite

    files = [path, *sorted(path.parent.glob("prompts/*.jsonl"))]
    suite = parsed_once(("suite", path, form, with_files), files, parsed)
    return fill(suite) if filled else suite


def _text_of(path: Path, name: str, folder: Path) -> str:
    """What a file holds. Raises DrafthouseError where that is no text."""
    try:
        text = text_of(bytes_of(path, MOST_BYTES))
    except FileNotFoundError:
        known = sorted(path.stem for path in folder.glob("*.yml"))
        advice = did_you_mean(name, known) if not Path(name).suffix else "correct the path"
        raise one_problem(
            "no-such-suite", "no such file", "a suite's name, or a file of prompts", advice, f"prompt file {path}"
        ) from None
    except OSError as error:
        raise one_problem(
            "file-unreadable", str(error), "a readable file", "check its permissions", str(path)
        ) from error
    except BadDocument as error:
        do = "correct the path, or convert the file: iconv -f ENCODING -t UTF-8 FILE"
        raise DrafthouseError(error.problem(str(path), "a file of text in UTF-8", do)) from error
    if text.count("\n") > MOST_LINES:
        found = f"a file of more than {MOST_LINES:,} lines"
        raise one_problem("too-many-prompts", found, "prompts for one run", "use part of it: head -n 10000", str(path))
    if not text.strip():
        raise one_problem("no-prompts", "an empty file", "a suite, or prompts", "correct the path", str(path))
    return text


def _is_yaml(text: str, path: Path, form: str | None) -> bool:
    """Whether a file is a suite. Its name decides where its content could be both YAML and lines of text."""
    if form is not None:
        return form == SUITE
    if is_suite(text):
        return True
    if path.suffix in _JSON and not is_json(text):
        raise one_problem(
            "file-malformed",
            f"not JSON, in a file named {path.suffix}",
            "one JSON object a line, or a list of them",
            "correct the file, or pass --dataset-format text if each line is a prompt",
            str(path),
        )
    return path.suffix in _YAML and format_of(text) is None


def _from_yaml(text: str, path: Path, with_files: bool) -> Suite:
    try:
        data = yaml_of(text)
    except BadDocument as error:
        where = f"{path}: {error.place}" if error.place else str(path)
        raise one_problem(
            "file-malformed", f"not YAML: {error.why}", "a suite in YAML", "correct the file there", where
        ) from error
    _read_prompt_files(data, path.parent, with_files)
    return check_suite(data, str(path))


def _read_prompt_files(data: object, folder: Path, with_files: bool) -> None:
    """Put the prompts of each kind's `file`, JSON lines below ``folder``, behind the kind's own, or only drop the name.

    What is no suite is left as it is: `check_suite` says why. Raises DrafthouseError for a file that holds no prompts.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kinds"), dict):
        return
    for kind in data["kinds"].values():
        if isinstance(kind, dict) and isinstance(kind.get("file"), str) and isinstance(kind.get("prompts", []), list):
            path = folder / kind.pop("file")
            if not with_files:
                continue
            lines = read_prompts(_text_of(path, str(path), folder), path.stem, str(path), MESSAGES)
            prompts = list(kind.get("prompts", []))
            for read in lines["kinds"].values():
                prompts += read["prompts"]
            kind["prompts"] = prompts


def _check_schemas(suite: Suite, where: str) -> None:
    """Raise DrafthouseError for what is no JSON schema where a suite has one: no answer could be judged by it."""
    findings = Findings(where)
    for kind, entry in suite["kinds"].items():
        places: list[tuple[str, AskFields]] = [(f"kinds.{kind}", entry)]
        places += [(f"kinds.{kind}.prompts[{number}]", prompt) for number, prompt in enumerate(entry["prompts"])]
        for place, asked in places:
            for path, schema in schemas_of(asked):
                problem = schema_problem(schema)
                if problem:
                    findings.add("json-schema-invalid", f"{place}.{path}", problem, "a JSON schema", "correct it")
    if findings.problems:
        raise DrafthouseError(findings.problems)
