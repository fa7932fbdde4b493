"""What the pages for people say of this repository is there: targets of make, lanes, files, headings, tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.cli.main import VERBS, module_of
from drafthouse.core.requirement_lines import pin_of, read_lock
from drafthouse.profiles.workspace import ROOT
from tests.support.page_commands import commands_of

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("roles/*/README.md")])
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = {
    *re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE),
    *(path.stem for path in ROOT.glob("profiles/*.yml")),
    # the reader's own, in docs/add-an-engine.md and docs/models.md
    "cpu-mine-ngram",
    "rtx6000-qwen3-14b-draftmodel",
}
# At the head of a code span, or of a line of a block that is typed.
MADE = re.compile(r"(?:`|^ *)make ([a-z][a-z0-9-]*)", re.MULTILINE)
COMMAND = re.compile(r"(?:`|^)(?:scripts/)?drafthouse ([a-z][a-z-]*)([^`\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def read(path: str) -> str:
    """A file of the repository."""
    return (ROOT / path).read_text("utf-8")


def unknown_targets(page: str) -> list[str]:
    """What a page tells people to make that the Makefile does not have."""
    typed = "\n".join(commands_of(page))
    spans = "\n".join(re.findall(r"`make [^`\n]*", page))
    return sorted(set(MADE.findall(typed + "\n" + spans)) - TARGETS)


def unknown_commands(page: str) -> list[str]:
    """What a page tells people to type that `drafthouse` has no verb or no option for."""
    unknown = []
    for verb, rest in COMMAND.findall(page.replace("\\\n", " ")):
        known = module_of(verb).options().format_help() if verb in VERBS else ""
        words = OPTION.findall(re.split(" -- | #|'", rest)[0]) if known else [verb]
        unknown += [word for word in words if not re.search(rf"{word}\b(?!-)", known)]
    return sorted(set(unknown))


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", one)).lower().replace(" ", "-") for one in headings}


def broken_links(text: str, folder: Path, own: Path) -> list[str]:
    """The links of a page in ``folder`` that lead to no file, or to no heading of one."""
    broken = []
    for place, anchor in LINK.findall(CODE.sub("", text)):
        if place.startswith(("https:", "http:", "mailto:")):
            continue
        target = folder / place if place else own
        missing = not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8")))
        broken += [place + anchor] if missing else []
    return broken


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_names_only_what_is_there(path: Path) -> None:
    text = path.read_text("utf-8")
    assert unknown_targets(text) == []
    assert path.name == "CHANGELOG.md" or unknown_commands(text) == []
    assert broken_links(text, path.parent, path) == []


def test_a_wrong_target_and_a_wrong_link_are_found() -> None:
    contributing = ROOT / "CONTRIBUTING.md"
    text = contributing.read_text("utf-8")
    changed = text.replace("`make lock`", "`make locks`").replace("docs/proof.md", "docs/prove.md")
    assert unknown_targets(changed) == ["locks"]
    assert broken_links(changed, ROOT, contributing) == ["docs/prove.md"]
    page = "```sh\ndrafthouse fit qwen3-8b\n```\n`drafthouse bench --num-prompt 3`, `drafthouse plan x`"
    assert unknown_commands(page) == ["--num-prompt", "fit"]
    changed = text.replace("](docs/supply-chain.md)", "](docs/supply-chain.md#pickles)")
    assert broken_links(changed, ROOT, contributing) == ["docs/supply-chain.md#pickles"]


def places(text: str) -> list[str]:
    """The files and folders of this repository that a page links to, as often as it does, without anchors."""
    return [place for place, _ in LINK.findall(CODE.sub("", text)) if place and "://" not in place]


def test_the_index_names_every_page_once() -> None:
    linked = places(read("docs/README.md"))
    pages = {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}
    assert sorted(place for place in linked if place.endswith(".md") and "/" not in place) == sorted(pages)
    assert "decisions/README.md" in linked
    assert "docs/README.md" in places(read("README.md"))


def test_the_glossary_is_in_alphabetical_order() -> None:
    terms = re.findall(r"^### (.+)$", read("docs/glossary.md"), re.MULTILINE)
    assert terms == sorted(set(terms), key=str.casefold) != []


def test_contributing_has_a_row_for_every_lane() -> None:
    (listed,) = re.findall(r"^lanes=\(([^)]*)\)$", read(".ci/run"), re.MULTILINE)
    rows = re.findall(r"^\| `make ([a-z-]+)` \|", read("CONTRIBUTING.md"), re.MULTILINE)
    assert rows == ["lint", *sorted(listed.split(), key=rows.index), "test-fast", "soak"]


def test_the_hooks_call_the_tools_that_lint_calls() -> None:
    hooks: Any = [hook for repo in yaml.safe_load(read(".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    pinned = {pin_of(entry).partition("==")[0] for entry in read_lock(read("requirements-dev.txt"))}
    lint = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    for hook in hooks:
        program, *words = hook["entry"].removeprefix(".venv/bin/").split()
        assert (hook["language"], program in pinned) == ("system", True)
        assert " ".join([program, *words]).removesuffix(" --force-exclude") in lint


def test_the_workflow_calls_ci_run_and_pins_what_it_uses() -> None:
    text = read(".github/workflows/ci.yml")
    used = re.findall(r"uses: *(\S+)(.*)", text)
    assert used
    assert all(re.search(r"@[0-9a-f]{40}$", action) and re.match(r"  # v\d+\.\d+\.\d+$", tag) for action, tag in used)
    workflow: Any = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] and "permissions" not in job for job in workflow["jobs"].values())
    assert ".ci/run" in [step.get("run") for step in workflow["jobs"]["all"]["steps"]]
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {command.removeprefix("make ") for command in commands if command.startswith("make ")} <= TARGETS


def test_the_pages_that_everybody_reads_stay_short() -> None:
    """The README, and the path of docs/README.md: an hour at 150 words a minute."""
    assert len(read("README.md").split()) <= 900
    path = read("docs/README.md").partition("## Reference")[0]
    assert sum(len(read(f"docs/{page}").split()) for page in re.findall(r"\]\(([a-z-]+\.md)\)", path)) <= 9000
