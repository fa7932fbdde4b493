"""Load a suite of prompts from a file: YAML, or one of the formats of `formats.py`.

Runs on the controller (the machine of the command line) only, since it needs PyYAML and jsonschema.
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
    from drafthouse.prompts.suite_types import RequestContent, Suite

#: The largest prompt file, in bytes; the largest common one, ShareGPT's, has 700 MB.
MOST_BYTES = 1024 * MIB
#: The most lines of a prompt file.
MOST_LINES = 1_000_000

_YAML = (".yml", ".yaml")
_JSON = (".json", ".jsonl")


def load_suite(
    name: str, folder: Path, *, filled: bool = True, form: str | None = None, with_files: bool = True
) -> Suite:
    """The suite called ``name`` in ``folder``, or the prompts of the file ``name``.

    A name with a suffix or a folder is a file; so is the name of an existing file if no suite has that name. ``form``
    is one of `formats.FORMATS`, None to detect it from the content. With ``filled`` long texts are generated at their
    full length; otherwise call `fill.fill` with the context. Without ``with_files`` the prompts in a kind's `file` are
    left out. Raises DrafthouseError if the file does not exist, cannot be read, or contains no prompts.
    """
    path = Path(name)
    suite_path = folder / f"{name}.yml"
    is_file_name = path.suffix or path.name != name
    if not is_file_name and (suite_path.is_file() or not path.is_file()):
        path = suite_path

    def parsed() -> Suite:
        """The checked suite, before its long texts are generated."""
        text = _text_of(path, name, folder)
        if _is_yaml(text, path, form):
            suite = _suite_of_yaml(text, path, with_files)
        else:
            suite = read_prompts(text, path.stem, str(path), form)
        _check_schemas(suite, str(path))
        return suite

    # The files that a suite may depend on: if one of them changes, the suite is parsed again.
    files = [path, *sorted(path.parent.glob("prompts/*.jsonl"))]
    suite = parsed_once(("suite", path, form, with_files), files, parsed)
    return fill(suite) if filled else suite


def _text_of(path: Path, name: str, folder: Path) -> str:
    """The text of a file; ``name`` and ``folder`` are for the advice in an error. Raises DrafthouseError."""
    try:
        text = text_of(bytes_of(path, MOST_BYTES))
    except FileNotFoundError:
        suite_names = sorted(path.stem for path in folder.glob("*.yml"))
        advice = did_you_mean(name, suite_names) if not Path(name).suffix else "correct the path"
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
    """True if a file is a suite in YAML.

    The first case that applies decides:

    - a ``form`` that the user gave;
    - content with a suite's keys: True;
    - a file named like JSON that is not JSON: DrafthouseError;
    - else the suffix, unless the content is JSON of a known format.
    """
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


def _suite_of_yaml(text: str, path: Path, with_files: bool) -> Suite:
    """The suite in a YAML file. Raises DrafthouseError if it is malformed."""
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
    """Replace each kind's `file` (JSONL, relative to ``folder``) by its prompts, or remove it without ``with_files``.

    Malformed data is left for `check_suite` to report. Raises DrafthouseError for a file without prompts.
    """
    if not isinstance(data, dict) or not isinstance(data.get("kinds"), dict):
        return
    for kind in data["kinds"].values():
        if isinstance(kind, dict) and isinstance(kind.get("file"), str) and isinstance(kind.get("prompts", []), list):
            path = folder / kind.pop("file")
            if not with_files:
                continue
            file_suite = read_prompts(_text_of(path, str(path), folder), path.stem, str(path), MESSAGES)
            prompts = list(kind.get("prompts", []))
            for file_kind in file_suite["kinds"].values():
                prompts += file_kind["prompts"]
            kind["prompts"] = prompts


def _check_schemas(suite: Suite, where: str) -> None:
    """Raise DrafthouseError for the invalid JSON schemas of a suite: no answer could be checked by them."""
    findings = Findings(where)
    for kind, entry in suite["kinds"].items():
        asks_by_place: list[tuple[str, RequestContent]] = [(f"kinds.{kind}", entry)]
        asks_by_place += [(f"kinds.{kind}.prompts[{number}]", prompt) for number, prompt in enumerate(entry["prompts"])]
        for place, asks in asks_by_place:
            for path, schema in schemas_of(asks):
                problem = schema_problem(schema)
                if problem:
                    findings.add("json-schema-invalid", f"{place}.{path}", problem, "a JSON schema", "correct it")
    if findings.problems:
        raise DrafthouseError(findings.problems)
