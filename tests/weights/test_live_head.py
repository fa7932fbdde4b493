"""The head inside a target is looked for at the hub before the download, with few bytes, and in what lies there."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.retry import Patience
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from drafthouse.weights.download import Limits
from drafthouse.weights.fetch_plan import Wish, make_plan
from drafthouse.weights.live_head import ExpectedHead, check_at_hub
from tests.e2e.conftest import play
from tests.fakes.hub_contents import Begun, Content, as_content
from tests.fakes.hub_server import ALWAYS, COMMIT, Fault, Hub, hub_server
from tests.support.head_checkpoints import BODY, HEAD, MTP, NEXTN, header, safetensors, write_gguf
from tests.weights.harness import FIRST, INDEX, SECOND, lying, note_of
from tests.weights.test_weights_modules import run

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead

pytestmark = pytest.mark.processes

FOUR_BITS = {**HEAD, "mtp.fc.weight": "U8"}
SOON = Limits(patience=Patience(tries=2, first_s=0.01, longest_s=0.02, longest_wait_s=1))


def sharded(head: Mapping[str, str]) -> dict[str, Content | bytes]:
    """A repository with the body in a first shard and a head in a second."""
    names = {**dict.fromkeys(BODY, FIRST), **dict.fromkeys(head, SECOND)}
    second = {SECOND: safetensors(head)} if head else {}
    return {
        "config.json": b"{}", FIRST: safetensors(BODY), **second, INDEX: json.dumps({"weight_map": names}).encode()
    }  # fmt: skip


def put(hub: Hub, path: Path, head: BuiltinHead | None = MTP, check: bool = False, **options: Any) -> dict[str, Any]:
    """Run the module of the weights for a profile that drafts with a head inside its target (None: with another)."""
    item: dict[str, Any] = {"id": "m", "name": "M", "source": "hub", "path": str(path), "bytes": 1}
    item["details"] = {"repo": hub.repo, "revision": COMMIT}
    if head:
        item["builtin_head"] = head
    given = {"items": [item], "engine_python": "/nowhere", "uv": "/nowhere", "lock": str(path.parent / "lock")}
    return run("weights", {**given, **options}, check=check, HF_ENDPOINT=hub.url)


def code(result: dict[str, Any]) -> str:
    [problem] = result["problems"]
    return str(problem["code"])


def files_asked(hub: Hub) -> set[str]:
    """The files whose bytes somebody asked for."""
    return set(hub.sent_of)


# --- refused before anything is fetched -----------------------------------------------------------------


@pytest.mark.parametrize("check", [False, True])
def test_an_export_without_the_head_is_refused_from_its_index_alone(tmp_path: Path, check: bool) -> None:
    with hub_server(Hub(sharded({}))) as hub:
        result = put(hub, tmp_path / "m", check=check)
    [problem] = result["problems"]
    assert problem == {
        "code": "builtin-head-not-exported",
        "found": "no tensor mtp.fc.weight, mtp.layers.0.*",
        "needed": "the tensors of the built-in head that this method drafts with: mtp.fc.weight, mtp.layers.0.*",
        "do": "use org/whole, which has it, or a method without it",
        "where": f"org/model at {COMMIT}",
    }
    assert files_asked(hub) == {INDEX}
    assert not (tmp_path / "m").exists()
    assert not note_of(tmp_path / "m")


@pytest.mark.parametrize("no_range", [False, True])
def test_a_head_in_four_bits_is_refused_from_its_shards_header(tmp_path: Path, no_range: bool) -> None:
    """With a server that has no ranges, too: it sends all of the file, and the connection is closed."""
    faults = {SECOND: [Fault(ALWAYS, no_range=no_range)]}
    with hub_server(Hub(sharded(FOUR_BITS), faults=faults)) as hub:
        result = put(hub, tmp_path / "m")
    assert code(result) == "builtin-head-precision"
    assert files_asked(hub) == {INDEX, SECOND}
    assert not (tmp_path / "m").exists()


def test_a_broken_index_is_the_publishers_and_is_refused(tmp_path: Path) -> None:
    with hub_server(Hub({**sharded(HEAD), INDEX: b'{"weight_map": '})) as hub:
        result = put(hub, tmp_path / "m")
    assert code(result) == "weights-damaged"
    assert files_asked(hub) == {INDEX}


def test_what_the_hub_refuses_is_said_as_ever(tmp_path: Path) -> None:
    with hub_server(Hub(sharded(HEAD), faults={f"resolve:{INDEX}": [Fault(ALWAYS, status=403)]})) as hub:
        assert code(put(hub, tmp_path / "m")) == "hub-refused"


# --- fetched ----------------------------------------------------------------------------------------------


def test_a_repository_with_its_head_is_fetched_and_looked_into_once(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with hub_server(Hub(sharded(HEAD))) as hub:
        result = put(hub, path)
        assert (result["changed"], result["notes"]) == (True, [])
        assert lying(path) == set(hub.files)
        assert note_of(path)["checked"]["head"] == MTP
        sent, asked = hub.sent, len(hub.asked)
        assert put(hub, path)["changed"] is False
        assert (hub.sent, len(hub.asked)) == (sent, asked)


def test_an_index_that_comes_with_wrong_bytes_once_refuses_nobody(tmp_path: Path) -> None:
    with hub_server(Hub(sharded(HEAD), faults={INDEX: [Fault(wrong_at=1)]})) as hub:
        result = put(hub, tmp_path / "m")
    assert result["changed"]
    [note] = result["notes"]
    assert note.endswith(f"after the download, not before: {INDEX} came with wrong bytes")


def test_a_profile_that_drafts_with_something_else_takes_any_export(tmp_path: Path) -> None:
    """And one that drafts with the head is refused by what lies there then, without the hub."""
    path = tmp_path / "m"
    with hub_server(Hub(sharded(FOUR_BITS))) as hub:
        assert put(hub, path, head=None)["changed"]
        asked = len(hub.asked)
        for check in (True, False):
            result = put(hub, path, check=check, offline=not check)
            assert code(result) == "builtin-head-precision"
            assert result["problems"][0]["where"] == str(path)
        assert len(hub.asked) == asked


def test_weights_from_elsewhere_are_looked_into_when_they_are_there(tmp_path: Path) -> None:
    """A box without a network gets what another one has; nothing is asked of a hub."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    with hub_server(Hub(sharded({}))) as hub:
        assert put(hub, tmp_path / "there" / "m", head=None)["changed"]
        asked = len(hub.asked)
        elsewhere = {"models_dir": str(tmp_path / "here"), "folder": str(tmp_path / "there")}
        result = put(hub, tmp_path / "here" / "m", elsewhere=elsewhere)
        assert code(result) == "builtin-head-not-exported"
        assert len(hub.asked) == asked


# --- how little is read -----------------------------------------------------------------------------------


def look(hub: Hub, head: ExpectedHead, path: Path) -> list[str]:
    """Look at the hub as a run does before it fetches."""
    wish = Wish(hub.repo, COMMIT, path, endpoint=hub.url, one_file=bool(head.file), head=head)
    return check_at_hub(head, make_plan(wish), SOON)


def large(head: Mapping[str, str]) -> dict[str, Content | bytes]:
    """A repository of 65 GB as a mixture of experts is published: 14 shards, the head's layer across two."""
    files: dict[str, Content | bytes] = {}
    names: dict[str, str] = {}
    inside = list(head.items())
    for number in range(1, 15):
        tensors = {f"model.layers.{number}.mlp.experts.{one}.gate_up_proj.weight": "BF16" for one in range(1500)}
        tensors |= dict(inside[number - 13 :: 2]) if number >= 13 else {}
        start, behind = header(tensors, 65_000_000_000 // 14 // 1500 // 2)
        shard = f"model-{number:05}-of-00014.safetensors"
        files[shard] = Begun(start, len(start) + behind)
        names |= dict.fromkeys(tensors, shard)
    files[INDEX] = json.dumps({"weight_map": names}).encode()
    return files


def test_of_65_gb_an_index_and_less_than_3_mb_are_read(tmp_path: Path) -> None:
    head = ExpectedHead(MTP)
    with hub_server(Hub(large(HEAD))) as hub:
        assert sum(as_content(content).size for content in hub.files.values()) > 64_000_000_000
        assert look(hub, head, tmp_path / "m") == []
    index = hub.sent_of.pop(INDEX)
    assert index == as_content(hub.files[INDEX]).size
    assert set(hub.sent_of) == {"model-00013-of-00014.safetensors", "model-00014-of-00014.safetensors"}
    assert sum(hub.sent_of.values()) <= 3_000_000
    assert not [line for line in hub.cdn_asked if line.endswith(".safetensors -")], "all of a shard was asked for"
    for head_as_exported, found in (({}, "builtin-head-not-exported"), (FOUR_BITS, "builtin-head-precision")):
        with hub_server(Hub(large(head_as_exported))) as hub, pytest.raises(DrafthouseError) as refused:
            look(hub, head, tmp_path / "m")
        assert [problem.code for problem in refused.value.problems] == [found]
        assert hub.sent - hub.sent_of[INDEX] <= 3_000_000


def test_a_header_beyond_the_allowance_is_left_to_the_files_that_are_there(tmp_path: Path) -> None:
    start, behind = header(
        {**BODY, **HEAD, **{f"model.layers.{number}.norm.weight": "BF16" for number in range(40_000)}}
    )
    with hub_server(Hub({"model.safetensors": Begun(start, len(start) + behind)})) as hub:
        [line] = look(hub, ExpectedHead(MTP), tmp_path / "m")
    assert "model.safetensors: a header of" in line
    assert hub.sent <= 3_000_000


@pytest.mark.parametrize("nextn", [True, False])
def test_of_a_gguf_file_its_head_is_read(tmp_path: Path, nextn: bool) -> None:
    tensors: dict[str, np.dtype[Any] | gguf.GGMLQuantizationType] = {"token_embd.weight": np.dtype(np.float16)}
    if nextn:
        tensors["blk.3.nextn.eh_proj.weight"] = np.dtype(np.float16)
    whole = write_gguf(tmp_path / "x.gguf", tensors, tokens=40_000).read_bytes()
    with hub_server(Hub({"m.gguf": Begun(whole, len(whole) + 17_000_000_000)})) as hub:
        head = ExpectedHead.of(NEXTN, tmp_path / "m.gguf")
        if nextn:
            assert look(hub, head, tmp_path / "m.gguf") == []
        else:
            with pytest.raises(DrafthouseError, match=r"no tensor blk\.\*\.nextn\.eh_proj\.weight"):
                look(hub, head, tmp_path / "m.gguf")
    assert hub.sent <= 4 * len(whole)


# --- a profile --------------------------------------------------------------------------------------------


def test_the_weights_phase_of_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's answer for a profile that drafts with its target's head, played by the phase's own tasks."""
    catalog = load_catalog(ROOT)
    catalog.models["qwen3-32b"]["builtin_head"] = MTP
    catalog.profiles["rtx6000-qwen-eagle3"]["speculation"] = {"method": "mtp", "num_speculative_tokens": 1}
    folders = {"home": str(tmp_path / "home"), "models_dir": str(tmp_path / "models")}
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    resolved = resolve(catalog, "rtx6000-qwen-eagle3", {**site_of_inventory("workstation"), **folders}, kinds)
    [item] = resolved["weights"]
    # In place of the environment that the phase before lays down on a box.
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "venv").symlink_to(Path(sys.prefix))
    fact = {"name": "Set", "ansible.builtin.set_fact": {"drafthouse_profile": resolved}}
    phase = {"name": "Fetch", "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/weights.yml")}
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [fact, phase]}]))
    monkeypatch.setenv("DRAFTHOUSE_PINS", str(tmp_path / "pins.json"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    repo, commit = item["details"]["repo"], item["details"]["revision"]
    for head, ends in ((FOUR_BITS, "builtin-head-precision"), (HEAD, "")):
        with hub_server(Hub({}, repo=repo, commits={commit: sharded(head)})) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
            ended = play(str(tmp_path / "play.yml"))
        if ends:
            assert ended.status == 2
            assert f"code: {ends}" in ended.output
            assert "do: use org/whole, which has it" in ended.output
            assert files_asked(hub) <= {INDEX, SECOND}
            assert not Path(item["path"]).exists()
    assert ended.status == 0, ended.output
    assert lying(Path(item["path"])) == set(sharded(HEAD))
