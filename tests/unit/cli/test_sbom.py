"""The SBOM of a release: allowed by CycloneDX's own schema, complete, and the same bytes each time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from drafthouse.core.requirement_lines import hashes_of, pin_of, read_lock
from drafthouse.profiles.workspace import ROOT
from tests.support.catalogue import table

pytestmark = pytest.mark.processes


def made(to: Path, **environment: str) -> str:
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(to.parent), **environment}
    words = [sys.executable, str(ROOT / "scripts" / "sbom.py"), "--to", str(to)]
    subprocess.run(words, env=clean, check=True, capture_output=True)
    return to.read_text("utf-8")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return made(tmp_path_factory.mktemp("sbom") / "a.cdx.json")


@pytest.fixture(scope="module")
def parts(text: str) -> dict[str, Any]:
    return {part["bom-ref"]: part for part in json.loads(text)["components"]}


def test_the_schema_allows_it(text: str) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert json.loads(text)["specVersion"] == "1.6"
    broken = {**json.loads(text), "components": [{"type": "library"}]}
    assert validator.validate_str(json.dumps(broken)) is not None  # the validator is no rubber stamp


def test_the_same_release_gives_the_same_bytes(text: str, tmp_path: Path) -> None:
    assert "timestamp" not in json.loads(text)["metadata"]
    assert str(ROOT) not in text
    # Another order of hashes in memory, another day.
    assert made(tmp_path / "b.cdx.json", PYTHONHASHSEED="7") == text
    dated = made(tmp_path / "c.cdx.json", SOURCE_DATE_EPOCH="86400")
    assert json.loads(dated)["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"


def test_every_locked_package_is_in_it_with_its_hashes(parts: dict[str, Any]) -> None:
    locks = ["requirements.txt", "roles/box_env/files/requirements.txt", "roles/engine/files/locks/vllm-0.32.0-cpu.txt"]
    for lock in locks:
        for entry in read_lock((ROOT / lock).read_text("utf-8")):
            part = parts[f"pypi:{pin_of(entry)}"]
            (files,) = part["externalReferences"]
            known = {digest["content"] for digest in files["hashes"]}
            assert {digest.removeprefix("sha256:") for digest in hashes_of(entry)} <= known
            assert lock in [one["value"] for one in part["properties"]]
    assert parts["pypi:jinja2==3.1.6"]["licenses"]


def test_engines_images_and_models_are_in_it(parts: dict[str, Any]) -> None:
    for key, engine in table("engines").items():
        assert f"engine:{key}@{engine['default_version']}" in parts
    assert parts["image:vllm/vllm-openai:v0.32.0"]["purl"].startswith("pkg:docker/vllm/vllm-openai@v0.32.0")
    for key, model in table("models").items():
        if hub := model["source"].get("hub"):
            part = parts[f"model:{key}"]
            assert part.get("version", "unresolved") == hub["revision"]
            assert part["purl"].startswith(f"pkg:huggingface/{hub['repo']}".replace("+", "%2B"))
