"""No secret of a paste is printed again, wherever it stands: in values, files, containers and what starts a program."""

from __future__ import annotations

import json

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.secret_shapes import GONE
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.text import as_data, translation_text
from drafthouse.translate.translator import translate

HOUSE, FLAGS = load_house(ROOT), load_flags(ROOT)
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
    (found,), _ = translate(text, HOUSE, FLAGS, lambda name: None)
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
    (found,), _ = translate(text, HOUSE, FLAGS, lambda name: None)
    assert found.profile["serve"]["extra"] == ["--hf-overrides", '{"classifier_from_token": ["no", "yes"]}']
