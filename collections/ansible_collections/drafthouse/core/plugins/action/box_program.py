"""Put a program of ours on a box together with those of our modules that it imports, and theirs."""

from __future__ import annotations

from ansible.plugins.action import ActionBase

from ..module_utils.core.source_closure import folders_of, needed_by
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(ActionBase):
    """`drafthouse.core.box_program`: ``modules`` (`serving.restore`) go into the package (folder) ``package``.

    ``entries`` are further folders and files, as `drafthouse.core.laid_out` takes them; it returns what that says.
    """

    _supports_check_mode = True
    _VALID_ARGS = frozenset({"package", "modules", "entries"})

    def run(self, tmp: str | None = None, task_vars: TaskVars | None = None) -> Answer:
        """Lay it all out in one go."""
        super().run(tmp, task_vars)
        package = self._task.args["package"]
        texts = needed_by(self._task.args["modules"])
        entries = [
            {"path": package, "mode": "0755"},
            *({"path": f"{package}/{name}", "mode": "0755"} for name in folders_of(texts)),
            *({"path": f"{package}/{name}", "mode": "0644", "content": text} for name, text in texts.items()),
            *self._task.args.get("entries", []),
        ]
        answer: Answer = self._execute_module(
            module_name="drafthouse.core.laid_out", module_args={"entries": entries}, task_vars=task_vars or {}
        )
        return answer
