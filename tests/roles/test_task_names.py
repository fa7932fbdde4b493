"""Task names begin with a verb out of one short list: a run's output then reads alike from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from drafthouse.profiles.workspace import ROOT

VERBS = ("Ensure", "Install", "Configure", "Start", "Stop", "Wait for", "Verify", "Remove", "Gather")
#: What none of those says: data that moves, what a measurement is, and how a run ends.
MORE = ("Arm", "Copy", "Download", "Fail if", "Judge", "Measure", "Restart", "Restore", "Show")
FILES = [ROOT / "site.yml", *ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]


def names(found: Any) -> Iterator[str]:
    """Yield the names of all tasks below, those of blocks too; a play's own is a noun."""
    for entry in found if isinstance(found, list) else []:
        parts = [part for part in ("tasks", "block", "rescue", "always") if part in entry]
        if "hosts" not in entry and "import_playbook" not in str(entry):
            yield entry["name"]
        for part in parts:
            yield from names(entry[part])


def test_every_task_begins_with_a_verb_of_the_list() -> None:
    seen = 0
    for path in FILES:
        for name in names(yaml.safe_load(path.read_text("utf-8"))):
            seen += 1
            first = name.lstrip("\"{( '")  # of a template, its first text
            assert first.startswith(tuple(f"{verb}{end}" for verb in (*VERBS, *MORE) for end in " ,")), (
                f"{path.relative_to(ROOT)}: {name}"
            )
    assert seen > 150


def test_the_profile_is_resolved_by_one_task_a_play() -> None:
    for path in FILES:
        plays = [play for play in yaml.safe_load(path.read_text("utf-8")) or [] if "hosts" in play]
        for play in plays:
            resolves = [task for task in play["tasks"] if "drafthouse.core.resolve" in task]
            # A host learns its place among those of a replica only from the others: once more, with that.
            resolves = [task for task in resolves if not (task["drafthouse.core.resolve"] or {}).get("again")]
            assert len(resolves) <= 1, path
            assert all(task["name"].startswith("Gather box facts and resolve the ") for task in resolves), path
