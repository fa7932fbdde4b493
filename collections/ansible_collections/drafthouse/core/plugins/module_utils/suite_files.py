"""Suites from files: YAML and JSONL. On the controller only, for it needs PyYAML and jsonschema."""

from __future__ import annotations

from pathlib import Path

import yaml

from .json_schema import schema_problem
from .long_text import fill
from .problems import HouseError, Problem, did_you_mean
from .shape import Findings
from .suite_asks import schemas_of
from .suites import Suite, check_suite, suite_from_lines

_ENDINGS = (".yml", ".yaml", ".jsonl")


def load_suite(name: str, folder: Path, *, filled: bool = True) -> Suite:
    """Return the suite called ``name`` in ``folder``, or the one in the file ``name``.

    A name with one of the endings .yml, .yaml, .jsonl is a file. Long texts are put in unless ``filled`` says
    otherwise (`long_text.fill` does it for a context). Raises HouseError when the file is not there, cannot be
    read, or holds something else than a suite.
    """
    path = Path(name) if name.endswith(_ENDINGS) else folder / f"{name}.yml"
    try:
        # With or without the mark that some editors put before the first line.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        known = sorted(one.stem for one in folder.glob("*.yml"))
        advice = did_you_mean(name, known) if not name.endswith(_ENDINGS) else "correct the path"
        raise HouseError(
            Problem("no such file", "a suite: its name, or a .yml or .jsonl file", advice, f"prompt file {path}")
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise HouseError(
            Problem(str(error), "a readable UTF-8 file", "look at its rights and its encoding", str(path))
        ) from error
    suite = suite_from_lines(text, path.stem, str(path)) if path.suffix == ".jsonl" else _from_yaml(text, path)
    _check_schemas(suite, str(path))
    return fill(suite) if filled else suite


def _from_yaml(text: str, path: Path) -> Suite:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise HouseError(
            Problem(f"no YAML: {error}", "a suite in YAML", "correct the file at that place", str(path))
        ) from error
    return check_suite(data, str(path))


def _check_schemas(suite: Suite, where: str) -> None:
    """Raise HouseError for what stands in a suite as a JSON schema and is none: no answer could be judged by it."""
    findings = Findings(where)
    for kind, entry in suite["kinds"].items():
        places = [(f"kinds.{kind}", entry)]
        places += [(f"kinds.{kind}.prompts[{number}]", prompt) for number, prompt in enumerate(entry["prompts"])]
        for place, asked in places:
            for path, schema in schemas_of(asked):
                problem = schema_problem(schema)
                if problem:
                    findings.add(f"{place}.{path}", problem, "a JSON schema", "correct it")
    if findings.problems:
        raise HouseError(findings.problems)
