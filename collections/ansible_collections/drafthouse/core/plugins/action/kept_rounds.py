"""Gather how far an experiment is: whether its rounds are all measured and judged, and which steps are missing."""

from __future__ import annotations

import shlex

from ..module_utils.experiment.kept_rounds import FILE, note_of, progress_of
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.kept_rounds`: ``resolved`` is the profile with its run.

    Returns ``over`` (the experiment ended and nothing is missing), ``last``, the last round that is to be measured now,
    and ``steps``, those up to that round that are missing.
    """

    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """Look by a shell on the box, which costs a tenth of a module. Where it is a terminal's, `ls` has columns."""
        resolved = self._task.args["resolved"]
        kept = f"cd {shlex.quote(resolved['result_dir'])} && {{ ls -1 *.json steps/*.json; echo; cat {FILE}; }}"
        said = self._low_level_execute_command(f"{{ {kept}; }} 2>/dev/null").get("stdout") or ""
        names, _, note = str(said).replace("\r\n", "\n").partition("\n\n")
        return {"changed": False, **progress_of(resolved, names.split(), note_of(note))}
