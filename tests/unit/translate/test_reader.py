"""The forms in which commands are pasted: vLLM's three spellings, containers, Python, broken lines, bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.secret_shapes import GONE
from drafthouse.engines.vllm import json_fault
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import as_data, command_text, translation_text
from drafthouse.translate.translator import Translation, translate

HOUSE, FLAGS = load_catalog(ROOT), load_flags(ROOT)
HEAD = "RedHatAI/Qwen3-32B-speculator.eagle3"


def all_of(text: str, **files: str) -> list[Translation]:
    return translate(text, HOUSE, FLAGS, {name.replace("_", "."): body for name, body in files.items()}.get)[0]


def one(text: str, **files: str) -> Translation:
    (found,) = all_of(text, **files)
    return found


def what(found: Translation, kind: str) -> dict[str, str]:
    return {change.what: change.version for change in found.changes if change.kind == kind}


def problem_of(text: str, **files: str) -> str:
    with pytest.raises(DrafthouseError) as caught:
        all_of(text, **files)
    return str(caught.value)


# --- one speculation, many spellings --------------------------------------------------------------------

SPELLINGS = [
    f"""--speculative-config '{{"method": "eagle3", "model": "{HEAD}", "num_speculative_tokens": 3}}'""",
    f"""-sc '{{"method":"eagle3","model":"{HEAD}","num-speculative-tokens":"3"}}'""",
    f"""--speculative_config='{{"method": "eagle3", "num_speculative_tokens": 3, "model": "{HEAD}"}}'""",
    f"--speculative-config.method eagle3 --speculative-config.num_speculative_tokens=3 -sc.model {HEAD}",
    f"--spec-method eagle3 --spec-model {HEAD} --spec-tokens 3",
    f"""--spec-tokens=3 -sc '{{"method": "eagle3", "model": "{HEAD}"}}'""",
    f"--speculative-model {HEAD} --num-speculative-tokens 3",
    f"""-sc '{{"model": "{HEAD}", "num_speculative_tokens": 3}}' --spec-method eagle3""",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_speculation_gives_the_same_profile(spelling: str) -> None:
    wanted = one(f"vllm serve Qwen/Qwen3-32B --max-model-len 8192 {SPELLINGS[0]}")
    found = one(f"vllm serve Qwen/Qwen3-32B --max-model-len 8192 {spelling}")
    assert found.profile == wanted.profile
    assert command_text(found) == command_text(wanted)
    assert found.same == ["rtx6000-qwen-eagle3"]


def test_disable_by_batch_size_became_a_schedule() -> None:
    text = "vllm serve a/b --speculative-model c/d --num-speculative-tokens 4 --speculative-disable-by-batch-size 8"
    found = one(text)
    schedule = found.profile["speculation"]["options"]["num_speculative_tokens_per_batch_size"]
    assert schedule == [[1, 8, 4], [9, 9, 0]]
    assert what(found, "renamed")["disable_by_batch_size"] == "0.17.0"
    suffix = one("""vllm serve a/b -sc '{"method": "suffix", "disable_by_batch_size": 8}'""")
    assert "--speculative-config: disable_by_batch_size" in what(suffix, "removed")
    assert suffix.profile["speculation"]["num_speculative_tokens"] == 24


def test_arctic_keeps_its_own_keys_and_gets_its_own_engine() -> None:
    found = one("""vllm serve a/b -sc '{"method": "arctic", "model": "c/d", "num_speculative_tokens": 3,
      "disable_by_batch_size": 64, "new_key": 1}'""")
    assert found.engine == "vllm-arctic"
    assert found.profile["speculation"]["options"] == {"disable_by_batch_size": 64}
    assert command_text(found).startswith("ARCTIC_INFERENCE_ENABLED=1 vllm serve")
    assert "new_key" in what(found, "kept")
    assert '"new_key": 1' in command_text(found)


def test_a_flag_that_is_given_twice_counts_once() -> None:
    found = one('vllm serve a/b --speculative-model c/d --num-speculative-tokens 5 --speculative-model "[ngram]"')
    assert found.profile["speculation"] == {"method": "ngram", "num_speculative_tokens": 5}
    assert "--speculative-model" in what(found, "ignored")


# --- the shapes of a paste ------------------------------------------------------------------------------

PLAIN = "vllm serve Qwen/Qwen3-32B --max-model-len 8192 --tensor-parallel-size 1"


@pytest.mark.parametrize(
    "text",
    [
        "$ vllm serve Qwen/Qwen3-32B \\\n    --max-model-len 8192 \\\n    --tensor-parallel-size 1\n",
        "vllm serve Qwen/Qwen3-32B \\  \n--max-model-len 8192 \\\r\n--tensor-parallel-size 1 \\\n",
        "vllm serve \\ Qwen/Qwen3-32B \\ --max-model-len 8192 \\ --tensor-parallel-size 1",
        "sudo nohup vllm serve Qwen/Qwen3-32B --max_model_len=8k -tp 1 > log 2>&1 &".replace("8k", "8192"),
        "cd /x && source .venv/bin/activate && vllm serve Qwen/Qwen3-32B --max-model-len 8192 -tp 1 | tee log",
        "/opt/venv/bin/vllm serve --model Qwen/Qwen3-32B --max-model-len 8192 -tp=1  # my server",
        "python3 -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen3-32B --max-model-len 8192 -tp 1",
        "vllm serve \u201cQwen/Qwen3-32B\u201d \u2014max-model-len 8192 \u2013tensor-parallel-size 1",
        "\x1b[1mvllm serve\x1b[0m\u00a0Qwen/Qwen3-32B\u200b --max-model-len 8192 --tensor-parallel-size 1",
        "export MODEL='Qwen/Qwen3-32B'\nLEN=8192  # tokens\nvllm serve $MODEL --max-model-len \"${LEN}\" -tp 1",
        "llm = LLM(\n    'Qwen/Qwen3-32B',  # the target\n    max_model_len=8192, tensor_parallel_size=1)\n",
        "MODEL = 'Qwen/Qwen3-32B'\nllm = vllm.LLM(model=MODEL, max_model_len=8192, tensor_parallel_size=1)\n",
        "docker run vllm/vllm-openai:v0.32.0 Qwen/Qwen3-32B --max-model-len 8192 -tp 1",
        "docker run -it --entrypoint python3 vllm/vllm-openai -m vllm.entrypoints.openai.api_server "
        "--model Qwen/Qwen3-32B --max-model-len 8192 -tp 1",
        "docker run --rm my/image bash -lc 'pip list; vllm serve Qwen/Qwen3-32B --max-model-len 8192 -tp 1'",
        "vllm serve --config serve.yaml -tp 1",
    ],
)
def test_one_command_in_many_shapes(text: str) -> None:
    found = one(text, serve_yaml="model: Qwen/Qwen3-32B\nmax-model-len: 8192\ntensor-parallel-size: 4\n")
    wanted = one(PLAIN)
    assert found.profile == wanted.profile
    assert sorted(map(str, found.command)) == sorted(map(str, wanted.command))


def test_a_variable_that_the_paste_does_not_set_is_left_to_the_shell() -> None:
    text = command_text(one("vllm serve $DIR/m --seed ${N} --chat-template 'a $B c'"))
    assert text == 'vllm serve "$DIR/m" \\\n  --seed "${N}" \\\n  --chat-template \'a $B c\''


def test_prose_that_names_a_program_is_no_command() -> None:
    text = (
        "Use vllm serve for that.\n"
        'BODY="{\n \\"a\\": 1\n}"\n'
        "He said: don't. The vllm bench serve tool is another.\n\nvllm bench serve --x 1\n"
    )
    found = all_of(f"{text}{PLAIN}\nIt's done, isn't it?\n")
    assert [entry.profile["target"] for entry in found] == ["qwen3-32b"]


def test_several_commands_are_translated_one_by_one() -> None:
    found = all_of(f"{PLAIN}\n\nllama-server -m a.gguf\ntrtllm-serve serve c/d --tp_size 1\n{PLAIN} --seed 1")
    assert [entry.engine for entry in found] == ["vllm", "llamacpp", "trtllm", "vllm"]


def test_a_container_tells_version_environment_and_secrets() -> None:
    found = one(
        "sudo docker run -d --runtime nvidia --gpus all -v ~/.cache:/root/.cache -p8000:8000 --ipc=host --frob 1 "
        '--env "HF_TOKEN=hf_abc" -e VLLM_USE_V1=1 -e FOO="b c" vllm/vllm-openai:v0.10.2 --model a/b'
    )
    assert "hf_abc" not in repr(found)
    assert what(found, "removed") == {"VLLM_USE_V1=1": "0.12 or 0.13", "docker --frob 1": "-"}
    moved = what(found, "moved")
    assert {"HF_TOKEN", "docker --publish 8000:8000", "docker --ipc host", "vllm/vllm-openai:v0.10.2"} <= set(moved)
    assert command_text(found).startswith("FOO='b c' vllm serve a/b")


def test_images_of_the_other_engines() -> None:
    assert one("docker run -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m a.gguf").engine == "llamacpp"
    assert one("docker run ghcr.io/ggml-org/llama.cpp:full --server -m a.gguf").profile["target"] == "a.gguf"
    found = one("docker run nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc1 trtllm-serve a/b --tp_size 1")
    assert "nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc1" in what(found, "moved")


def test_secrets_of_every_kind_stay_unsaid() -> None:
    text = "OPENAI_API_KEY=s1 VLLM_API_KEY=s2 vllm serve a/b --api-key s3 s4 --hf-token=s5 --other-token s6"
    found = one(text)
    assert not any(secret in repr(found) for secret in ("s1", "s2", "s3", "s4", "s5", "s6"))
    assert 'OPENAI_API_KEY="$OPENAI_API_KEY"' in command_text(found)
    assert "--other-token" in what(found, "removed")
    llama = one("llama-server -m a.gguf --api-key s1")
    assert "--api-key-file secrets/api_key" in command_text(llama)
    assert "s1" not in repr(llama)


# --- llama.cpp and TensorRT-LLM -------------------------------------------------------------------------


def test_llamacpp_of_last_year() -> None:
    found = one(
        "./build/bin/llama-server -hf ggml-org/t-GGUF:Q8_0 -hfd ggml-org/d-GGUF -ngl 99 -ngld 99 -c 8192 -fa "
        "--draft-max 16 --draft-min 2 --draft-p-min 0.6 --no-mmap"
    )
    extra = ["--flash-attn", "on", "--load-mode", "none"]
    assert found.profile["serve"] == {"gpu_layers": 99, "context": 8192, "extra": extra}
    assert found.profile["speculation"] == {
        "method": "draft-simple", "draft": "ggml-org/d-GGUF", "num_speculative_tokens": 16,
        "options": {"draft_gpu_layers": 99, "min_tokens": 2, "min_probability": 0.6},
    }  # fmt: skip
    text = command_text(found)
    for words in ("--hf-repo ggml-org/t-GGUF:Q8_0", "--spec-draft-hf ggml-org/d-GGUF", "--spec-type draft-simple",
                  "--flash-attn on", "--load-mode none"):  # fmt: skip
        assert words in text
    assert what(found, "renamed") == {
        "-fa": "2025-08 (b6343)", "--draft-max": "2026-04 (PR 22397)", "--draft-min": "2026-04 (PR 22397)",
        "--no-mmap": "2026-07 (PR 20834)",
    }  # fmt: skip


def test_lookups_of_llamacpp_have_flags_of_their_own_now() -> None:
    found = one("llama-server -m a.gguf --spec-type ngram-map-k --spec-ngram-size-n 3 --spec-ngram-size-m 8")
    assert "--spec-ngram-map-k-size-n 3" in command_text(found)
    assert found.profile["speculation"] == {
        "method": "ngram-map-k", "num_speculative_tokens": 8, "options": {"ngram_size": 3},
    }  # fmt: skip
    found = one("llama-server -m a.gguf --spec-type ngram-mod --draft-max 64")
    assert "--spec-ngram-mod-n-max 64" in command_text(found)
    found = one("llama-server -m a.gguf -md b.gguf --spec-type ngram-mod")
    assert "add draft-simple" in " ".join(change.why for change in found.changes)
    assert one("llama-server -m a.gguf --spec-type none").baseline


OLD_YAML = """
pytorch_backend_config:
  use_cuda_graph: true
  cuda_graph_padding_enabled: true
  cuda_graph_batch_sizes: [1, 2]
  enable_overlap_scheduler: false
  print_iter_log: true
use_torch_sampler: true
speculative_config: {decoding_type: NGram, max_draft_len: 4, speculative_model: x/y}
"""


def test_old_keys_of_tensorrt_llms_yaml() -> None:
    found = one("trtllm-serve a/b --config extra.yaml", extra_yaml=OLD_YAML)
    (text,) = found.files.values()
    assert yaml.safe_load(text) == {
        "cuda_graph_config": {"enable_padding": True, "batch_sizes": [1, 2]},
        "disable_overlap_scheduler": True,
        "print_iter_log": True,
        "sampler_type": "TorchSampler",
        "speculative_config": {"decoding_type": "NGram", "max_draft_len": 4, "speculative_model_dir": "x/y"},
    }
    assert "--extra_llm_api_options extra.yaml" in command_text(found)
    renamed = what(found, "renamed")
    assert renamed["extra.yaml: use_torch_sampler"] == "after 1.1.0rc0"
    assert renamed["extra.yaml: speculative_config.speculative_model"] == "1.2"
    assert what(found, "removed") == {"extra.yaml: use_cuda_graph": "2025-06 (PR 5014)"}
    off = one("trtllm-serve a/b --config extra.yaml", extra_yaml="use_cuda_graph: false\n")
    assert yaml.safe_load(off.files["extra.yaml"]) == {"cuda_graph_config": None}


@pytest.mark.parametrize(
    ("pasted", "today"),
    [
        ("decoding_type: MTP, num_nextn_predict_layers: 3", {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        ("decoding_type: MTP, max_draft_len: 3", {"decoding_type": "MTP", "num_nextn_predict_layers": 3}),
        (
            "decoding_type: Eagle3, max_draft_len: 3, speculative_model: x/y",
            {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "x/y"},
        ),
    ],
)
def test_words_of_another_release_of_tensorrt_llm_are_written_as_the_pinned_one_reads_them(
    pasted: str, today: dict[str, object]
) -> None:
    found = one("trtllm-serve a/b --config e.yaml", e_yaml=f"speculative_config: {{{pasted}}}\n")
    assert found.profile["speculation"]["num_speculative_tokens"] == 3
    assert yaml.safe_load(found.files["e.yaml"]) == {"speculative_config": today}


def test_a_file_that_is_not_there_is_said() -> None:
    found = one("trtllm-serve a/b --extra_llm_api_options gone.yaml")
    assert "--extra_llm_api_options gone.yaml" in what(found, "kept")
    assert "--extra_llm_api_options gone.yaml" in command_text(found)
    assert "the settings in gone.yaml" in found.left_out


@pytest.mark.parametrize("heredoc", ["cat <<EOF > e.yaml", "cat > ./e.yaml << 'EOF'", "tee e.yaml <<-EOF"])
def test_a_file_may_stand_in_the_paste(heredoc: str) -> None:
    found = one(f"{heredoc}\nenable_attention_dp: true\nEOF\ntrtllm-serve a/b --config e.yaml\n")
    assert found.profile["serve"] == {"enable_attention_dp": True}


# --- the same words from every Python -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ('{"method": "eagle3",}', 21, "a comma before the closing bracket"),
        ('{"method": "eagle3" , }', 23, "a comma before the closing bracket"),
        ('{"a": [1,]}', 10, "a comma before the closing bracket"),
        ('{"method" "eagle3"}', 11, "Expecting ':' delimiter"),
        ('{"a": ,}', 7, "Expecting value"),
    ],
)
def test_a_fault_in_json_is_told_alike_by_every_python(text: str, at: int, said: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(text)
    assert json_fault(caught.value) == f"line 1, column {at}: {said}"
    if said.startswith("a comma"):
        # What 3.13 raises (Lib/json/decoder.py): another message, with the place of the comma; and what 3.12 does.
        comma = text.rindex(",")
        newer = json.JSONDecodeError("Illegal trailing comma before end of object", text, comma)
        older = json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at - 1)
        assert json_fault(newer) == json_fault(older) == f"line 1, column {at}: {said}"


# --- bad input: where, found, needed, do, and no traceback -----------------------------------------------

BAD: list[tuple[str, list[str]]] = [
    ("", ["found: nothing", "needed: a serve command"]),
    (" \n ", ["found: nothing"]),
    ("hello there", ["code: no-serve-command", "vllm serve", "trtllm-serve", "llama-server"]),
    ("lmdeploy serve api_server x", ["lmdeploy is not one", "needed: one of: vllm serve"]),
    ('vllm serve x --served-model-name "abc', ["where: line 1, column 34", 'found: an unclosed quote (")']),
    ("\nvllm serve y --api-key 'abc", ["where: line 2, column 24", "found: an unclosed quote (')"]),
    ("vllm serve", ["code: no-model"]),
    ("""vllm serve x -sc '{"method": "eagle3",}'""", ["where: line 1, vllm serve: -sc", "line 1, column 21"]),
    ("vllm serve x -sc [1]", ["not JSON (list, not keys with values)"]),
    ("vllm serve x -sc null", ["not JSON (NoneType, not keys with values)"]),
    ("vllm serve x -sc", ["not JSON (bool instead of text)"]),
    ("""vllm serve x -sc '{"method": "eagle3", "model": "y"}' --spec-method ngram""", ["two methods at once: eagle3"]),
    ('vllm serve x --speculative-model "[ngram]" --spec-model y/z', ["two methods at once: [ngram]"]),
    ("vllm serve x --speculative-model y/z --ngram-prompt-lookup-max 4", ["two methods", "an n-gram lookup (4)"]),
    ("vllm serve x --spec-model y/z --spec-method ngram --spec-tokens 3", ["two methods", "y/z (--spec-model)"]),
    ("vllm serve x --spec-model [ngram] --spec-method eagle3", ["two methods at once: eagle3 (--spec-method)"]),
    ("vllm serve x --spec-tokens 3 --num-speculative-tokens 4", ["two values of num_speculative_tokens: 3"]),
    ("vllm serve x --speculative-model y --num-speculative-tokens 0", ["found: 0", "at least 1"]),
    ("vllm serve x --speculative-model y --num-speculative-tokens five", ["found: 'five'"]),
    ("vllm serve x --speculative-model y --num-speculative-tokens", ["found: no number"]),
    ("""vllm serve x -sc '{"model": "y", "num_speculative_tokens": true}'""", ["found: no number"]),
    ("vllm serve x -tp two", ["where: line 1, vllm serve: -tp", "needed: a whole number"]),
    ("vllm serve x --gpu-memory-utilization much", ["needed: a number"]),
    ("vllm serve x --max-model-len", ["found: nothing", "needed: a value behind it"]),
    ("vllm serve x --enforce-eager=perhaps", ["needed: true or false"]),
    ("llama-server -m a.gguf -md b.gguf --draft-max 0", ["--spec-draft-n-max", "found: '0'"]),
    ("trtllm-serve x --config e.yaml", ["where: line 1, trtllm-serve: e.yaml", "not YAML (line 1, column 5)"]),
    ("trtllm-serve x --config list.yaml", ["found: YAML that is one list"]),
    ("cat <<EOF > e.yaml\na: 1\ntrtllm-serve x --config e.yaml", ["here-document <<EOF", "where: line 1"]),
    ("docker run -it nvcr.io/nvidia/tensorrt-llm/release:1.2.1 bash", ["that does not start an engine"]),
    ("docker run", ["a container of some image that does not start an engine"]),
    ("LLM(model='a', speculative_config=of(name))", ["${of_name}, which the paste does not set"]),
    ('LLM(model="a", ', ["code: python-not-read"]),
    ("from tensorrt_llm import LLM\nLLM(model='a')", ["LLM(...) of tensorrt_llm", "trtllm-serve MODEL"]),
]


@pytest.mark.parametrize(("text", "said"), BAD)
def test_bad_input(text: str, said: list[str]) -> None:
    told = problem_of(text, e_yaml="a: b: c\n", list_yaml="[1, 2]\n")
    for words in said:
        assert words in told
    assert "\nneeded: " in f"\n{told}" and "\ndo: " in told


def test_what_an_open_quote_holds_is_not_repeated() -> None:
    assert "s3cret" not in problem_of('vllm serve x --api-key "s3cret')


# --- the table of old flags has a shape of its own --------------------------------------------------------


def broken(tmp_path: Path, old: str, new: str) -> str:
    shutil.copytree(ROOT / "profiles/catalog", tmp_path / "profiles/catalog")
    path = tmp_path / "profiles/catalog/old_flags/vllm.yml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(DrafthouseError) as caught:
        load_flags(tmp_path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: renamed", "kind: remaned", "write 'renamed'"),
        ("{kind: renamed, became: speculative-config.model, ", "{kind: renamed, ", "renamed without 'became'"),
        ("short: ", "shrt: ", "the unknown key 'shrt'"),
        ("model_behind: ", "model_behnd: ", "the unknown key 'model_behnd'"),
        ("---\n", "---\na: b: c\n", "mapping values are not allowed"),
    ],
)
def test_a_slip_in_the_table_is_found(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in broken(tmp_path, old, new)


def test_a_table_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError, match=r"restore it: git checkout -- profiles/catalog/old_flags.yml"):
        load_flags(tmp_path)


def test_every_successor_is_a_flag_of_today() -> None:
    version = HOUSE.engines["vllm"]["default_version"]
    today = FLAGS.of("vllm", HOUSE.flags["vllm"][version])
    for name, rule in today["old"].items():
        if "became" in rule:
            assert rule["became"].partition(".")[0] in today["known"], name
        elif rule["kind"] == "removed":
            assert name not in today["known"], name


# --- secrets: never printed again, wherever they stand ----------------------------------------------------

SERVE = "vllm serve Qwen/Qwen3-32B"
SERVICE = "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-32B\n"


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        (f"mpirun -x HF_TOKEN=hunter2-is-it -n 1 {SERVE}", "mpirun -x HF_TOKEN"),
        (
            f"docker run --label token=hunter2-is-it vllm/vllm-openai --model {SERVE.rsplit(maxsplit=1)[-1]}",
            "docker --label token",
        ),
        (
            f"{SERVICE}    healthcheck:\n      test: [CMD, curl, -H, 'Authorization: Bearer hunter2-is-it']\n",
            "healthcheck",
        ),
        (f"{SERVICE}    API_KEY: hunter2-is-it\n", "docker --API_KEY"),
        (f"export http_proxy=http://user:hunter2-is-it@proxy:3128\n{SERVE}", "http_proxy=http://"),
        (f"{SERVE} --otlp-traces-endpoint http://user:hunter2-is-it@host", "--otlp-traces-endpoint http://"),
        (f"""{SERVE} --kv-transfer-config '{{"api_key": "hunter2-is-it"}}'""", "--kv-transfer-config"),
        (f"MY_PASSWORD=hunter2-is-it\n{SERVE} --served-model-name $MY_PASSWORD", "MY_PASSWORD"),
        (f"{SERVE} --chat-template 'Authorization: Bearer sk-hunter2hunter2hunter2'", "--chat-template"),
        (
            "cat > c.yaml <<E\nnested:\n  api_key: hunter2-is-it\nE\n"
            "trtllm-serve Qwen/Qwen3-32B --extra_llm_api_options c.yaml",
            "nested.api_key",
        ),
        ("cat > c.yaml <<E\nmodel: x\napi-key: hunter2-is-it\nE\nvllm serve --config c.yaml", "--api-key"),
    ],
)
def test_a_secret_is_named_and_not_printed(text: str, stays: str) -> None:
    (found,), _, _ = translate(text, HOUSE, FLAGS, lambda name: None)
    for told in (translation_text(found), json.dumps(as_data(found))):
        assert "hunter2" not in told
    assert stays in " ".join(translation_text(found).split())
    assert GONE not in json.dumps(found.profile)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Qwen/Qwen3-32B --gpu-memory-utilization 1e400", "wrong-type"),
        ("Qwen/Qwen3-32B --gpu-memory-utilization nan", "wrong-type"),
        (f"Qwen/Qwen3-32B --max-model-len {'9' * 5000}", "wrong-type"),
        ("/ --port 8000", "no-model"),
        ("'' --port 8000", "no-model"),
    ],
)
def test_a_value_that_is_none_is_refused(words: str, code: str) -> None:
    with pytest.raises(DrafthouseError) as error:
        translate(f"vllm serve {words}", HOUSE, FLAGS, lambda name: None)
    assert [problem.code for problem in error.value.problems] == [code]


def test_a_token_of_the_vocabulary_is_no_secret() -> None:
    """As the card of Qwen3-Reranker has it."""
    text = f"""{SERVE} --hf-overrides '{{"classifier_from_token": ["no", "yes"]}}'"""
    (found,), _, _ = translate(text, HOUSE, FLAGS, lambda name: None)
    assert found.profile["serve"]["extra"] == ["--hf-overrides", '{"classifier_from_token": ["no", "yes"]}']
