"""Our llama-server: the flags of llama.cpp's own parser, its manners, and that it really speculates."""

import json
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.engines import PROGRAMS, ask, engine_home, llama_server, packaged_weights
from tests.support.ports import free_port

COPY = (
    "Copy this text exactly: The river ran under the old bridge, past the mill and the meadow. "
    "The river ran under the old bridge, past the mill and the meadow."
)


@pytest.fixture(scope="module")
def home() -> Path:
    return engine_home("llamacpp")


@pytest.fixture(scope="module")
def model() -> str:
    return str(packaged_weights("smollm2-135m-q4"))


def refuse(home: Path, *flags: str) -> str:
    words = [str(home / "bin" / "python"), str(PROGRAMS / "llama-server"), *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    return done.stderr


# Flag, value, where it must arrive. What a serve script of ours may write, every spelling of it.
ARRIVES: list[tuple[list[str], str, object]] = [
    (["-m", "a.gguf"], "model.path", "a.gguf"),
    (["--model", "a.gguf"], "model.path", "a.gguf"),
    (["-m", "a.gguf", "-m", "b.gguf"], "model.path", "b.gguf"),
    (["-md", "d.gguf"], "speculative.draft.mparams.path", "d.gguf"),
    (["--model-draft", "d.gguf"], "speculative.draft.mparams.path", "d.gguf"),
    (["--spec-draft-model", "d.gguf"], "speculative.draft.mparams.path", "d.gguf"),
    (["-a", "name"], "model_alias", ["name"]),
    (["--alias", "name"], "model_alias", ["name"]),
    (["--host", "0.0.0.0"], "hostnames", ["0.0.0.0"]),
    (["--port", "9"], "port", 9),
    ([], "port", 8080),
    (["-c", "512"], "n_ctx", 512),
    (["--ctx-size", "512"], "n_ctx", 512),
    (["-np", "3"], "n_parallel", 3),
    (["--parallel", "3"], "n_parallel", 3),
    (["-t", "2"], "cpuparams.n_threads", 2),
    (["--threads", "2"], "cpuparams.n_threads", 2),
    (["-tb", "2"], "cpuparams_batch.n_threads", 2),
    (["-ngl", "7"], "n_gpu_layers", 7),
    (["--gpu-layers", "7"], "n_gpu_layers", 7),
    (["--n-gpu-layers", "7"], "n_gpu_layers", 7),
    (["-ngld", "7"], "speculative.draft.n_gpu_layers", 7),
    (["--spec-draft-ngl", "7"], "speculative.draft.n_gpu_layers", 7),
    (["--metrics"], "endpoint_metrics", True),
    (["--api-key", "k"], "api_keys", ["k"]),
    (["--jinja"], "use_jinja", True),
    (["--no-jinja"], "use_jinja", False),
    (["-ctk", "q8_0"], "cache_type_k", "GGML_TYPE_Q8_0"),
    (["--cache-type-v", "q8_0"], "cache_type_v", "GGML_TYPE_Q8_0"),
    (["--no-warmup"], "warmup", False),
    (["-s", "5"], "sampling.seed", 5),
    (["--seed", "5"], "sampling.seed", 5),
    (["--cache-ram", "0"], "cache_ram_mib", 0),
    (["--reasoning-format", "deepseek"], "reasoning_format", "COMMON_REASONING_FORMAT_DEEPSEEK"),
    (["--spec-draft-n-max", "5"], "speculative.draft.n_max", 5),
    (["--spec-draft-n-min", "1"], "speculative.draft.n_min", 1),
    (["--spec-draft-p-min", "0.5"], "speculative.draft.p_min", 0.5),
    (["--spec-ngram-map-k-size-n", "3"], "speculative.ngram_map_k.size_n", 3),
    (["--spec-ngram-map-k-size-m", "16"], "speculative.ngram_map_k.size_m", 16),
    (["--spec-ngram-map-k-min-hits", "2"], "speculative.ngram_map_k.min_hits", 2),
    (["--spec-ngram-simple-size-n", "3"], "speculative.ngram_simple.size_n", 3),
    (["--spec-ngram-map-k4v-size-m", "16"], "speculative.ngram_map_k4v.size_m", 16),
    (["--spec-ngram-mod-n-match", "24"], "speculative.ngram_mod.n_match", 24),
    (["--spec-synth-rates", "0.5,0.25"], "speculative.synth_rates", [0.5, 0.25]),
    (["-lv", "4"], "verbosity", 4),
    (["--verbosity", "4"], "verbosity", 4),
    (["--timeout", "30"], "timeout_read", 30),
]

PARSE = """
import importlib.machinery, importlib.util, json, sys
loader = importlib.machinery.SourceFileLoader("launcher", sys.argv[1])
launcher = importlib.util.module_from_spec(importlib.util.spec_from_loader("launcher", loader))
loader.exec_module(launcher)
launcher.find_openmp()
import xllamacpp
seen = []
for flags, path in json.load(sys.stdin):
    value = launcher.parse(xllamacpp, flags)
    for name in path.split("."):
        value = getattr(value, name)
    seen.append(sorted(value) if isinstance(value, set) else getattr(value, "name", value))
json.dump(seen, sys.stderr)
"""


def test_flags_arrive_where_they_belong(home: Path) -> None:
    words = [str(home / "bin" / "python"), "-c", PARSE, str(PROGRAMS / "llama-server")]
    asked = json.dumps([(flags, path) for flags, path, _ in ARRIVES])
    done = subprocess.run(words, input=asked, capture_output=True, text=True, timeout=180, check=True)
    seen = json.loads(done.stderr.splitlines()[-1])
    wrong = [(flags, got) for (flags, _, wanted), got in zip(ARRIVES, seen, strict=True) if got != wanted]
    assert wrong == []


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--draft-max", "3"], "use --spec-draft-n-max or --spec-ngram-mod-n-max"),
        (["--draft", "3"], "the argument has been removed"),
        (["--draft-n", "3"], "the argument has been removed"),
        (["--draft-min", "3"], "use --spec-draft-n-min or --spec-ngram-mod-n-min"),
        (["--spec-ngram-size-n", "3"], "use the respective --spec-ngram-*-size-n"),
        (["--speculative-model", "x"], "error: invalid argument: --speculative-model"),
        (["--ctx", "512"], "error: invalid argument: --ctx"),  # no abbreviations
        (["--ctx-size=512"], "takes a value as a word of its own: --ctx-size VALUE"),
        (["--ctx-size"], "expected value for argument"),
        (["--ctx-size", "many"], 'error while handling argument "--ctx-size"'),
        (["--spec-type", "draft"], "unknown speculative type: draft"),
        (["-ctk", "q9"], "Unsupported cache type: q9"),
        (["--api-key-file", "/absent/key"], "failed to open file '/absent/key'"),
        ([], "--model is required"),
        (["--model", "/absent.gguf"], "--model /absent.gguf: No such file or directory"),
        (["--model", __file__], "not a GGUF file"),
        (["--model", "/"], "Is a directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "nothing",
)
def test_what_cannot_be_served_is_refused_in_words(home: Path, flags: list[str], words: str) -> None:
    assert words in refuse(home, *flags)


def test_a_wrong_draft_is_named_by_its_own_flag(home: Path, model: str) -> None:
    assert "--model-draft /absent.gguf: No such file" in refuse(home, "-m", model, "-md", "/absent.gguf")


def test_a_key_after_an_equals_sign_is_not_shown(home: Path) -> None:
    assert "hunter2" not in refuse(home, "--api-key=hunter2").replace("invalid argument: --api-key=hunter2", "")


def test_a_damaged_model_says_so_in_a_line_of_its_own(home: Path, model: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(model).read_bytes()[:100_000])
    lines = refuse(home, "-m", str(cut), "--port", str(free_port())).splitlines()
    # llama.cpp's own log comes from a thread, and on a busy machine after it.
    assert any(line.startswith(f"llama-server: {cut}: ") for line in lines)


def test_a_port_in_use_is_named(home: Path, model: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refuse(home, "-m", model, "--port", str(port))
    assert f"llama-server: --port {port}: already in use on 127.0.0.1\n" in said


def test_it_serves_with_a_key_that_no_process_list_shows(home: Path, model: str, tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("s3cret\n")
    flags = [
        "-m",
        model,
        "-a",
        "smol",
        "-np",
        "1",
        "-c",
        "1024",
        "--metrics",
        "--api-key-file",
        str(key_file),
    ]
    with llama_server(home, *flags) as server:
        # While it loads it is not there or says 503; the first 200 is followed by answers.
        assert set(server.statuses[:-1]) <= {0, 503}
        assert 503 in server.statuses
        assert server.greedy("Say hello.", 8, key="s3cret")["usage"]["completion_tokens"] > 0
        assert ask(f"{server.base}/metrics")[0] == 401
        assert ask(f"{server.base}/v1/models", key="s3cret")[1].count('"smol"') > 0
        assert b"s3cret" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        # A baseline does not draft.
        assert server.counter("llamacpp:spec_decode_num_drafts_total", "s3cret") == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3", "--spec-ngram-map-k-size-m", "16"],
        ["--spec-type", "draft-simple", "--spec-draft-model", "MODEL", "--spec-draft-n-max", "4"],
        ["--spec-type", "draft-simple,ngram-mod", "-md", "MODEL", "--spec-draft-n-max", "4"],
        ["--spec-type", "draft-simple", "-md", "MODEL", "--spec-synth-rates", "0.9,0.5,0.1"],
    ],
    ids=["ngram-map-k", "draft-simple", "both", "synthetic"],
)
def test_it_drafts(home: Path, model: str, flags: list[str]) -> None:
    flags = [model if flag == "MODEL" else flag for flag in flags]
    with llama_server(home, "-m", model, "-np", "1", "-c", "1024", "--metrics", *flags) as server:
        timings = server.greedy(COPY, 48)["timings"]
        assert timings["draft_n"] > 0
        assert timings["draft_n_accepted"] > 0
        assert server.counter("llamacpp:spec_decode_num_draft_tokens_total") == timings["draft_n"]
        assert server.counter("llamacpp:spec_decode_num_accepted_tokens_total") == timings["draft_n_accepted"]


STORY, PART = 1900, 20  # tokens


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_at_once_even_with_a_stream_open(home: Path, model: str, number: signal.Signals) -> None:
    with llama_server(home, "-m", model, "-np", "1", "-c", "2048") as server:
        body = {
            "stream": True,
            "max_tokens": STORY,
            "messages": [{"role": "user", "content": "Tell a long story."}],
        }
        request = urllib.request.Request(
            f"{server.base}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as stream:
            asked = time.monotonic()
            for _ in range(2 * PART):  # an event is a line, and an empty one
                stream.readline()
            began = time.monotonic()
            server.process.send_signal(number)
            assert server.process.wait(120) == 0
            # Long before the story would have ended, by the time of its first words.
            assert time.monotonic() - began < max(5, (began - asked) * STORY / PART / 4)


def test_a_signal_while_it_loads_ends_it(home: Path, model: str) -> None:
    port = free_port()
    words = [str(home / "bin" / "python"), str(PROGRAMS / "llama-server"), "-m", model, "--port", str(port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        loading = threading.Event()
        for line in process.stderr:
            if "loading model" in line:
                loading.set()
                break
        assert loading.is_set()
        process.send_signal(signal.SIGTERM)
        # As llama-server: before the model is there the signal ends the process by itself.
        assert process.wait(120) in {-signal.SIGTERM, 0}
