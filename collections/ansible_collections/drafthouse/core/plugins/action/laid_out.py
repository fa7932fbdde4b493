"""Write files to the box with the module of the same name, unless the box's facts show that nothing differs."""

from __future__ import annotations

from ..module_utils.core.files import digest_of
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.laid_out`."""

    def answer(self, variables: TaskVars) -> Answer:
        """Result of the module, or of nothing to do: then each entry is a file whose digest the facts have."""
        known = (variables.get("drafthouse_box") or {}).get("digests") or {}
        entries = self._task.args.get("entries") or []
        if known and all("content" in entry and known.get(entry["path"]) == _digest(entry) for entry in entries):
            return {"changed": False, "paths": []}
        return self.run_module(self._task.action, self._task.args, variables)


def _digest(entry: dict[str, str]) -> str:
    """Digest of a file with the entry's mode and content, as the box's facts have it."""
    return digest_of(int(str(entry["mode"]), 8), entry["content"].encode())
