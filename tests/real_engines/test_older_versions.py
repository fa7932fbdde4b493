"""What older versions of vLLM let pass without a word, and check_commands.py does not."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import check_home

pytestmark = pytest.mark.soak

HERE = Path(__file__).resolve().parent
LLAMA = json.loads((HERE / "model_configs" / "Meta-Llama-3-8B-Instruct.json").read_text("utf-8"))


def said(version: str, *commands: tuple[str, ...], environment: dict[str, str] | None = None) -> list[str]:
    """What is said of `vllm serve` with each command's words, all asked of one process."""
    given = [
        {"name": str(number), "argv": ["vllm", "serve", "/m/target", "--max-model-len", "512", *words]}
        | {"model_configs": {"/m/target": LLAMA}, "environment": environment or {}}
        for number, words in enumerate(commands)
    ]
    words = [str(check_home(version) / "bin" / "python"), str(HERE / "check_commands.py")]
    done = subprocess.run(words, input=json.dumps(given), capture_output=True, text=True, timeout=1800, check=False)
    verdicts: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(verdicts) == len(commands), done.stderr[-2000:]
    return [item["engine_config"] if item["parser"] == "ok" else item["parser"] for item in verdicts]


def speculation(**settings: object) -> tuple[str, str]:
    return "--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 3, **settings})


def test_settings_that_0_15_ignores_are_told() -> None:
    right, misspelt, newer, parser = said(
        "0.15.1",
        speculation(prompt_lookup_max=4),
        speculation(prompt_lookup_maximum=4),
        speculation(num_speculative_tokens_per_batch_size=[[1, 8, 3]]),
        ("--reasoning-parser", "GptOss"),
    )
    assert right == "ok"
    assert "ignores without a word: prompt_lookup_maximum" in misspelt
    assert "ignores without a word: num_speculative_tokens_per_batch_size" in newer
    assert "invalid reasoning parser: GptOss" in parser


@pytest.mark.parametrize(("engine", "expected"), [(None, "ok"), ("1", "VLLM_USE_V1=1 is not supported")])
def test_one_command_does_not_choose_the_engine_of_the_next(engine: str | None, expected: str) -> None:
    # 0.9.2 takes V1 for the first and notes it in its environment; a draft model needs V0.
    draft = ("--speculative-config", json.dumps({"model": "/m/target", "num_speculative_tokens": 3}))
    plain, with_draft = said("0.9.2", (), draft, environment={"VLLM_USE_V1": engine} if engine else None)
    assert (plain, expected in with_draft) == ("ok", True)
