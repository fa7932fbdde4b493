"""The action of a trial: prompts come from a file, the answer goes to one, and the task's own result stays short."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.action.trial import ActionModule
from ansible_collections.drafthouse.core.plugins.plugin_utils.following import FollowingAction


def played(
    monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], host: str, **arguments: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The action's result, and what the module was given."""
    given: dict[str, Any] = {}

    def follow(self: Any, variables: dict[str, Any]) -> dict[str, Any]:
        given.update(self._task.args)
        return result

    monkeypatch.setattr(FollowingAction, "answer", follow)
    action = ActionModule.__new__(ActionModule)
    action._task = SimpleNamespace(args=arguments)
    return action.answer({"inventory_hostname": host}), given


def test_prompts_with_braces_come_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = [{"prompt_id": "a", "messages": [{"role": "user", "content": "Explain {{ name }} and {% if %} in Jinja."}]}]
    (tmp_path / "task.json").write_text(json.dumps({"asks": asks, "seed": 3}))
    trial = {"status": "ok", "asked": 1, "tpot_ms": {"a": 12.5}}
    result, given = played(
        monkeypatch, {"changed": False, "trial": trial}, "box 1/x", arm="speculative",
        task=str(tmp_path / "task.json"), answers=str(tmp_path / "answers"),
    )  # fmt: skip
    assert given == {"arm": "speculative", "asks": asks, "seed": 3}
    (answer,) = (tmp_path / "answers").iterdir()
    assert answer.name == "box-1-x.json"
    assert json.loads(answer.read_text()) == trial
    assert result["trial"] == {"status": "ok", "asked": 1}


def test_a_failure_leaves_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"failed": True, "problems": [{"found": "it died"}]}
    result, _ = played(monkeypatch, failed, "box", arm="baseline", answers=str(tmp_path / "answers"))
    assert result == failed
    assert not (tmp_path / "answers").exists()
