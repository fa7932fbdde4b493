"""What is easily written once more where it is needed stands in one place: locks, writing a file, reading one."""

from __future__ import annotations

import ast
import functools

import pytest

from drafthouse.profiles.workspace import ROOT

FOLDERS = ("src/drafthouse", "scripts", "collections/ansible_collections/drafthouse/core/plugins", "roles")
#: Who puts one thing in another's place without `core.files.replace_file`, and why.
RENAMES = {
    "src/drafthouse/core/files.py": "it is replace_file",
    "src/drafthouse/weights/sources.py": "a file that was downloaded, and hashed, before",
    "src/drafthouse/weights/snapshot.py": "files that were downloaded, and hashed, before",
    "src/drafthouse/weights/layout.py": "a symbolic link",
    "src/drafthouse/weights/nearby_copies.py": "another name for a file that is there",
    "src/drafthouse/addons/watchdog/journal.py": "a journal that is appended to goes aside",
    "src/drafthouse/weights/install.py": "a symbolic link",
    "src/drafthouse/weights/demo/gguf_files.py": "gigabytes, written piece by piece",
    "src/drafthouse/weights/demo/recipes.py": "a folder that a program wrote",
    "src/drafthouse/serving/releases.py": "a folder of files that replace_file wrote",
    "src/drafthouse/host/docker/daemon.py": "a copy for dockerd to check, which goes again",
    "src/drafthouse/cloud/deadline_watch.py": "a program that is on a box before anything else of ours",
    "src/drafthouse/cloud/vast/local_state.py": "a key: of several that are made at once the first stays",
}
#: Who reads JSON or YAML without `core.documents` and `core.yaml_documents`, which refuse a key that stands twice, text
#: that is not UTF-8, NaN and endless nesting, and why: none of it is a file that a person writes or gives by its path.
READERS = {
    "an answer of a server or a program, read as it comes": (
        "addons/monitoring_ready.py", "bench/external/clients.py", "bench/outcome.py", "bench/output_scoring.py",
        "bench/spec_metrics.py", "bench/sse.py", "cloud/vast/http.py", "cloud/vast/instances.py", "core/docker_api.py",
        "engines/llamacpp.py",
        "host/image_python.py", "operate/doctor/paths.py", "operate/doctor/probe.py", "operate/tunnel.py",
        "serving/first_request.py", "serving/together.py", "weights/nearby_copies.py",
        "scripts/engine_flags.py",
    ),
    "a result of another client, where NaN is a figure that is not known": ("bench/external/read.py",),
    "what a model answered, where a repeated key is the model's affair": ("prompts/json_schema.py",),
    "a file of our own, written whole by this version for itself": (
        "cloud/power_off.py", "core/files.py", "core/progress.py",
        "experiment/loop.py", "operate/doctor/collect.py", "serving/readiness.py", "tuning/runner.py",
        "plugin_utils/following.py", "plugin_utils/kept_results.py", "action/trial.py", "action/monitoring.py",
        "cloud/deadline_watch.py", "prompts/suite_file.py",
    ),
    "a model's own file, read as the engines read it": (
        "weights/headers.py", "weights/inspect.py", "weights/tokenizer_files.py",
    ),
    "a word of a command, read as the engine reads it": (
        "engines/pasted.py", "engines/vllm.py", "profiles/started.py",
    ),
    "daemon.json as Docker reads it, for one of its keys": (
        "host/firewall/means.py", "host/box_facts.py",
    ),
    "what our own templates rendered": ("analysis/arm_diff.py",),
    "it is the reader": ("core/documents.py", "core/yaml_documents.py"),
    "files of this repository, or what another script of it said": (
        "cli/doctor.py", "cli/rented.py",
        "scripts/docs.py", "scripts/sbom.py",
    ),
}  # fmt: skip
LOADERS = {"json.load", "json.loads", "yaml.load", "yaml.safe_load", "yaml.load_all", "yaml.safe_load_all"}
LOADS = {loader.rpartition(".")[2] for loader in LOADERS}
TEMPORARY = {"mkstemp", "NamedTemporaryFile", "hardlink_to", "link", "rename", "renames"}


@functools.cache
def sources() -> dict[str, ast.Module]:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    ours = [path for path in files if "module_utils" not in path.parts]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in ours}


@functools.cache
def called(tree: ast.Module) -> tuple[tuple[str, ast.Call], ...]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return tuple((getattr(call.func, "attr", getattr(call.func, "id", "")), call) for call in calls)


def replaces(tree: ast.Module) -> bool:
    """Tell whether something is put in another's place; `str.replace` has two arguments, a date's has names."""
    return any(
        name in TEMPORARY
        or (name == "replace" and isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords)
        or (name == "replace" and ast.unparse(call.func) == "os.replace")
        for name, call in called(tree)
    )


def test_locks_are_taken_in_one_place() -> None:
    found = {path for path, tree in sources().items() if "flock" in {name for name, _ in called(tree)}}
    # The watch over a deadline is on a rented box before anything else of ours.
    assert found == {"src/drafthouse/core/locks.py", "src/drafthouse/cloud/deadline_watch.py"}


def test_files_are_replaced_in_one_place() -> None:
    assert {path for path, tree in sources().items() if replaces(tree)} == set(RENAMES)


def test_files_of_people_are_read_in_one_place() -> None:
    found = {
        path.removeprefix("src/drafthouse/").removeprefix("collections/ansible_collections/drafthouse/core/plugins/")
        for path, tree in sources().items()
        if any(name in LOADS and ast.unparse(call.func) in LOADERS for name, call in called(tree))
    }
    assert found == {path for paths in READERS.values() for path in paths}


@pytest.mark.parametrize("text", ["new.replace(old)", "os.replace(a, b)", "Path(a).rename(b)", "tempfile.mkstemp()"])
def test_a_second_writer_would_be_found(text: str) -> None:
    assert replaces(ast.parse(text))


@pytest.mark.parametrize("text", ["text.replace('a', 'b')", "replace(one, x=1)", "date.replace(tzinfo=None)"])
def test_what_replaces_no_file_is_none(text: str) -> None:
    assert not replaces(ast.parse(text))
