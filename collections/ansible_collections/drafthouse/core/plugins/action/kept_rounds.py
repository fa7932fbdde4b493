"""Gather the state of an experiment: whether all of its rounds are measured and judged, and which steps are missing."""

from __future__ import annotations

import shlex

from ..module_utils.experiment.kept_rounds import FILE, note_of, progress_of
from ..plugin_utils.action import Action
from ..plugin_utils.words import Answer, TaskVars


class ActionModule(Action):
    """`drafthouse.core.kept_rounds`: ``resolved`` is the profile with its run.

    Returns ``over`` (True: the experiment has ended and nothing is missing), ``last``, the last round to be measured
    now, and ``steps``, the missing steps up to that round.
    """

    _VALID_ARGS = frozenset({"resolved"})
    _NEEDED = ("resolved",)

    def answer(self, variables: TaskVars) -> Answer:
        """State of the experiment, by a shell on the box, which takes a tenth of a module's time."""
        resolved = self._task.args["resolved"]
        # ls -1, because with a terminal `ls` prints columns.
        look = f"cd {shlex.quote(resolved['result_dir'])} && {{ ls -1 *.json steps/*.json; echo; cat {FILE}; }}"
        output = self._low_level_execute_command(f"{{ {look}; }} 2>/dev/null").get("stdout") or ""
        names, _, note = str(output).replace("\r\n", "\n").partition("\n\n")
        return {"changed": False, **progress_of(resolved, names.split(), note_of(note))}
