"""Show what was served on a box, when, and why it ended."""

from __future__ import annotations

import base64

from ..module_utils.serving.history import events_of
from ..module_utils.serving.history_text import history_text
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.served_history`: ``home`` is our folder on the box.

    Returns ``events``, and their table for the end of the run. A box without a history has served nothing.
    """

    _VALID_ARGS = frozenset({"home"})
    _NEEDED = ("home",)

    def answer(self, variables: TaskVars) -> Answer:
        """The events of the file; a failure if it exists and cannot be read."""
        path = f"{self._task.args['home']}/served/history.jsonl"
        answer = self.run_module("ansible.builtin.slurp", {"src": path}, variables)
        if answer.get("failed") and "not found" not in str(answer.get("msg")):
            return answer
        text = base64.b64decode(answer.get("content") or "").decode("utf-8", "replace")
        lines = events_of(text)
        events = [event for _, event in lines if event is not None]
        shown = history_text(events, [number for number, event in lines if event is None])
        host = str(variables.get("inventory_hostname", ""))
        return {"changed": False, "events": events, "drafthouse_verdict": f"\n{host}\n{shown}"}
