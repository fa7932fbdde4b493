"""Every export says the arm's own command, as its tool reads it."""

from __future__ import annotations

import copy
import dataclasses
import http.server
import json
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.export import gpus
from drafthouse.export.order import Order, order_of
from drafthouse.export.targets import TARGETS, exported, replicas_of, site_of
from drafthouse.profiles.workspace import resolved_profile
from tests.support import exports
from tests.support.export_reading import KEY, READERS
from tests.support.ports import free_port
from tests.support.rendered import PROFILES

EACH = [
    (profile, target, arm) for target in TARGETS for profile in exports.profiles_for(target) for arm in exports.ARMS
]
DIGEST = "sha256:" + "ab" * 32


def script_of(order: Order) -> str:
    files = order.profile["arms"][order.labels["drafthouse.arm"]]["files"]
    (script,) = (file["content"] for file in files if file["path"] == "serve.sh")
    return str(script)


def rendered(order: Order) -> list[str]:
    """The command that `drafthouse render` writes into the arm's script, listening where a container must."""
    tail = script_of(order).split("\nexec ", 1)[1].replace(" \\\n", " ")
    argv = [word for word in shlex.split(tail) if word != "$@"]
    argv[argv.index("--host") + 1] = "0.0.0.0"
    return argv


def by_flag(argv: list[str]) -> Counter[tuple[str, ...]]:
    """A command as its flags with their values, in no order."""
    flags: list[list[str]] = []
    for word in argv:
        if word.startswith("--") or not flags:
            flags.append([])
        flags[-1].append(word)
    return Counter(tuple(flag) for flag in flags)


@pytest.mark.parametrize(("profile", "target", "arm"), EACH)
def test_the_file_starts_what_render_shows(profile: str, target: str, arm: str) -> None:
    order = exports.order(profile, target, arm)
    argv = order.argv
    if profile == "h100-llama33-sglang-eagle3" and target != "dstack":
        # Its key is told inside of the process: by the arm's own script, whole.
        assert argv == ["/bin/bash", "-c", script_of(order), "serve.sh", "--host", "0.0.0.0"]
    else:
        wanted = rendered(order)
        if target == "dstack":  # asks for its own token, so the engine has no key
            key_file = order.profile["key_file"]
            if "$start" in wanted:
                at = wanted.index("-c")
                wanted[at : at + 4] = ["-m", "sglang.launch_server"]
            if key_file in wanted:
                at = wanted.index(key_file)
                del wanted[at - 1 : at + 1]
        assert argv == wanted
    found = READERS[target](exports.text(profile, target, arm))
    if target == "production-stack":
        # The chart says prefix caching either way; vLLM has it on where the arm says nothing.
        says = {"--no-enable-prefix-caching", "--enable-prefix-caching"} & set(argv)
        assert by_flag(found.start) == by_flag(argv if says else [*argv, "--enable-prefix-caching"])
    elif target in ("skypilot", "dstack"):
        # shlex takes an escaped line break for a word of its own.
        command = found.start[-1].partition("\nexec ")[2]
        assert [word for word in shlex.split(command) if word != "\n"] == argv
    elif target == "compose" and not order.reads_key_file:
        assert found.start[4:] == argv
    else:
        assert found.start == argv


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_exported_or_refused_with_a_reason(profile: str, target: str) -> None:
    one = TARGETS[target]
    data = exports.resolved(profile)
    try:
        text = exported(one, order_of(data, "speculative", keyed=one.keyed))
    except DrafthouseError as error:
        assert {problem.code for problem in error.problems} <= {"export-unsupported", "export-unguarded", "export-gpu"}
    else:
        assert "drafthouse" in text


def test_a_key_is_a_reference_everywhere() -> None:
    for profile, target, arm in EACH:
        text = exports.text(profile, target, arm)
        assert "drafthouse-api-key" in text or target in ("skypilot", "dstack")
        assert "VLLM_API_KEY=sk" not in text
    sky = yaml.safe_load(exports.text(exports.QWEN, "skypilot"))
    assert sky["secrets"] == {"DRAFTHOUSE_API_KEY": None}
    assert not any("KEY" in name for name in sky["envs"])
    dstack = yaml.safe_load(exports.text(exports.QWEN, "dstack"))
    assert dstack["auth"] is True
    assert "env" not in dstack


def kubernetes_objects(text: str) -> dict[str, Any]:
    """The objects of a file by their kind."""
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_kubernetes_has_all_its_objects() -> None:
    data = kubernetes_objects(exports.text(exports.QWEN, "kubernetes"))
    assert set(data) == {"PersistentVolumeClaim", "Deployment", "Service", "PodDisruptionBudget", "ServiceMonitor"}
    pod = data["Deployment"]["spec"]["template"]["spec"]
    (engine,), (weights,) = pod["containers"], pod["initContainers"]
    assert "POST /v1/completions" in engine["readinessProbe"]["exec"]["command"][-1]
    assert engine["readinessProbe"]["exec"] == engine["startupProbe"]["exec"]
    assert "9216db5781bf21249d130ec9da846c4624c16137" in weights["args"][0]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition"}
    assert data["Service"]["spec"]["type"] == "ClusterIP"
    # More pods than one read the same volume.
    several = exported(TARGETS["kubernetes"], exports.order(exports.QWEN, "kubernetes", replicas=(2, 2)))
    more = kubernetes_objects(several)
    assert more["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    # An engine whose figures ask for the key is scraped with it.
    llama = kubernetes_objects(exports.text(exports.OTHERS[1], "kubernetes"))
    asks = exports.resolved(exports.OTHERS[1])["engine"]["metrics"]["key"]
    assert ("authorization" in llama["ServiceMonitor"]["spec"]["endpoints"][0]) is asks


@pytest.mark.parametrize("target", TARGETS)
def test_the_image_is_by_digest_where_one_is_known(target: str) -> None:
    assert "Image: by tag" in exports.text(exports.QWEN, target)
    data: Any = {**exports.resolved(exports.QWEN, TARGETS[target].models_dir), "image_digest": DIGEST}
    keyed = TARGETS[target].keyed
    text = exported(TARGETS[target], order_of(data, "speculative", keyed=keyed))
    assert "Image: by the digest in pins.json" in text
    assert f"v0.32.0@{DIGEST}" in text
    mine = f"mine.example:5000/v@{DIGEST}"
    named = exported(TARGETS[target], order_of(data, "speculative", keyed=keyed, image=mine))
    assert "Image: named with --image" in named
    if target == "production-stack":
        (model,) = yaml.safe_load(named)["servingEngineSpec"]["modelSpec"]
        assert f"{model['repository']}:{model['tag']}" == mine


def test_a_split_over_gpus_has_the_charts_own_key_for_it() -> None:
    """With it the chart mounts shared memory, which tensor parallelism needs."""
    values = yaml.safe_load(exports.text("a100x4-llama3-draft8b", "production-stack"))
    (model,) = values["servingEngineSpec"]["modelSpec"]
    assert model["vllmConfig"]["tensorParallelSize"] == model["requestGPU"] == 4
    assert "--tensor-parallel-size" not in model["vllmConfig"]["extraArgs"]


def test_replicas_scale_where_the_tool_scales_them() -> None:
    sky = yaml.safe_load(exports.text(exports.QWEN, "skypilot"))["service"]["replica_policy"]
    assert sky == {"min_replicas": 1, "max_replicas": 4, "target_qps_per_replica": 1.0}
    fixed = yaml.safe_load(exported(TARGETS["dstack"], exports.order(exports.QWEN, "dstack", replicas=(2, 2))))
    assert fixed["replicas"] == 2
    assert "scaling" not in fixed


@pytest.mark.parametrize("text", ["0", "4..1", "1..", "..", "x", "-1", "1..2..3", "1.5"])
def test_replicas_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(DrafthouseError, match="invalid-option"):
        replicas_of(text, TARGETS["dstack"])


def test_a_gpu_without_a_name_is_refused() -> None:
    hardware: Any = exports.resolved(exports.QWEN)["hardware"]
    for tool in ("skypilot", "dstack", "product"):
        assert gpus.gpu_name(hardware, tool) in gpus.gpu_names_of(tool)
        with pytest.raises(DrafthouseError, match="export-gpu"):
            gpus.gpu_name(cast("Any", {**hardware, "gpu_names": ["H1000"]}), tool)
    with pytest.raises(DrafthouseError, match="export-gpu"):
        exported(TARGETS["skypilot"], exports.order("dgx-spark-nemotron35-dspark", "skypilot"))


def test_a_site_of_every_target_is_one_that_profiles_take() -> None:
    for target in TARGETS.values():
        found = resolved_profile(exports.QWEN, dict(site_of(target)))
        assert found["arms"]["speculative"]["container"]


# --- what runs in the container, run here


class _Engine(http.server.BaseHTTPRequestHandler):
    """Completes for those who have the key."""

    asked: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200 if self.headers["Authorization"] == f"Bearer {KEY}" and self.path == "/v1/completions" else 401
        self.asked.append(json.loads(said))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[int]:
    port = free_port()
    with http.server.HTTPServer(("127.0.0.1", port), _Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield port
        server.shutdown()


@pytest.mark.processes
@pytest.mark.parametrize("target", ["kubernetes", "compose", "quadlet"])
def test_the_probe_is_a_completion_with_the_key(target: str, engine: int, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")

    def probed(port: int, key: str) -> int:
        data = copy.deepcopy(exports.resolved(exports.QWEN))
        data["site"]["port"], data["key_file"] = port, str(tmp_path / "key")
        probe = READERS[target](exported(TARGETS[target], order_of(data, "speculative"))).probe
        assert probe
        return subprocess.run(probe, env={"VLLM_API_KEY": key}, stderr=subprocess.DEVNULL, check=False).returncode

    assert probed(engine, KEY) == 0
    assert _Engine.asked[-1] == {"model": "Qwen3-32B", "prompt": "1, 2, 3,", "max_tokens": 1, "temperature": 0}
    assert probed(free_port(), KEY) == 1
    if target == "compose":
        (tmp_path / "key").write_text("another\n")
    assert probed(engine, "another") == 1


@pytest.mark.processes
def test_scripts_are_bash(tmp_path: Path) -> None:
    for profile in exports.profiles_for("skypilot"):
        data = yaml.safe_load(exports.text(profile, "skypilot"))
        for part in ("setup", "run"):
            subprocess.run(["bash", "-n", "-c", data[part]], check=True)


@pytest.mark.processes
@pytest.mark.parametrize("profile", [exports.QWEN, exports.OTHERS[1]])
def test_compose_gives_the_engine_its_key_and_its_words(profile: str, tmp_path: Path) -> None:
    """The entrypoint runs as Compose would start it, with a program that tells what it was given."""
    order = exports.order(profile, "compose")
    (tmp_path / "key").write_text("the-key\n")
    tell = tmp_path / order.argv[0]
    tell.write_text('#!/bin/bash\nprintf \'%s\\n\' "$VLLM_API_KEY" "$@"\n')
    tell.chmod(0o755)
    words = READERS["compose"](exports.text(profile, "compose")).start
    words = [word.replace(f"(< {order.profile['key_file']})", f"(< {tmp_path}/key)") for word in words]
    own = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=own)
    key, *argv = done.stdout.splitlines()
    assert key == ("the-key" if profile == exports.QWEN else "")
    assert argv == order.argv[1:]


@pytest.mark.processes
def test_one_file_is_fetched_once_and_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "weights.gguf", tmp_path / "models" / "a b" / "weights.gguf"
    source.write_bytes(b"GGUF" * 1000)
    order = exports.order(exports.OTHERS[1], "compose")
    order = dataclasses.replace(order, downloads=[["fetch", str(target), source.as_uri()]])
    script = READERS["compose"](exported(TARGETS["compose"], order)).downloads[-1].rstrip()
    assert subprocess.run(["bash", "-c", f"{script}-missing"], check=False, capture_output=True).returncode
    assert not target.exists()
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert target.read_bytes() == b"GGUF" * 1000
    source.unlink()  # what is there is not asked for again
    subprocess.run(["bash", "-c", script], check=True, capture_output=True)
    assert [path.name for path in target.parent.iterdir()] == ["weights.gguf"]
