"""Following a job on the box: lines as a terminal sends them, a connection that breaks, a job without a result."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action import python_env, weights
from ansible_collections.drafthouse.core.plugins.plugin_utils import following
from ansible_collections.drafthouse.core.plugins.plugin_utils.following import FollowingAction, lost, told

FILE = b'{"text": "one"}\n{"text": "two"}\n{"text": "three"}\n'


class OverSsh(FollowingAction):
    """Answers as a box does over SSH, after as many failures as it is told to have."""

    def __init__(self, failures: list[Exception] | None = None) -> None:
        self._host = "box"
        self.failures = failures or []
        self.commands: list[str] = []

    def _low_level_execute_command(self, command: str) -> dict[str, Any]:
        self.commands.append(command)
        if self.failures:
            raise self.failures.pop(0)
        begin = int(command.split("+")[1].split(maxsplit=1)[0]) - 1
        return {"stdout": FILE[begin : begin + 20].decode().replace("\n", "\r\n")}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_RECONNECT_EVERY_S", 0.0)


def test_a_terminals_line_ends_do_not_shift_what_is_read_next() -> None:
    box, read, lines = OverSsh(), 0, []
    while text := box._new_text("progress", read):
        read += len(text.encode())
        lines += [json.loads(line)["text"] for line in text.splitlines()]
    assert lines == ["one", "two", "three"]
    assert read == len(FILE)


def test_a_lost_connection_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    box = OverSsh([AnsibleConnectionFailure("lost"), AnsibleConnectionFailure("lost")])
    assert box._new_text("progress", 0) == '{"text": "one"}\n'
    assert len(box.commands) == 3
    assert capsys.readouterr().out.count("box: connection lost; the work continues on the box") == 1


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PATIENCE_S", -1.0)
    with pytest.raises(AnsibleConnectionFailure):
        OverSsh([AnsibleConnectionFailure("lost")] * 3)._new_text("progress", 0)


def test_a_refused_key_is_not_asked_for_again() -> None:
    box = OverSsh([AnsibleAuthenticationFailure("no")])
    with pytest.raises(AnsibleAuthenticationFailure):
        box._new_text("progress", 0)
    assert len(box.commands) == 1


@pytest.mark.parametrize(("words", "found"), [("", "without a result"), ("Killed", "its last words:\nKilled")])
def test_the_wrappers_traceback_is_not_shown(words: str, found: str) -> None:
    left = {"failed": True, "cmd": "AnsiballZ", "data": "", "stderr": words, "msg": "Traceback (most recent ...)"}
    said = told(left)
    assert said["failed"]
    assert found in said["problems"][0]["found"]
    assert "Traceback" not in json.dumps(said)


@pytest.mark.parametrize("result", [{"changed": True}, {"failed": True, "msg": "m", "problems": []}])
def test_a_result_stays_as_it_is(result: dict[str, Any]) -> None:
    assert told(result) == result


def test_a_module_that_raised_is_shown_with_its_reason() -> None:
    """As ansible-core 2.19 leaves it of a job: without it the run would say "Unknown error"."""
    event = {"msg": "[Errno 28] No space left on device: '/r/x.json'", "__ansible_type": "Event"}
    said = told({"failed": True, "exception": {"event": event, "__ansible_type": "ErrorSummary"}})
    assert said["failed"]
    assert said["problems"][0]["found"].endswith("failed on the box: [Errno 28] No space left on device: '/r/x.json'")


class Asked(FollowingAction):
    """Gives the prepared answers, and remembers in which mode each was asked for."""

    module = "some.module"

    class Task:
        check_mode = False

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._task = self.Task()
        self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
        self.answers = list(answers)
        self.modes: list[bool] = []
        self.removed: list[str] = []

    def _execute_module(self, **_: Any) -> dict[str, Any]:
        self._connection._shell.tmpdir = "made for the look"
        self.modes.append(self._task.check_mode)
        return self.answers.pop(0)

    def _remove_tmp_path(self, tmp_path: str, force: bool = False) -> None:
        self.removed.append(tmp_path)


@pytest.mark.parametrize(
    ("answer", "enough"),
    [
        ({"changed": False, "path": "p"}, True),
        ({"changed": True}, False),
        ({"failed": True, "changed": False}, False),  # what fails only in check mode is no reason to stop
        ({"failed": True, "msg": "m"}, False),
    ],
)
def test_a_look_is_enough_only_where_nothing_is_to_be_done(answer: dict[str, Any], enough: bool) -> None:
    action = Asked(answer)
    assert action._unchanged({}, {}) == (answer if enough else None)
    assert action.modes == [True]
    assert action._task.check_mode is False


def test_a_look_leaves_no_arguments_behind() -> None:
    """Where a connection has no pipelining, the module lies in a folder, and with it the token it was given."""
    action = Asked({"changed": True})
    action.look({"token": "secret"}, {})
    assert action.removed == ["made for the look"]


@pytest.mark.processes
def test_a_job_starts_below_a_folder_with_a_space(tmp_path: Path) -> None:
    """Ansible's own line, run by a real shell: its wrapper gets one word, and out of it the module's path."""
    folder = tmp_path / "two words" / "ansible-tmp-1"
    folder.mkdir(parents=True)
    (folder / "async_wrapper.py").write_text("import sys; print(sys.argv[1:])")
    action = FollowingAction.__new__(FollowingAction)
    action.module = "drafthouse.core.weights"
    action._task = SimpleNamespace(async_val=5, environment=None)
    action._templar = SimpleNamespace(template=str)
    action._connection = SimpleNamespace(
        _shell=SimpleNamespace(tmpdir=f"{folder}/"),
    )
    variables = action._found_on_path({"ansible_python_interpreter": f"{tmp_path}/two words/bin/python"})
    assert variables["ansible_python_interpreter"] == "/usr/bin/env python"
    assert action._task.environment[0]["PATH"].startswith(f"{tmp_path}/two words/bin:")
    seen: list[str] = []

    def execute(_self: Any, cmd: str) -> dict[str, Any]:
        seen.append(cmd)
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionBase, "_low_level_execute_command", execute)
        action._low_level_execute_command(
            f"{sys.executable} {folder}/async_wrapper.py j1 5 {folder}/AnsiballZ_weights.py _"
        )
    said = subprocess.run(["/bin/sh", "-c", seen[0]], capture_output=True, text=True, check=True).stdout
    job, limit, module, end = ast.literal_eval(said)
    assert (job, limit, shlex.split(module), end) == ("j1", "5", [f"{folder}/AnsiballZ_weights.py"], "_")


class Weights(weights.ActionModule):
    """The action of weights, whose box answers from a list: looks, a start, and the end of a job."""

    class Task:
        check_mode, async_val = False, 0
        args: dict[str, Any]

    def __init__(self, args: dict[str, Any], looks: list[dict[str, Any]], end: dict[str, Any] | None = None) -> None:
        self._task = self.Task()
        self._task.args = args
        self._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir="already there"))
        self.looks, self.end = looks, end
        self.started: list[dict[str, Any]] = []

    def look(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        assert not {"background", "job"} & set(arguments)
        return self.looks.pop(0)

    def start(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        self.started.append(arguments)
        return {"job": {"name": "j1"}}

    def follow(self, job: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        assert job == {"name": "j1"}
        assert self.end is not None
        return self.end


TO_DO = {"changed": True, "placed": [], "notes": []}
DONE = {"changed": False, "placed": [{"id": "target", "changed": False, "bytes": 7}], "notes": ["second"]}
FETCHED = {"changed": True, "placed": [{"id": "target", "changed": True, "bytes": 7}], "notes": ["first", "second"]}


def test_what_needs_the_engines_environment_does_not_begin() -> None:
    def made(name: str, source: str, recipe: str = "gguf_dequantize") -> Any:
        details = {"from": source, "recipe": recipe}
        return {"id": name, "source": "derived", "details": details}

    hub: Any = {"id": "hub", "source": "hub", "details": {}}
    own: Any = {"id": "own", "source": "path", "details": {}}
    begun = [hub, made("wide", "hub"), made("wider", "wide")]
    late = [own, made("of own", "own"), made("hf", "wide", "gguf_to_hf"), made("of hf", "hf")]
    assert weights.without_engine([*begun, *late]) == begun


def test_a_fetch_begins_and_is_not_waited_for() -> None:
    action = Weights({"items": [], "background": True}, [TO_DO])
    assert action.run() == {"changed": False, "job": {"name": "j1"}}
    assert action.started == [{"items": []}]


@pytest.mark.parametrize("looked", [{"failed": True, "msg": "gated"}, {"changed": False, "placed": [], "notes": []}])
def test_what_cannot_or_need_not_begin_is_said_at_once(looked: dict[str, Any]) -> None:
    action = Weights({"items": [], "background": True}, [looked])
    assert action.run() == looked
    assert action.started == []


def test_what_was_begun_is_seen_through_and_counted() -> None:
    action = Weights({"items": [], "job": {"name": "j1"}}, [DONE], FETCHED)
    result = action.run()
    assert result["changed"]
    assert result["placed"] == FETCHED["placed"]
    assert result["notes"] == ["first", "second"]
    assert action.started == []


def test_what_a_reboot_has_ended_is_begun_again() -> None:
    action = Weights({"items": [], "job": {"name": "j1"}}, [DONE], lost(following._LOST))
    assert action.run() == DONE


def test_a_fetch_that_failed_is_the_failure() -> None:
    failed = {"failed": True, "msg": "wrong bytes"}
    assert Weights({"items": [], "job": {"name": "j1"}}, [DONE], failed).run() == failed


class Environment(python_env.ActionModule):
    """The action of environments; its box answers as it is told."""

    def __init__(self, args: dict[str, Any], looked: dict[str, Any], end: dict[str, Any]) -> None:
        self._task = SimpleNamespace(args=args, check_mode=False)
        self.looked, self.end = looked, end
        self.calls: list[str] = []

    def look(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        assert not {"background", "job"} & set(arguments)
        self.calls.append("look")
        return self.looked

    def start(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("start")
        return {"job": {"name": "j2"}}

    def follow(self, job: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("follow")
        return self.end


FAILED = {"failed": True, "problems": [{"code": "installer-failed"}]}


@pytest.mark.parametrize(
    ("more", "looked", "end", "result", "calls"),
    [
        ({"background": True}, {"changed": True}, {}, {"changed": False, "job": {"name": "j2"}}, ["look", "start"]),
        ({"background": True}, FAILED, {}, FAILED, ["look"]),
        ({"job": {"name": "j1"}}, {}, {"changed": True}, {"changed": True}, ["follow"]),
        ({"job": {"name": "j1"}}, {}, FAILED, FAILED, ["follow"]),
        ({"job": {"name": "j1"}}, {"changed": False}, lost(following._LOST), {"changed": False}, ["follow", "look"]),
    ],
)
def test_an_environment_is_made_beside_others_and_awaited(
    more: dict[str, Any], looked: dict[str, Any], end: dict[str, Any], result: dict[str, Any], calls: list[str]
) -> None:
    """A failure is said where it is known, once: at the start, or where the end is awaited."""
    action = Environment({"path": "/e", **more}, looked, end)
    assert action.answer({}) == result
    assert action.calls == calls
