#!/usr/bin/env python3
"""Write the generated pages: a README for each role, pages on profiles and error codes, JSON schemas and others.

With --check nothing is written; if pages are out of date, they are listed and the exit status is 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _architecture
import yaml
from _clone import run

from drafthouse.core.error_codes import MEANINGS
from drafthouse.core.exit_codes import DONE, FAILED
from drafthouse.core.schema import Shape
from drafthouse.core.schema_export import DIALECT, Schema, json_schema_of, required_of
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.ever_run import ever_run
from drafthouse.profiles.flag_lists import FLAG_LISTS
from drafthouse.profiles.known_issue_schema import KNOWN_ISSUES
from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.own_folders import PROFILES_VARIABLE
from drafthouse.profiles.published_schema import PUBLISHED
from drafthouse.profiles.schemas import ENGINE, ENGINE_FILE, GPUS, HARDWARE, MODELS, PROFILE
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.report import community
from drafthouse.report.evidence import NO_PROFILE, CheckedEvidence, all_evidence
from drafthouse.report.schema import schema_page
from drafthouse.translate.flags import OLD_FLAGS, OLD_FLAGS_OF_ALL

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Proof

_COMMENT = "Written by `make docs` from src/drafthouse/profiles/schemas.py; change that instead."
_WRITTEN = "<!-- Written by `make docs` from {source}; change that instead. -->"


def main() -> int:
    """Write or check all generated pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where a page is out of date")
    given = parser.parse_args()
    os.environ.pop(PROFILES_VARIABLE, None)  # the pages show only the shipped profiles
    stale = []
    for path, text in pages():
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if not given.check:
            path.write_text(text, "utf-8")
    for name in stale:
        print(f"out of date: {name} (make docs)" if given.check else f"written: {name}")
    return FAILED if given.check and stale else DONE


def pages() -> Iterator[tuple[Path, str]]:
    """Yield every generated page and its text."""
    roles = sorted(path.parent.parent for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"))
    for role in roles:
        yield role / "README.md", role_page(role)
    yield ROOT / "docs" / "roles.md", roles_page(roles)
    yield ROOT / "docs" / "profiles.md", profiles_page()
    yield ROOT / "docs" / "proof.md", proof_page()
    yield ROOT / "docs" / "community.md", community_page()
    yield ROOT / "docs" / "errors.md", errors_page()
    yield ROOT / "docs" / "report.schema.json", schema_page()
    yield ROOT / "docs" / "architecture.svg", _architecture.svg()
    for name, schema in schemas().items():
        yield ROOT / "docs" / f"{name}.schema.json", json.dumps(schema, indent=1) + "\n"


def schemas() -> dict[str, Schema]:
    """JSON schemas, by name, of profiles and files of the catalogue, which name theirs in the first line."""
    shapes: dict[str, tuple[str, Shape]] = {
        "profile": ("A profile: profiles/*.yml", PROFILE),
        "hardware": ("Hardware: profiles/catalog/hardware.yml", HARDWARE),
        "models": ("Models and heads: profiles/catalog/models.yml", MODELS),
        "engine": ("An engine: profiles/catalog/engines/*.yml", ENGINE_FILE),
        "gpus": ("NVIDIA's GPUs: profiles/catalog/gpus.yml", GPUS),
        "known-issues": ("What users of the engines were hit by: profiles/catalog/known-issues.yml", KNOWN_ISSUES),
        "published": ("What others published of speculation: profiles/catalog/published.yml", PUBLISHED),
        "flags": ("The flags of an engine's versions: profiles/catalog/flags/*.yml", FLAG_LISTS),
        "old-flags": ("What became of an engine's old flags: profiles/catalog/old_flags/*.yml", OLD_FLAGS),
        "old-flags-of-all": ("What became of old flags everywhere: profiles/catalog/old_flags.yml", OLD_FLAGS_OF_ALL),
    }
    exported = {
        name: {"$schema": DIALECT, "title": title, "$comment": _COMMENT, **json_schema_of(shape)}
        for name, (title, shape) in shapes.items()
    }
    # Only an engine with the key `like`, based on another one, may leave out required keys, or remove keys with null.
    exported["engine"] |= {
        "if": {"not": {"required": ["like"]}},
        "then": {"required": required_of(ENGINE), "additionalProperties": {"not": {"type": "null"}}},
    }
    return exported


def _specs(role: Path) -> dict[str, Any]:
    """Argument specs of a role's main entry point."""
    specs: dict[str, Any] = yaml.safe_load((role / "meta/argument_specs.yml").read_text("utf-8"))
    return dict(specs["argument_specs"]["main"])


def role_page(role: Path) -> str:
    """A role's README: its description, its variables and the names of its tasks."""
    specs = _specs(role)
    lines = [
        f"# {role.name}",
        "",
        _WRITTEN.format(source="meta/argument_specs.yml"),
        "",
        f"{specs['short_description'].rstrip('.')}.",
        "",
        *[f"- {sentence}" for sentence in map(_code, specs.get("description", []))],
        "",
        "| variable | type | default | description |",
        "|---|---|---|---|",
    ]
    for name, option in specs["options"].items():
        default = "required" if option.get("required") else f"`{_shown(option.get('default'))}`"
        choices = f" One of: {', '.join(option['choices'])}." if "choices" in option else ""
        lines.append(f"| `{name}` | {option['type']} | {default} | {_code(_line(option['description']))}{choices} |")
    tasks = yaml.safe_load((role / "tasks/main.yml").read_text("utf-8"))
    lines += ["", "Tasks, from `tasks/main.yml`:", ""]
    lines += [f"{number}. {task['name']}" for number, task in enumerate(tasks, start=1)]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Ansible's ``C(code)`` as Markdown."""
    return re.sub(r"C\(([^()]*)\)", r"`\1`", text)


def roles_page(roles: list[Path]) -> str:
    """The list of all roles."""
    lines = ["# Roles", "", _WRITTEN.format(source="each role's meta/argument_specs.yml"), ""]
    lines += ["| role | what it does |", "|---|---|"]
    for role in roles:
        lines.append(
            f"| [{role.name}](../roles/{role.name}/README.md) | {_specs(role)['short_description'].rstrip('.')} |"
        )
    return "\n".join(lines) + "\n"


def profiles_page() -> str:
    """The table of profiles, from what `make plan` shows of each."""
    catalog = load_catalog(ROOT)
    lines = [
        "# Profiles",
        "",
        _WRITTEN.format(source="profiles/ and profiles/catalog/"),
        "",
        "| profile | hardware | target | draft | method | engine | download | expected speed-up | verified |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for name in sorted(catalog.profiles):
        resolved = resolved_profile(name, site_of_inventory("workstation"))
        lines.append(f"| {' | '.join(_cells(resolved))} |")
        notes += _notes(resolved)
    lines += [
        "",
        "Download is in GB (10^9 bytes). The expected speed-up is for one user, from the assumed acceptance and what a"
        " step reads and computes, within 17 % ([how](measuring.md#what-to-expect-before)). Only a report measures it.",
        "",
        *notes,
    ]
    return "\n".join(lines).rstrip() + "\n"


def errors_page() -> str:
    """The table of all codes."""
    lines = [
        "# Error codes",
        "",
        _WRITTEN.format(source="src/drafthouse/core/error_codes.py"),
        "",
        "An error says what was `found`, what was `needed`, what to `do`, and ends with a `code`. The code stays the"
        " same when the words change: search for it. [Troubleshooting](troubleshooting.md) has more on common ones.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    return "\n".join([*lines, *(f"| `{code}` | {meaning} |" for code, meaning in MEANINGS.items())]) + "\n"


def community_page() -> str:
    """The page of rows that other people measured."""
    lines = [
        "# Measured by others",
        "",
        _WRITTEN.format(source="the files in community/"),
        "",
        "Rows that people sent, one per run. Each is what `drafthouse report --row` printed on their machine: its"
        " speed-up has the interval and the control of [the verdict](verdict.md). The run itself is not kept, so a row"
        " is a claim and no [evidence](proof.md). Kinds of prompts, driver and control are in the file.",
        "",
        "To add yours:",
        "",
        "```sh",
        "drafthouse report --row --json > community/2026-11-30-my-card.json",
        "```",
        "",
        "The file is named after the day of the run. `make docs` writes this page again. Open a pull request with both"
        " files; tests check the row's form.",
        "",
        f"| {' | '.join(community.HEADINGS)} | row |",
        f"|{'---|' * (len(community.HEADINGS) + 1)}",
    ]
    for name, row in community.rows(ROOT / community.FOLDER).items():
        lines.append(f"| {' | '.join(community.cells(row))} | [file](../{community.FOLDER}/{name}) |")
    return "\n".join(lines) + "\n"


def proof_page() -> str:
    """The table of what was tested of each profile, how, and what was not."""
    catalog = load_catalog(ROOT)
    proofs = json.loads((ROOT / "tests/real_engines/proofs.json").read_text("utf-8"))
    lines = [
        "# Test coverage of each profile",
        "",
        _WRITTEN.format(source="profiles/ and tests/real_engines/proofs.json, which the tests write and check"),
        "",
        "| profile | verified | article | engine | method | tested, and how | not tested |",
        "|---|---|---|---|---|---|---|",
    ]
    refused = []
    evidence = all_evidence(ROOT / "evidence")
    for name in sorted(catalog.profiles):
        resolved = resolved_profile(name, site_of_inventory("workstation"))
        proof = catalog.engines[resolved["engine"]["id"]].get("proof")
        served = [kept for kept in evidence if kept.facts["profile"] == name]
        proven, missing = _served(served) if served else _proof(resolved, proof, proofs)
        engine, method = resolved["engine"], resolved["method"]
        cells = [
            f"`{name}`",
            ever_run(resolved["verified"]),
            _line(resolved["article"] or "none"),
            f"{engine['name']} {engine['version']}; {', '.join(engine['runtimes'])}",
            f"{method['name']}, K={method['num_speculative_tokens']}",
            proven,
            missing,
        ]
        lines.append(f"| {' | '.join(cells)} |")
        for version, arms_of in proofs.items():
            if "refused" in arms_of.get(name, {}):
                lacking = _line(arms_of[name]["refused"]).replace(f"vLLM {version}, which does not have ", "")
                refused.append(f"- `{name}` for vLLM {version}: {lacking}")
    lines += [
        "",
        "Parser: that version's `vllm serve` parser read the command. Configuration: its engine built one from it for a"
        " CPU, with made `config.json` files; checks of a GPU platform did not run. Served: a real A/B run. All by"
        " `make test-engines` and `make soak`.",
        "",
        *_lane_lines(evidence),
        "Refused by the resolver, because that version does not have what is listed:",
        "",
        *refused,
    ]
    return "\n".join(lines) + "\n"


def _served(evidence: Sequence[CheckedEvidence]) -> tuple[str, str]:
    """The cells "tested" and "not tested" of a profile that has run on GPUs."""
    links = [
        f"{kept.facts['verdict']} on {kept.gpu_and_day}, {kept.facts['engine_version']}"
        f" ([evidence](../evidence/{kept.folder.name}/report.json))"
        for kept in evidence
    ]
    return f"served: {'; '.join(links)}", "other cards"


def _lane_lines(evidence: Sequence[CheckedEvidence]) -> list[str]:
    """Lines on the GPUs that `make test-gpu` has run on, and with which of its levels."""
    lane = "`make test-gpu` ([levels](gpu-lane.md)) has run on"
    lines = [
        f"- levels {', '.join(map(str, kept.facts['levels']))} on {kept.gpu_and_day}, driver {kept.facts['driver']}"
        f" ([evidence](../evidence/{kept.folder.name}/evidence.json))"
        for kept in evidence
        if kept.facts["profile"] == NO_PROFILE
    ]
    if not lines:
        return [f"{lane} no GPU yet: clocks and energy were read only from a library in the driver's place.", ""]
    return [f"{lane}:", "", *lines, ""]


_ON_THE_GPU = "speed, acceptance, memory and kernels on that GPU; the real weights"


def _proof(resolved: Mapping[str, Any], proof: Proof | None, proofs: Mapping[str, Any]) -> tuple[str, str]:
    """The cells "tested" and "not tested" of a profile that has run on no GPU.

    ``proof``: of its engine, from the catalogue. ``proofs``: by version of vLLM and profile, from its parsers.
    """
    name = resolved["profile"]
    if resolved["hardware"]["kind"] == "cpu" and resolved["verified"]:
        return "served: real A/B, both arms, report", "the gain on a GPU"
    if resolved["hardware"]["kind"] == "cpu":
        return "nothing yet", "the A/B through `site.yml`"
    if proof:
        return proof["proven"], "; ".join(part for part in (proof.get("missing"), _ON_THE_GPU) if part)
    proven = []
    missing = []
    for version, arms_of in proofs.items():
        arms = arms_of.get(name, {})
        if not arms or "refused" in arms:
            continue
        passed = []
        if all(arm["parser"] == "ok" for arm in arms.values()):
            passed.append("parser")
        if all(arm["engine_config"] == "ok" for arm in arms.values()):
            passed.append("configuration")
        proven.append(f"{version}: {', '.join(passed)}")
        missing += [arm["engine_config"] for arm in arms.values() if arm["engine_config"] != "ok"]
    untried = [_line(text).replace("not tried: ", "the configuration: ") for text in dict.fromkeys(missing)]
    return "; ".join(proven) or "nothing", "; ".join([*untried, _ON_THE_GPU])


def _cells(resolved: Mapping[str, Any]) -> list[str]:
    """A row of the table of profiles."""
    download_bytes = sum(item["bytes"] for item in resolved["weights"] if item["source"] in ("hub", "package"))
    speedup = resolved["expectation"]["speedup"]
    method = resolved["method"]
    return [
        f"`{resolved['profile']}`",
        resolved["hardware"]["name"],
        resolved["target"]["name"],
        resolved["draft"]["name"] if resolved["draft"] else "none",
        f"{method['name']}, K={method['num_speculative_tokens']}",
        f"{resolved['engine']['name']} {resolved['engine']['version']}",
        f"{download_bytes / GB:.1f}",
        f"{speedup:.1f}x" if speedup else "not estimated",
        ever_run(resolved["verified"]),
    ]


def _notes(resolved: Mapping[str, Any]) -> list[str]:
    """Lines about a profile below the table."""
    notes = []
    if resolved["article"]:
        notes.append(f"- `{resolved['profile']}` replaces the commands of {resolved['article']}.")
    if resolved["synthetic"]:
        notes.append(f"- `{resolved['profile']}` is synthetic: {resolved['synthetic']}")
    return notes


def _shown(value: object) -> str:
    """A default value as YAML."""
    if value == "":
        return "''"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _line(text: object) -> str:
    """A text, or a list of texts, as one line for a cell of a table."""
    return " ".join(text if isinstance(text, list) else str(text).split()).replace("|", "\\|")


if __name__ == "__main__":
    run(main)
