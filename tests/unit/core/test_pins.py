"""What a clone pins at first use, and what it says where the pinned thing has moved."""

import json
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action import image as image_action
from ansible_collections.drafthouse.core.plugins.action import preflight

from drafthouse.core.docker_api import EngineError
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.pins import Pins, commit_words, hub_key, image_of, pins_file, read_pins, remember
from drafthouse.experiment.plan_text import plan_text
from drafthouse.host.docker import image_digest
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.pickles import pickled_files
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, resolved_profile, site_of_inventory
from drafthouse.report.data.setup import setup
from drafthouse.weights.sources import check_at_path
from tests.support.refusals import refuses

A, B = "a" * 40, "b" * 40
OLD, NEW = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
MEDUSA = hub_key("nebius/MEDUSA-Llama-3.1-8B-Instruct", "unresolved")


def test_the_first_use_is_written_down_and_holds(tmp_path: Path) -> None:
    file = tmp_path / "new" / "pins.json"
    assert read_pins(file) == Pins()
    assert remember(file, Pins(hub={"org/m@main": A}, images={"i:1": OLD}, ids={"i:1": "sha256:x"}))
    assert not remember(file, Pins(hub={"org/m@main": A}))
    with pytest.raises(DrafthouseError) as error:
        remember(file, Pins(hub={"org/m@main": B}, images={"i:1": NEW}))
    assert [problem.found for problem in error.value.problems] == [f"org/m@main is {B} here", f"i:1 is {NEW} here"]
    assert all("-e repin=true" in problem.do for problem in error.value.problems)
    assert read_pins(file).hub == {"org/m@main": A}
    assert remember(file, Pins(hub={"org/m@main": B}), again=True)
    found = read_pins(file)
    assert (found.hub, found.images) == ({"org/m@main": B}, {"i:1": OLD})
    assert set(found.on) == {"org/m@main", "i:1"}
    assert sorted(path.name for path in file.parent.iterdir()) == [".pins.json.lock", "pins.json"]


def test_boxes_that_pin_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    runs = [threading.Thread(target=remember, args=(file, Pins(hub={f"org/{number}@main": A}))) for number in range(20)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(read_pins(file).hub) == 20


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "null", "{", '{"hub": {}}', '{"schema": "drafthouse.pins/1", "hub": {"a@main": "main"}}',
        '{"schema": "drafthouse.pins/1", "images": {"i:1": "latest"}}', '{"schema": "drafthouse.pins/1", "hub": 7}',
        "\ufffe",
    ],
)  # fmt: skip
def test_a_damaged_record_is_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pins.json"
    file.write_bytes(text.encode("utf-16" if text == "\ufffe" else "utf-8"))
    for use in (lambda: read_pins(file), lambda: remember(file, Pins(hub={"org/m@main": A}))):
        with pytest.raises(DrafthouseError, match="restore it, or move it away"):
            use()


def resolved(name: str, **overrides: Any) -> Any:
    return resolved_profile(name, site_of_inventory("workstation"), overrides or None)


def test_plan_and_report_say_what_is_not_pinned_yet_and_then_what_it_was_pinned_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTHOUSE_PINS", str(tmp_path / "pins.json"))
    assert pins_file() == tmp_path / "pins.json"
    before = resolved("rtx6000-llama31-medusa")
    assert "unpinned: nebius/MEDUSA-Llama-3.1-8B-Instruct at unresolved; the first run pins" in plan_text(before)
    assert "v0.32.0, a tag; the first pull pins its digest" in plan_text(before)
    rows = {row["what"]: row["which"] for row in setup(before)}
    assert "unresolved: no commit yet" in rows["Weights"]
    remember(tmp_path / "pins.json", Pins(hub={MEDUSA: A}, images={"vllm/vllm-openai:v0.32.0": OLD}))
    after = resolved("rtx6000-llama31-medusa")
    assert f"pinned: nebius/MEDUSA-Llama-3.1-8B-Instruct at unresolved is {A} since 2" in plan_text(after)
    assert f"v0.32.0, pinned: {OLD}" in plan_text(after)
    rows = {row["what"]: row["which"] for row in setup(after)}
    assert f"{A} (unresolved in the catalogue, pinned at first use)" in rows["Weights"]
    assert rows["Image"] == f"vllm/vllm-openai:v0.32.0, {OLD}"
    pinned = [item for item in after["weights"] if item["details"]["revision"] != "unresolved"]
    assert [commit_words(item) for item in pinned] == [item["details"]["revision"] for item in pinned]
    # Results of earlier versions know neither.
    old: Any = {key: value for key, value in after.items() if key not in ("image_digest", "remote_code", "hashes")}
    old["weights"] = [{k: v for k, v in i.items() if k != "pinned"} for i in old["weights"]]
    assert setup(old)
    nothing: Any = {}
    assert setup(nothing) == setup(nothing | {"weights": []})


def test_remote_code_is_said_with_repository_and_commit() -> None:
    profile = resolved("rtx6000-gptoss-trtllm-eagle3")
    commit = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"
    assert f"the engine runs the Python code of openai/gpt-oss-120b at {commit}" in plan_text(profile)
    rows = {row["what"]: row["which"] for row in setup(profile)}
    assert f"openai/gpt-oss-120b at {commit}" in rows["Runs code of"]
    assert "nvidia/gpt-oss-120b-Eagle3-v3 at 975baaffe27c" in rows["Runs code of"]
    assert "Runs code of" not in {row["what"] for row in setup(resolved("rtx6000-qwen-eagle3"))}


def test_remote_code_that_may_change_is_refused() -> None:
    with pytest.raises(DrafthouseError) as error:
        resolved("rtx6000-llama31-medusa", serve={"trust_remote_code": True})
    (problem,) = error.value.problems
    assert "nebius/MEDUSA-Llama-3.1-8B-Instruct (speculation.draft) at unresolved" in problem.found
    assert problem.needed.startswith("a commit")
    with refuses("remote-code-not-pinned"):
        resolved("rtx6000-gptoss-trtllm-eagle3", speculation={"draft": "gpt-oss-120b-eagle3-v2"})


class Engine:
    """A container engine that answers as Docker's does: {path: answer}."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        kind = path.split("/")[1]
        if kind not in self.answers:
            raise EngineError(404, "No such image")
        return self.answers[kind]


def image(*digests: str, own: str = "sha256:x") -> Any:
    return {"Id": own, "RepoDigests": [f"r/i@{digest}" for digest in digests]}


def registry(digest: str) -> Any:
    return {"Descriptor": {"digest": digest}}


def test_an_image_that_is_not_on_the_box_is_refused_offline() -> None:
    image_digest.require_on_box("r:5000/i:1", Engine(images=image()))  # type: ignore[arg-type]
    with refuses("image-not-offline"):
        image_digest.require_on_box("r:5000/i:1", Engine(distribution=registry(OLD)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("engine", "wanted", "own", "expected"),
    [
        (Engine(), "", "", {"present": False, "pull": "r:5000/i:1", "digest": ""}),
        (Engine(distribution=registry(OLD)), OLD, "", {"present": False, "pull": f"r:5000/i@{OLD}", "digest": OLD}),
        # A registry that wants a login does not say: the digest alone is asked for then.
        (Engine(), OLD, "", {"present": False, "pull": f"r:5000/i@{OLD}", "digest": OLD}),
        (Engine(images=image(OLD)), "", "", {"present": True, "pull": "", "digest": OLD}),
        (Engine(images=image(NEW, OLD)), OLD, "", {"present": True, "digest": OLD}),
        # Loaded from a file: no registry knows it, its own id is compared where one is known.
        (Engine(images=image()), "", "", {"present": True, "digest": ""}),
        (Engine(images=image()), OLD, "sha256:x", {"present": True, "digest": OLD}),
        (Engine(distribution=registry(NEW)), OLD, "", f"r:5000/i:1 is {NEW} in its registry"),
        (Engine(images=image(NEW)), OLD, "", f"r:5000/i:1 is {NEW} on the box"),
        (Engine(images=image()), OLD, "sha256:y", "r:5000/i:1 is sha256:x on the box"),
    ],
)
def test_an_image_is_compared_with_its_pin(engine: Any, wanted: str, own: str, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(DrafthouseError) as error:
            image_digest.check("r:5000/i:1", wanted, own, engine)
        (problem,) = error.value.problems
        assert problem.found == expected
        assert wanted in problem.needed
        return
    found = image_digest.check("r:5000/i:1", wanted, own, engine)
    assert expected.items() <= found.items()


def test_a_digest_of_the_catalogue_needs_no_pin() -> None:
    name = f"r/i:1@{OLD}"
    assert image_digest.check(name, "", "", Engine(distribution=registry(NEW)))["pull"] == name  # type: ignore[arg-type]


def test_every_pull_of_ours_goes_through_the_pins() -> None:
    """A task that pulls by itself would follow a tag that moved."""
    pulling = []
    for path in [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]:
        text = path.read_text("utf-8")
        if "docker_image_pull" in text or "pull: missing" in text:
            pulling.append(path.relative_to(ROOT).as_posix())
    assert pulling == []


def test_the_record_is_json_that_a_person_can_read(tmp_path: Path) -> None:
    remember(tmp_path / "p", Pins(hub={"org/m@main": A}))
    data = json.loads((tmp_path / "p").read_text("utf-8"))
    assert data["schema"] == "drafthouse.pins/1"
    assert data["hub"] == {"org/m@main": A}


def test_pickles_that_the_catalogue_names_are_refused_before_anything_is_fetched() -> None:
    catalog = load_catalog(ROOT)
    model = catalog.models["llama31-8b-medusa"]
    hub = {**model["source"]["hub"], "allow": ["config.json", "medusa_lm_head.pt"]}
    site, suites = (
        site_of_inventory("workstation"),
        {name: list(data["kinds"]) for name, data in load_suites([]).items()},
    )

    def resolving(**more: Any) -> Any:
        changed: Any = {**model, "source": {"hub": hub}, **more}
        catalog.models["llama31-8b-medusa"] = changed
        return resolve(catalog, "rtx6000-llama31-medusa", site, suites)

    with pytest.raises(DrafthouseError) as error:
        resolving()
    assert "medusa_lm_head.pt of 'llama31-8b-medusa'" in error.value.problems[0].found
    named = resolving(allow_pickle={"files": ["*.pt"], "reason": "the only form it comes in"})
    assert named["weights"][-1]["allow_pickle"] == ["*.pt"]
    assert any("run code when loaded: the only form it comes in" in note for note in named["warnings"])


def test_pickles_in_a_folder_of_the_users_own_are_refused_too(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    item: Any = {"id": "mine", "name": "Mine", "source": "path", "path": str(tmp_path), "details": {}, "bytes": 1}
    with pytest.raises(DrafthouseError, match=r"pickled weights: pytorch_model\.bin"):
        check_at_path(item)
    item["allow_pickle"] = ["*.bin"]
    assert check_at_path(item)["changed"] is False


def test_preflight_says_whose_code_will_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(preflight._display, "display", said.append)
    preflight.tell_remote_code(resolved("rtx6000-gptoss-trtllm-eagle3")["remote_code"], "box1")
    commit = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"
    assert f"  box1: trust_remote_code: the engine will run the code of openai/gpt-oss-120b at {commit}" in said
    assert len(said) == 2
    preflight.tell_remote_code([], "box1")
    assert len(said) == 2


def test_what_a_trainer_leaves_beside_the_weights_is_no_pickle_that_is_loaded() -> None:
    names = ["model.safetensors", "rng_state_0.pth", "a/rng_state.pth", "openvino_model.bin", "pytorch_model.bin"]
    assert pickled_files(names) == ["pytorch_model.bin"]


def test_a_text_that_yaml_ends_with_a_newline_is_one_line(tmp_path: Path) -> None:
    for folder in ("profiles", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    file = tmp_path / "profiles" / "cpu-smollm2-ngram.yml"
    text = re.sub(r"(?m)^title: .*$", "title: >\n  Two lines\n  that YAML folds", file.read_text())
    file.write_text(text)
    assert load_catalog(tmp_path).profiles["cpu-smollm2-ngram"]["title"] == "Two lines that YAML folds"


def test_a_nightly_images_tag_may_move(tmp_path: Path) -> None:
    site = {**site_of_inventory("workstation"), "runtime": "docker"}
    nightly = resolved_profile("rtx6000-qwen-eagle3", site, {"channel": "nightly"})
    image = str(image_of(nightly))
    action = object.__new__(image_action.ActionModule)
    action._task = SimpleNamespace(args={"name": image}, check_mode=False)
    asked: list[dict[str, Any]] = []

    def module(name: str, arguments: dict[str, Any], variables: object) -> dict[str, Any]:
        asked.append(arguments)
        return {"present": False, "pull": image, "digest": "sha256:" + "b" * 64, "id": "x"}

    file = tmp_path / "pins.json"
    remember(file, Pins(images={image: "sha256:" + "a" * 64}, ids={}))
    before = file.read_text()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        patch.setattr(image_action, "pins_file", lambda: file)
        patch.setattr(action, "run_module", module, raising=False)
        found = action.run(task_vars={"drafthouse_profile": nightly})
    assert not found.get("failed")
    assert [one["digest"] for one in asked if "digest" in one] == ["", ""]
    assert file.read_text() == before
    assert found["ansible_facts"]["drafthouse_profile"]["image_digest"] == "sha256:" + "b" * 64
