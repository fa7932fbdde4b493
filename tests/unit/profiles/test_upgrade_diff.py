"""What changes between two versions of an engine, by the real catalogue; and which of the two is kept."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ansible.utils.display  # noqa: F401 (its first import complains about a stdout that is captured)
import pytest

from drafthouse.cli import upgrade as script_of_upgrade
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.upgrade_diff import (
    NEW,
    NOTHING,
    OLD,
    THRESHOLD,
    Change,
    Decision,
    catalogue_changes,
    changes_text,
    decide,
    rendered_changes,
)
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.report.archive import newest, read_kept
from drafthouse.report.compare.diff import compare
from tests.support.builders import make_resolved
from tests.support.report_builders import Change as ReportChange
from tests.support.report_builders import keep
from tests.support.verb import called

pytestmark = pytest.mark.processes

LLAMA_OLD, LLAMA_NEW = "2026.4.8929", "2026.10.11549"


@pytest.fixture(scope="module")
def catalog() -> Any:
    return load_catalog(ROOT)


def by_name(changes: list[Change]) -> dict[str, Change]:
    return {change.what: change for change in changes}


# --- by the catalogue ---------------------------------------------------------------------------


def test_a_word_that_was_renamed(catalog: Any) -> None:
    found = by_name(
        catalogue_changes(catalog.engines["llamacpp"], catalog.profiles["cpu-smollm2-ngram"], LLAMA_OLD, LLAMA_NEW)
    )
    length = found["ngram-simple: num_speculative_tokens"]
    assert (length.old, length.new) == ("--spec-ngram-size-m", "--spec-ngram-simple-size-m")
    assert length.used
    # A word of another method's matters to others.
    assert not found["draft-simple: num_speculative_tokens"].used
    # The draft model alone was enough then: no word for the method.
    assert found["draft-simple: method"].old == NOTHING


def test_what_the_profile_uses_comes_first(catalog: Any) -> None:
    changes = catalogue_changes(
        catalog.engines["llamacpp"], catalog.profiles["cpu-smollm2-ngram"], LLAMA_OLD, LLAMA_NEW
    )
    used = [change.used for change in changes]
    assert used == sorted(used, reverse=True)
    assert any(used)


def test_what_goes_has_its_reason(catalog: Any) -> None:
    found = by_name(
        catalogue_changes(catalog.engines["vllm"], catalog.profiles["rtx6000-llama31-medusa"], "0.32.0", "0.33.0")
    )
    gone = found["method medusa"]
    assert (gone.old, gone.new, gone.used, gone.why) == ("medusa", NOTHING, True, "removed in 0.33.0")


def test_what_comes(catalog: Any) -> None:
    found = by_name(
        catalogue_changes(catalog.engines["vllm"], catalog.profiles["rtx6000-qwen-eagle3"], "0.10.0", "0.32.0")
    )
    assert (found["method suffix"].old, found["method suffix"].new) == (NOTHING, "suffix")
    assert (found["moe_backend"].old, found["moe_backend"].new) == (NOTHING, "--moe-backend")
    # A separate draft was refused in between.
    assert found["method draft_model"].old == NOTHING


def test_neighbours_that_differ_in_nothing(catalog: Any) -> None:
    assert catalogue_changes(catalog.engines["vllm"], catalog.profiles["rtx6000-qwen-eagle3"], "0.31.0", "0.32.0") == []


# --- as rendered --------------------------------------------------------------------------------


def rendered(profile: str, old: str, new: str, inventory: str = "local") -> dict[str, Change]:
    site = site_of_inventory(inventory)
    return by_name(rendered_changes(*(resolved_profile(profile, site, {"engine_version": v}) for v in (old, new))))


def test_the_commands_of_two_versions() -> None:
    found = rendered("cpu-smollm2-ngram", LLAMA_OLD, LLAMA_NEW)
    assert (found["version"].old, found["version"].new) == (LLAMA_OLD, LLAMA_NEW)
    assert found["packages"].new == f"xllamacpp=={LLAMA_NEW}"
    assert (found["speculative: --spec-ngram-size-m"].old, found["speculative: --spec-ngram-size-m"].new) == ("8", "-")
    assert found["speculative: --spec-ngram-simple-size-m"].new == "8"
    # The baseline has none of it.
    assert not any(name.startswith("baseline: ") for name in found)


def test_only_the_version_where_nothing_else_changes() -> None:
    found = rendered("rtx6000-qwen-eagle3", "0.32.0", "0.33.0", "workstation")
    assert set(found) == {"version", "image", "packages"}


def test_keys_of_a_json_flag_and_what_both_arms_have(catalog: Any) -> None:
    site = site_of_inventory("workstation")
    old = resolved_profile("rtx6000-qwen-eagle3", site)
    more = {"speculation": {"num_speculative_tokens": 5}, "serve": {"max_model_len": 8192}}
    found = by_name(rendered_changes(old, resolved_profile("rtx6000-qwen-eagle3", site, more)))
    key = "speculative: --speculative-config num_speculative_tokens"
    assert found[key].new == "5"
    assert found["--max-model-len"].new == "8192"


def test_keys_of_yaml() -> None:
    site = site_of_inventory("workstation")
    old = resolved_profile("rtx6000-gptoss-trtllm-eagle3", site)
    more = {"speculation": {"num_speculative_tokens": old["method"]["num_speculative_tokens"] + 1}}
    changes = rendered_changes(old, resolved_profile("rtx6000-gptoss-trtllm-eagle3", site, more))
    assert [change.what for change in changes if "speculative_config." in change.what]


def test_the_tables_mark_what_is_in_use(catalog: Any) -> None:
    changes = catalogue_changes(
        catalog.engines["llamacpp"], catalog.profiles["cpu-smollm2-ngram"], LLAMA_OLD, LLAMA_NEW
    )
    text = changes_text("llama.cpp server", LLAMA_OLD, LLAMA_NEW, [], changes)
    assert "nothing but the version" in text
    assert "* ngram-simple: num_speculative_tokens" in text
    assert "\ndraft-simple: num_speculative_tokens" in text


def script(*words: str) -> subprocess.CompletedProcess[str]:
    return called("upgrade", *words)


def test_the_script_shows_and_touches_nothing() -> None:
    done = script("cpu-smollm2-ngram", LLAMA_NEW, "--from", "2026.9.11063", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "xllamacpp==2026.9.11063" in done.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("cpu-smollm2-ngram", LLAMA_NEW), f"found: {LLAMA_NEW} twice"),
        (("cpu-smollm2-ngram", "9.9"), "which does not exist"),
        (("rtx6000-llama31-medusa", "0.33.0"), "which does not have 'medusa' (removed in 0.33.0)"),
    ],
)
def test_the_script_says_what_cannot_be(words: tuple[str, ...], found: str) -> None:
    done = script(*words, "--list")
    assert done.returncode == 2
    assert found in done.stderr
    assert "Traceback" not in done.stderr


# --- which one is kept --------------------------------------------------------------------------


def version(number: str, factor: float = 1.0) -> ReportChange:
    """Make a report that of another version, whose speculative arm takes so many times as long for a token."""

    def change(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        resolved["engine"]["version"] = base["engine"]["version"] = spec["engine"]["version"] = number
        for request in spec["requests"]:
            request["tpot_ms"] *= factor

    return change


def decided(reports: Path, factor: float, **second: Any) -> Decision:
    one = keep(reports, "20261120-100000", version("1"))
    two = keep(reports, "20261121-100000", version("2", factor), **second)
    return decide(compare(read_kept(one), read_kept(two), THRESHOLD))


def test_a_faster_one_is_kept(tmp_path: Path) -> None:
    decision = decided(tmp_path, 0.6)
    assert decision.keep == NEW
    assert decision.why[0].startswith("faster in 1 of ")


def test_one_that_is_no_worse_is_kept(tmp_path: Path) -> None:
    assert decided(tmp_path, 1.0) == Decision(NEW, ("no measurable difference",))


def test_a_slower_one_is_not(tmp_path: Path) -> None:
    decision = decided(tmp_path, 1.25)
    assert decision.keep == OLD
    assert all(why.startswith("the new version is worse: ") for why in decision.why)


def test_one_that_never_drafted_is_not(tmp_path: Path) -> None:
    decision = decided(tmp_path, 1.0, drafted=0)
    assert decision.keep == OLD
    assert decision.why[0].startswith("the two cannot be compared: B is invalid")


def test_one_with_too_few_prompts_is_not(tmp_path: Path) -> None:
    assert decided(tmp_path, 1.0, prompts=3).keep == OLD


def in_version(number: str) -> Any:
    resolved = make_resolved()
    resolved["engine"]["version"] = number
    return resolved


def test_the_newest_report_of_a_version_on_a_box(tmp_path: Path) -> None:
    for stamp, number in (("20261101-100000", "1"), ("20261102-100000", "2"), ("20261103-100000", "1")):
        folder = keep(tmp_path, stamp, version(number))
    host = json.loads((folder / "report.json").read_text())["host"]
    found = newest(tmp_path, host, in_version("1"))
    assert found is not None
    assert found.path == folder
    assert newest(tmp_path, host, in_version("3")) is None
    assert newest(tmp_path, "another", in_version("1")) is None

    def tuned(base: dict[str, Any], spec: dict[str, Any], resolved: dict[str, Any]) -> None:
        version("1")(base, spec, resolved)
        resolved["arms"]["speculative"]["flags"] = [["--other", "1"]]

    # A kept result writes no new report: that of other settings is newer, and not meant.
    later = keep(tmp_path, "20261104-100000", tuned)
    again = newest(tmp_path, host, in_version("1"))
    assert again is not None
    assert again.path == folder
    # On a box whose own variables change the commands the version says which.
    elsewhere = in_version("1")
    elsewhere["arms"]["speculative"]["flags"] = [["--model", "/data/x"]]
    other = newest(tmp_path, host, elsewhere)
    assert other is not None
    assert other.path == later


class FakePlays(script_of_upgrade.Plays):
    """Plays that end as a test says, by version, and leave a report of it."""

    def __init__(self, reports: Path, names: list[str], ends: dict[str, list[bool]], factor: float = 1.0) -> None:
        self.reports, self.names, self.ends, self.factor = reports, names, ends, factor
        self.played: list[tuple[str, ...]] = []

    def site(self, version_: str, *more: str) -> bool:
        ends = self.ends.get(version_)
        well = ends.pop(0) if ends else True
        if well and not more:
            keep(self.reports, f"2026112{len(self.played)}-100000", version(version_, self.factor ** (version_ == "2")))
        self.played.append((version_, *more))
        return well

    def hosts(self) -> list[str]:
        return self.names


@pytest.mark.parametrize(
    ("ends", "factor", "status", "played"),
    [
        ({}, 1.0, 0, [("1",), ("2",)]),
        ({}, 1.3, 2, [("1",), ("2",), ("1", "--limit", "HOST")]),
        # Refused by the doctor it may serve all the same, and on another box it does.
        ({"2": [False]}, 1.0, 2, [("1",), ("2",), ("1", "--limit", "HOST")]),
    ],
)
def test_what_is_kept_is_what_serves_in_the_end(
    tmp_path: Path, ends: dict[str, list[bool]], factor: float, status: int, played: list[tuple[str, ...]]
) -> None:
    given = script_of_upgrade.options().parse_args(["cpu-smollm2-ngram", "2", "--reports", str(tmp_path)])
    keep(tmp_path, "20261101-100000", version("1"))
    host = json.loads(next(tmp_path.glob("*/*/report.json")).read_text())["host"]
    plays = FakePlays(tmp_path, [host], ends, factor)
    resolved = {number: in_version(number) for number in ("1", "2")}
    assert script_of_upgrade.upgraded(given, plays, resolved) == status
    assert plays.played == [tuple(word.replace("HOST", host) for word in words) for words in played]


def test_an_old_version_that_does_not_come_back_is_said(tmp_path: Path) -> None:
    given = script_of_upgrade.options().parse_args(["cpu-smollm2-ngram", "2", "--reports", str(tmp_path)])
    plays = FakePlays(tmp_path, ["a", "b"], {"1": [True, False], "2": [False]})
    with pytest.raises(DrafthouseError, match="1 did not start again") as caught:
        script_of_upgrade.upgraded(given, plays, {number: in_version(number) for number in ("1", "2")})
    assert caught.value.problems[0].where == "a, b"


def test_what_comes_next_is_not_said_by_the_runs_of_an_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ansible-playbook"
    program.write_text('#!/bin/sh\necho "last lines go to $DRAFTHOUSE_CLOSING_FILE"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given = script_of_upgrade.options().parse_args(["cpu-smollm2-ngram", "1", "--inventory", "local"])
    assert script_of_upgrade.Plays(given).site("1")
    assert capfd.readouterr().out == "last lines go to /dev/null\n"
