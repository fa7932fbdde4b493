"""The surroundings of pasted commands: launchers, scripts of shells, YAML, Windows, comments, gaps to fill."""

from __future__ import annotations

import time

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import translation_text
from drafthouse.translate.translator import Translation, translate
from tests.support.pace import in_cpu_time

HOUSE, FLAGS = load_catalog(ROOT), load_flags(ROOT)
PLAIN = "vllm serve Qwen/Qwen3-32B --max-model-len 8192 --seed 7"


def all_of(text: str) -> list[Translation]:
    return translate(text, HOUSE, FLAGS, lambda _: None)[0]


def one(text: str) -> Translation:
    (found,) = all_of(text)
    return found


def words(found: Translation) -> list[str]:
    return [word for flag in found.command for word in flag]


def said(found: Translation) -> dict[str, str]:
    return {change.what: change.became for change in found.changes}


def code_of(text: str) -> str:
    with pytest.raises(DrafthouseError) as caught:
        all_of(text)
    return caught.value.problems[0].code


# --- what stands before a program -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "launcher",
    [
        "uv run",
        "uv run --with vllm --python 3.12",
        "uvx --from vllm",
        "uvx",
        "poetry run",
        "pipenv run",
        "conda run -n serving",
        "timeout 2h",
        "timeout -k 5 30",
        "numactl --cpunodebind=0 --membind=0",
        "numactl -N 0 -m 0",
        "taskset -c 0-15",
        "mpirun -n 2 --allow-run-as-root",
        "nohup",
        "sudo -E",
        "sudo -u serving",
        "nice -n 5",
        "nohup numactl --interleave=all",
        "srun -N 1 --gres=gpu:1",
    ],
)
def test_a_launcher_is_named_and_the_command_is_read(launcher: str) -> None:
    found = one(f"{launcher} {PLAIN}")
    assert found.profile == one(PLAIN).profile
    named = " ".join(what for what in said(found))
    assert all(word in named for word in launcher.split())


@pytest.mark.parametrize(
    "text",
    [
        f"for i in 1 2; do\n  {PLAIN}\ndone",
        f"for i in 1 2; do {PLAIN}; done",
        f"if true; then {PLAIN}; fi",
        f"[Service]\nExecStart=/usr/bin/env {PLAIN}\nRestart=always",
        f"ExecStart=-{PLAIN}",
        f"bash -lc '{PLAIN}'",
        f'bash -c "source x.sh && {PLAIN}"',
        f"ExecStart=/bin/bash -lc '{PLAIN}'",
        f"docker exec -it engine bash -lc '{PLAIN}'",
        f"$ {PLAIN}",
        f"user@box:~$ {PLAIN}",
        f"cd /x && {PLAIN} > log 2>&1 &",
        "MODEL=Qwen/Qwen3-32B\nvllm serve $MODEL --max-model-len 8192 --seed 7",
        'export MODEL="Qwen/Qwen3-32B"\nvllm serve "${MODEL}" --max-model-len 8192 --seed 7',
        "MODEL=Qwen/Qwen3-32B; vllm serve $MODEL --max-model-len 8192 --seed 7",
        "LEN=8192\nvllm serve ${MODEL:-Qwen/Qwen3-32B} --max-model-len $LEN --seed 7",
        "vllm serve Qwen/Qwen3-32B\n  --max-model-len 8192\n  --seed 7",
        "vllm serve Qwen/Qwen3-32B \\\n  --max-model-len 8192\n  --seed 7\n",
        "vllm serve Qwen/Qwen3-32B \\\n  # so long a context\n  --max-model-len 8192 \\\n  --seed 7",
        "vllm serve Qwen/Qwen3-32B \\  # the model\n  --max-model-len 8192 \\ # long\n  --seed 7",
        "# how we serve it\n# vllm serve Qwen/Qwen3-32B \\\n#   --max-model-len 8192 --seed 7",
        f"// {PLAIN}",
        "vllm serve Qwen/Qwen3-32B --max-model 8192 --see 7",
    ],
)
def test_the_same_command_however_it_is_written(text: str) -> None:
    assert one(text).profile == one(PLAIN).profile


def test_variables_on_the_way_in_are_the_commands() -> None:
    found = one(f"export VLLM_LOGGING_LEVEL=DEBUG\nmpirun -n 1 -x NCCL_DEBUG=INFO {PLAIN}")
    assert found.profile["environment"] == {"VLLM_LOGGING_LEVEL": "DEBUG", "NCCL_DEBUG": "INFO"}


def test_a_commented_command_beside_another_is_none() -> None:
    assert one(f"# vllm serve a/b --seed 1\n{PLAIN}").profile == one(PLAIN).profile


def test_a_comment_between_the_words_of_an_array_is_none_of_them() -> None:
    array = "ARGS=(\n  --max-model-len 8192  # as long as it fits\n  # --speculative-config off\n  --seed 7\n)\n"
    assert one(f'{array}vllm serve Qwen/Qwen3-32B "${{ARGS[@]}}"').command == one(PLAIN).command


LISTS = (
    'cmd = [\n    "vllm", "serve", "Qwen/Qwen3-32B",\n    "--max-model-len", "8192", "--seed", str(7),\n]\nPopen(cmd)',
    "model = 'Qwen/Qwen3-32B'\nrun(['vllm', 'serve', model, '--max-model-len', '8192', '--seed', '7'], check=True)",
    '{"Cmd": ["vllm", "serve", "Qwen/Qwen3-32B", "--max-model-len", "8192", "--seed", "7"]}',
)


@pytest.mark.parametrize("text", LISTS)
def test_a_program_hands_a_command_to_a_process_as_a_list(text: str) -> None:
    assert one(text).command == one(PLAIN).command


def test_what_only_the_program_knows_is_a_variable() -> None:
    with pytest.raises(DrafthouseError, match=r"\$\{config\}, which the paste does not set"):
        one("Popen(['vllm', 'serve', 'Qwen/Qwen3-32B', '--speculative-config', json.dumps(config)])")
    assert "$" in " ".join(words(one("run(['vllm', 'serve', 'Qwen/Qwen3-32B', '--port', f'{port}'])")))


def test_variables_of_a_batch_file() -> None:
    batch = "@echo off\nset MODEL=Qwen/Qwen3-32B\nvllm serve %MODEL% ^\n  --max-model-len 8192 --seed 7\npause\n"
    assert one(batch).command == one(PLAIN).command


def test_a_sentence_may_name_a_program() -> None:
    assert one(f"First start `vllm serve`, as in\n\n{PLAIN}\n").profile == one(PLAIN).profile


@pytest.mark.parametrize(
    "text",
    [
        r".\llama-server.exe -m C:\models\x.gguf -c 4096",
        r"C:\llama\llama-server.exe -m C:\models\x.gguf -c 4096",
        '& ".\\llama-server.exe" -m C:\\models\\x.gguf -c 4096',
        "llama-server.exe ^\n  -m C:\\models\\x.gguf ^\n  -c 4096",
        ".\\llama-server.exe `\n  -m C:\\models\\x.gguf `\n  -c 4096",
    ],
)
def test_windows(text: str) -> None:
    found = one(text)
    assert found.profile["serve"] == {"context": 4096}
    assert words(found)[:3] == ["llama-server", "--model", "C:/models/x.gguf"]


# --- YAML -----------------------------------------------------------------------------------------------

COMPOSE = """
services:
  web:
    image: nginx
    command: nginx -g "daemon off;"
  engine:
    image: vllm/vllm-openai:v0.31.0
    ports: ["8000:8000"]
    environment:
      - VLLM_LOGGING_LEVEL=DEBUG
    command: >
      --model Qwen/Qwen3-32B
      --max-model-len 8192
      --seed 7
"""
KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: engine
          image: vllm/vllm-openai:latest
          command: ["vllm", "serve"]
          args:
            - Qwen/Qwen3-32B
            - --max-model-len
            - "8192"
            - --seed=7
          env:
            - {name: VLLM_LOGGING_LEVEL, value: DEBUG}
            - name: HF_TOKEN
              valueFrom: {secretKeyRef: {name: hub, key: token}}
---
apiVersion: v1
kind: Service
"""
SWAP = """
macros:
  server: llama-server --port ${PORT}
models:
  small:
    cmd: |
      ${server}
      -m /models/x.gguf
      -c 4096
    env: [LLAMA_LOG=1]
    ttl: 60
"""


@pytest.mark.parametrize("text", [COMPOSE, KUBERNETES, f"See this:\n\n```yaml\n{KUBERNETES}```\n\nand more."])
def test_compose_and_kubernetes(text: str) -> None:
    found = one(text)
    assert found.profile["serve"] == {"max_model_len": 8192, "extra": ["--seed", "7"]}
    assert found.profile["environment"] == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert found.profile["target"] == "qwen3-32b"


def test_the_rest_of_a_service_is_named() -> None:
    assert any("ports" in what for what in said(one(COMPOSE)))
    assert "HF_TOKEN" in said(one(KUBERNETES))


def test_llama_swap() -> None:
    found = one(SWAP)
    assert (found.engine, found.profile["serve"]) == ("llamacpp", {"context": 4096})
    assert "--ttl" in " ".join(said(found))


def test_aliases_that_would_fill_the_memory_are_not_followed() -> None:
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 20)}]\n" for n in range(1, 12))
    assert code_of(f"l0: &l0 [a]\n{levels}x: {{command: *l11}}\n") == "no-serve-command"


# --- images, gaps, engines ------------------------------------------------------------------------------


@pytest.mark.parametrize("image", ["vllm/vllm-openai-rocm:v0.31.0", "vllm/vllm-openai-cpu:latest", "x/vllm-openai"])
def test_images_for_other_processors(image: str) -> None:
    assert one(f"docker run --rm {image} --model Qwen/Qwen3-32B --seed 7").profile["target"] == "qwen3-32b"


def test_placeholders_stay_and_gaps_are_said() -> None:
    found = one("vllm serve <your-model> ... --seed 7 [options]")
    assert found.profile["target"] == "<your-model>"
    assert {"...", "[options]"} <= set(said(found))
    assert found.missing == ["<your-model>"]
    assert "not in the catalogue" in translation_text(found)


def test_a_router_is_no_server() -> None:
    assert code_of("trtllm-serve disaggregated -c config.yaml") == "unsupported-command"


def test_a_folder_that_is_called_like_a_model_is_said_to_be_taken_for_it() -> None:
    assert said(one("vllm serve /mnt/Qwen-Qwen3-32B --seed 7"))["/mnt/Qwen-Qwen3-32B"] == "qwen3-32b"
    assert "Qwen/Qwen3-32B" not in said(one(PLAIN))


def test_a_plugins_own_flags_are_known() -> None:
    found = one("ARCTIC_INFERENCE_ENABLED=1 vllm serve a/b --ulysses-sequence-parallel-size 2 --enable-shift-parallel")
    assert found.engine == "vllm-arctic"
    assert found.profile["serve"]["extra"] == ["--ulysses-sequence-parallel-size", "2", "--enable-shift-parallel"]
    assert found.left_out == []


@pytest.mark.parametrize("kind", ["ngram-simple", "ngram-map-k", "ngram-map-k4v"])
@pytest.mark.parametrize("flag", ["--draft-max", "--spec-draft-n-max"])
def test_how_far_a_lookup_drafts(kind: str, flag: str) -> None:
    found = one(f"llama-server -m x.gguf --spec-type {kind} {flag} 64")
    assert found.profile["speculation"]["num_speculative_tokens"] == 64
    assert f"--spec-{kind}-size-m" in words(found)


@pytest.mark.parametrize("typed", ["--enable-chunked-prefill False", "--enable-chunked-prefill=false"])
def test_a_switch_with_a_word_is_off_as_old_parsers_took_it(typed: str) -> None:
    found = one(f"vllm serve {typed} a/b --enforce-eager True")
    assert words(found)[:3] == ["vllm", "serve", "a/b"]
    assert found.profile["serve"] == {"enforce_eager": True, "extra": ["--no-enable-chunked-prefill"]}
    assert not found.left_out


# --- hardware, and what the profile cannot hold ---------------------------------------------------------


@pytest.mark.parametrize("split", ["-tp 2", "-tp 8", "-tp 4 -pp 2"])
def test_hardware_has_as_many_gpus_as_the_command_asks_for(split: str) -> None:
    found = one(f"{PLAIN} {split}")
    numbers = [int(word) for word in split.split()[1::2]]
    assert HOUSE.hardware[found.profile["hardware"]]["devices"] >= numbers[0] * (numbers[1:] or [1])[0]


def test_more_gpus_than_any_hardware_has_is_said() -> None:
    (why,) = [change.why for change in one(f"{PLAIN} -tp 16").changes if change.what == "(no hardware)"]
    assert "no hardware in the catalogue has 16 GPUs" in why


@pytest.mark.parametrize(
    ("flag", "why"),
    [("--headless", "the inventory"), ("--disable-log-stats", "the measurement"), ("--old-one", "have")],
)
def test_a_flag_that_no_profile_may_have_is_named_with_the_reason(flag: str, why: str) -> None:
    found = one(f"{PLAIN} {flag}")
    assert found.left_out == [flag]
    (change,) = [change for change in found.changes if change.what.startswith(flag)]
    assert why in change.why
    assert "extra" in found.profile["serve"]


def test_a_variable_that_a_shell_fills_in_is_left_out_and_named() -> None:
    found = one(f"LD_PRELOAD=/x.so:$LD_PRELOAD CUDA_VISIBLE_DEVICES=1 {PLAIN}")
    assert found.left_out == ["LD_PRELOAD=/x.so:$LD_PRELOAD", "CUDA_VISIBLE_DEVICES=1"]
    assert "environment" not in found.profile


@pytest.mark.parametrize(
    "text",
    [
        "A=ab\n" + 'A="$A$A"\nB=($A $A "${B[@]}" "${B[@]}")\n' * 60 + 'vllm serve a/b --seed $A "${B[@]}"',
        "s, a, b = 'ab', [1], {}\n"
        + "s = s + f'{s}{s}'\na = [a, a]\na.append(a)\nb['x'] = b\n" * 60
        + "LLM('a/b', x=a, y=b)",
        "It's (said\n" * 3000 + "vllm serve a/b\n" + "vllm is what they'd (say\n" * 3000,
    ],
    ids=["shell", "Python", "prose"],
)
def test_a_text_that_grows_without_end_is_read_in_a_moment(text: str) -> None:
    began = time.process_time()
    assert one(text).profile["target"] == "a/b"
    assert in_cpu_time(time.process_time() - began, 10)
