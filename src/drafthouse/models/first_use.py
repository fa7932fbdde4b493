"""Write catalogue entries for a profile's target and draft that have none, before the profile is resolved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError
from ..core.retry import Patience
from ..profiles.model_names import broken_model, find_model, lacks_entry
from .entry import made_entry
from .heads import verifier_of
from .local_entries import entry_lines, write_entry
from .repository import ModelName, Tell, read_model

if TYPE_CHECKING:
    from drafthouse.models.entry import Facts
    from drafthouse.profiles.catalog import Catalog

#: Error codes after which no entry is added. The resolver then refuses the profile and names the command to run.
_NO_NETWORK = {"hub-unreachable", "weights-not-offline"}
#: Few tries, so that a machine without a network fails soon.
_FEW_TRIES = Patience(tries=2)


def add_missing(
    target: object,
    draft: object,
    catalog: Catalog,
    root: Path,
    tell: Tell,
    *,
    token: str | None,
    endpoint: str | None = None,
) -> None:
    """Write the missing entries of a profile's target and draft below ``root``, and add them to ``catalog``.

    ``catalog`` is the catalogue with all profiles. ``tell`` gets lines for the user on each entry and its assumptions.
    Without a network nothing is added. Raises DrafthouseError if a repository is gated, does not exist or contains no
    model.
    """
    adder = _EntryAdder(catalog, root, tell, token, endpoint)
    try:
        adder.add_if_missing(target, head_for=None)
        adder.add_if_missing(draft, head_for=target)
    except DrafthouseError as error:
        if not all(problem.code in _NO_NETWORK for problem in error.problems):
            raise
        tell(f"not added: {error.problems[0].found}")


class _EntryAdder:
    """Adds entries one after the other, since a head's entry refers to its target's."""

    def __init__(self, catalog: Catalog, root: Path, tell: Tell, token: str | None, endpoint: str | None) -> None:
        self._catalog = catalog
        self._root = root
        self._tell = tell
        self._token = token
        self._endpoint = endpoint

    def add_if_missing(self, word: object, head_for: object) -> None:
        """Add an entry for the model ``word`` if it has none; ``head_for``: target of a head that names none."""
        if not isinstance(word, str) or not lacks_entry(word, self._catalog):
            return
        if word.startswith("/") and not Path(word).exists():
            return  # a folder on the box, which cannot be read from this machine
        models = self._catalog.models
        self._tell(f"{word} has no entry in the catalogue yet: reading its small files")
        name = ModelName.of(word)
        facts = read_model(name, token=self._token, endpoint=self._endpoint, patience=_FEW_TRIES)
        head_target = self._target_of(facts, head_for)
        new_entry = made_entry(facts, models, head_for=head_target)
        taken = new_entry.id in models or broken_model(new_entry.id, self._catalog.broken_models)
        if taken and not name.is_path:  # another commit, or another publisher's model of this name
            new_entry = replace(new_entry, id=f"{new_entry.id}-{facts.commit[:7]}")
        path, _ = write_entry(new_entry, self._catalog, self._root, f"drafthouse model add {word}")
        models[new_entry.id] = new_entry.entry
        for line in entry_lines(new_entry, path, changed=True):
            self._tell(line)

    def _target_of(self, facts: Facts, head_for: object) -> str | None:
        """The target for a head's entry; None if the head's files name a target that has an entry."""
        verifier = verifier_of(facts.config)  # the head's word for its target
        if verifier and find_model(verifier, self._catalog.models) is None and head_for is None:
            self.add_if_missing(verifier, head_for=None)  # the profile's target is a head: its own target is served
        if verifier and find_model(verifier, self._catalog.models):
            return None
        return head_for if isinstance(head_for, str) else None
