"""Profiles and catalogue against their JSON schemas, and the types of what is read against the shapes that check it."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs import schemas
from drafthouse.core.schema import Anything, List, Map, Shape, Table, Value
from drafthouse.engines import entry_types
from drafthouse.engines.pasted import FlagTable
from drafthouse.profiles import catalog_types, profile_types
from drafthouse.profiles.profile_schema import PROFILE
from drafthouse.profiles.schemas import ENGINE, GPUS, HARDWARE, MODELS
from drafthouse.profiles.site_schema import SITE
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts import formats, load_levels, suite_types, suites
from drafthouse.translate.flags import OLD_FLAGS

FIRST = "# yaml-language-server: $schema="
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "profiles").rglob("*.yml"))


def schema_of(file: str) -> Any:
    """The schema that a file names in its first line, by the path that stands there."""
    first = (ROOT / file).read_text("utf-8").partition("\n")[0]
    assert first.startswith(FIRST), f"{file} names no schema"
    return json.loads(((ROOT / file).parent / first.removeprefix(FIRST)).resolve().read_text("utf-8"))


def of(file: str) -> Any:
    return yaml.safe_load((ROOT / file).read_text("utf-8"))


def wrong(file: str, data: object) -> list[str]:
    return [f"{one.json_path}: {one.message}" for one in Draft202012Validator(schema_of(file)).iter_errors(data)]


# ---- the files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_what_the_shapes_say(name: str) -> None:
    Draft202012Validator.check_schema(schemas()[name])
    written = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text("utf-8"))
    assert written == schemas()[name], "out of date: make docs"


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_of_the_schema_that_it_names(file: str) -> None:
    assert wrong(file, of(file)) == []


PROFILE_FILE, ENGINES = "profiles/rtx6000-qwen-eagle3.yml", "profiles/catalog/engines"
HARDWARE_FILE, MODELS_FILE = "profiles/catalog/hardware.yml", "profiles/catalog/models.yml"


@pytest.mark.parametrize(
    ("file", "change", "place"),
    [
        (PROFILE_FILE, lambda data: data.pop("title"), "$"),
        (PROFILE_FILE, lambda data: data.update(titel="x"), "$"),
        (PROFILE_FILE, lambda data: data["speculation"].update(num_speculative_tokens=0), "num_speculative_tokens"),
        (PROFILE_FILE, lambda data: data.update(channel="beta"), "$.channel"),
        (PROFILE_FILE, lambda data: data.update(temperature="hot"), "$.temperature"),
        (PROFILE_FILE, lambda data: data.update(channel=None), "$.channel"),
        (HARDWARE_FILE, lambda data: data["cpu-small"].update(devices=0), "devices"),
        (HARDWARE_FILE, lambda data: data["cpu-small"].update(compute_capability="x12.0"), "compute_capability"),
        (MODELS_FILE, lambda data: data["smollm2-135m-q4"]["source"].update(path="/x"), "source"),
        (MODELS_FILE, lambda data: data["smollm2-135m-q4"].update(source={}), "source"),
        (f"{ENGINES}/vllm.yml", lambda data: data.pop("health"), "$"),
        (f"{ENGINES}/vllm.yml", lambda data: data.update(image=None), "$.image"),
        (f"{ENGINES}/vllm.yml", lambda data: data["versions"].update({"newest": {}}), "$.versions"),
        (f"{ENGINES}/vllm-arctic.yml", lambda data: data.pop("like"), "$"),
        ("profiles/catalog/old_flags/vllm.yml", lambda data: data.update(style="+"), "$.style"),
    ],
)
def test_what_the_validator_refuses_no_editor_lets_stand(file: str, change: Callable[[Any], Any], place: str) -> None:
    data = of(file)
    change(data)
    assert any(place in said.partition(": ")[0] for said in wrong(file, data))


# ---- types and shapes -----------------------------------------------------------------------------------

#: What a module imports for its types only, and so has not at run time.
LATE = {"NotRequired": NotRequired, "LadderWishes": load_levels.LadderWishes, "Options": entry_types.Options}
PAIRS: list[tuple[Any, Shape]] = [
    (catalog_types.HardwareEntry, HARDWARE.entries),
    (catalog_types.ModelEntry, MODELS.entries),
    (catalog_types.Gpus, GPUS),
    (entry_types.EngineEntry, ENGINE),
    (profile_types.Profile, PROFILE),
    (profile_types.Site, SITE),
    (FlagTable, OLD_FLAGS),
    (suite_types.Line, formats._LINE),
    (suite_types.PromptEntry, suites._PROMPT),
]


def differences(kind: Any, shape: Shape, path: str) -> list[str]:
    """Where a type and a shape do not say the same."""
    if isinstance(shape, Anything) or kind is Any:
        return []
    args = get_args(kind)
    if isinstance(shape, Value):
        same = sorted(args) == sorted(shape.choices) if get_origin(kind) is Literal else kind is shape.type
        return [] if same else [f"{path}: {kind} for {shape}"]
    if isinstance(shape, List):
        same = get_origin(kind) is list
        return differences(args[0], shape.items, f"{path}[]") if same else [f"{path}: {kind} for a list"]
    if isinstance(shape, Table) or not is_typeddict(kind):
        if get_origin(kind) is not dict:
            return [f"{path}: {kind} for a mapping"]
        # Named numbers that nothing asks for by name are a plain dict.
        entries = [shape.entries] if isinstance(shape, Table) else shape.fields.values()
        return [one for entry in entries for one in differences(args[1], entry, f"{path}.*")]
    hints = get_type_hints(kind, localns=LATE, include_extras=True)
    found = [f"{path}.{name}: only the type has it" for name in hints if name not in shape.fields]
    for name, field in shape.fields.items():
        if name not in hints:
            found.append(f"{path}.{name}: only the shape has it")
            continue
        inner, may_lack = hints[name], name in kind.__optional_keys__
        if get_origin(inner) is NotRequired:
            inner, may_lack = get_args(inner)[0], True
        if may_lack == field.required:
            found.append(f"{path}.{name}: required in one of them only")
        found += differences(inner, field, f"{path}.{name}")
    return found


@pytest.mark.parametrize(("kind", "shape"), PAIRS, ids=[kind.__name__ for kind, _ in PAIRS])
def test_a_type_has_the_keys_of_the_shape_that_checks_it(kind: Any, shape: Shape) -> None:
    assert differences(kind, shape, kind.__name__) == []


def test_a_difference_is_found() -> None:
    class Small(typing.TypedDict):
        here: int
        odd: str

    shape = Map({"here": Value(int), "gone": Value(str, required=True)})
    assert differences(Small, shape, "s") == [
        "s.odd: only the type has it",
        "s.here: required in one of them only",
        "s.gone: only the shape has it",
    ]
