"""Entries for the models of a profile that have none yet, read and written before it is resolved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError
from ..core.retry import Patience
from ..profiles.model_names import broken_model, find_model, lacks_entry
from .entry import made_entry
from .heads import verifier_of
from .local_entries import shown, write_entry
from .repository import Name, Tell, read_model

if TYPE_CHECKING:
    from drafthouse.models.entry import Found
    from drafthouse.profiles.catalog import House

#: Without the hub the resolver refuses such a profile, with the command to run where there is a network.
_NO_NETWORK = {"hub-unreachable", "weights-not-offline"}

#: A machine without a network should say so soon: this is only on the way to something else.
_FEW = Patience(tries=2)


def add_missing(
    target: object,
    draft: object,
    house: House,
    root: Path,
    say: Tell,
    *,
    token: str | None,
    endpoint: str | None = None,
) -> None:
    """Add the entries that a profile's target and draft lack, to ``house`` too.

    ``say`` gets a line for each, and what was assumed. Nothing is added without a network. Raises DrafthouseError
    for a repository that cannot be read for another reason: gated, not there, no model.
    """
    adding = _Adding(house, root, say, token, endpoint)
    try:
        adding.have(target, None)
        adding.have(draft, target)
    except DrafthouseError as error:
        if not all(problem.code in _NO_NETWORK for problem in error.problems):
            raise
        say(f"not added: {error.problems[0].found}")


class _Adding:
    """Adds entries one after the other: a draft's own entry needs its target's."""

    def __init__(self, house: House, root: Path, say: Tell, token: str | None, endpoint: str | None) -> None:
        self._house, self._root, self._say = house, root, say
        self._token, self._endpoint = token, endpoint

    def have(self, word: object, head_for: object) -> None:
        """Add the entry that ``word`` lacks; ``head_for``: the target, where a head's files name none that is known."""
        if not isinstance(word, str) or not lacks_entry(word, self._house):
            return
        if word.startswith("/") and not Path(word).exists():
            return  # a folder of the box
        models = self._house.models
        self._say(f"{word} has no entry in the catalogue yet: reading its small files")
        name = Name.of(word)
        found = read_model(name, token=self._token, endpoint=self._endpoint, patience=_FEW)
        target = self._target_of(found, head_for)
        made = made_entry(found, models, head_for=target)
        taken = made.id in models or broken_model(made.id, self._house.broken_models)
        if taken and not name.is_path:  # another commit, or a namesake of another publisher
            made = replace(made, id=f"{made.id}-{found.commit[:7]}")
        path, _ = write_entry(made, self._house, self._root, f"drafthouse model add {word}")
        models[made.id] = made.entry
        for line in shown(made, path, changed=True):
            self._say(line)

    def _target_of(self, found: Found, head_for: object) -> str | None:
        """The target to write a head's entry for, None where its own files say it."""
        named = verifier_of(found.config)
        if named and find_model(named, self._house.models) is None and head_for is None:
            self.have(named, None)  # a head as the target: what it names is served
        if named and find_model(named, self._house.models):
            return None
        return head_for if isinstance(head_for, str) else None
