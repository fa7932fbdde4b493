"""Profiles and catalogue against their JSON schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from docs import schemas
from drafthouse.core.schema import Findings, Shape, check
from drafthouse.core.typed_shape import shape_of
from drafthouse.profiles.profile_types import Site
from drafthouse.profiles.schemas import ENGINE, MODELS, SITE
from drafthouse.profiles.workspace import ROOT

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


def test_the_site_has_a_type_for_every_key() -> None:
    assert SITE.fields.keys() == shape_of(Site).fields.keys()


# ---- names that reach a command line ---------------------------------------------------------------------

REACHES = {
    "models": "x.source.hub.repo x.source.hub.revision x.source.hub.branch x.source.hub.allow.0 x.source.hub.ignore.0"
    " x.source.package.name x.source.package.version x.source.package.file x.source.package.sha256 x.source.path"
    " x.served_name x.folder x.file x.speculators.target x.builtin_head.has_it x.allow_pickle.files.0",
    "engine": "image.name image.tag image.digest rental_image install.x.python_packages.0 install.x.lock"
    " install.x.no_deps_packages.0 install.x.torch_backend install.x.extra_index_url install.x.metadata_stub.name"
    " methods.x.source_packages.0 methods.x.build_packages.0 plugin.package template default_version",
    "site": "host address home models_dir engine_image find_links weights_from fleet.front fleet.name fleet.served_name"
    " gateway_name ray_address span.addresses.0 gpus.0",
}


@pytest.mark.parametrize("place", [f"{name} {path}" for name, paths in REACHES.items() for path in paths.split()])
def test_no_name_on_a_command_line_is_an_option(place: str) -> None:
    name, path = place.split()
    shapes: dict[str, Shape] = {"models": MODELS, "engine": ENGINE, "site": SITE}
    data: Any = "--upload=/etc/passwd"
    for part in reversed(path.split(".")):
        data = [data] if part == "0" else {part: data}
    findings = Findings("x.yml")
    check(data, shapes[name], findings)
    found = [one.code for one in findings.problems if one.where.endswith(path.replace(".0", "[0]"))]
    assert "wrong-format" in found
