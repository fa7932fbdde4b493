"""What a rolling change does to the boxes of a fleet: playbooks, shown as they go, and the reports that they leave."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from ..addons.fleet.replica import IS_DRAINED, READY
from ..core.errors import one_problem
from ..core.files import object_in
from ..core.plain_text import printable
from ..operate.roll.judge import Judged, judge
from ..operate.roll.reports import Reports, Shelf, read, reports_of, shelf_of
from ..operate.roll.steps import Box, State, Word
from ..profiles.workspace import ROOT
from .playbooks import Variables, command, inventory_path, play
from .profile_arguments import overrides

#: The reason in a box's mark: what else is drained somebody has drained on purpose.
WHY = "drafthouse fleet upgrade"
_LOOK_EVERY_S = 5.0


class Seen(TypedDict):
    """A box as `drafthouse.core.roll_state` found it; ``same``: it serves the release that is rolled out.

    ``key``: of that release's results on the box; ``keys``: of what served there, the newest first.
    """

    state: str
    why: str
    same: bool
    key: str
    keys: list[str]


def hosts_of(inventory: str) -> dict[str, str]:
    """Return the profile of each box of an inventory, in its order; '' where the inventory names none.

    Raises DrafthouseError where the inventory cannot be read, or has no box.
    """
    path = str(inventory_path(inventory))
    words = [["ansible-inventory", "--list", "-i", path], ["ansible", "all", "--list-hosts", "-i", path]]
    listed, named = (subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=False) for each in words)
    names = [line.strip() for line in named.stdout.splitlines()[1:] if line.strip()]
    if listed.returncode or named.returncode or not names:
        found = printable((listed.stderr or named.stderr).strip()) or "an inventory without hosts"
        raise one_problem("no-host", found, "at least one box", "correct the inventory", path)
    variables: Mapping[str, Mapping[str, object]] = json.loads(listed.stdout)["_meta"]["hostvars"]
    return {name: str(variables.get(name, {}).get("profile") or "") for name in names}


class Boxes:
    """The boxes of a fleet as `roll` wants them.

    ``changed`` are those that the roll is about, in order; ``others`` are of another profile.
    """

    def __init__(self, given: argparse.Namespace, changed: Sequence[str], others: Sequence[str]) -> None:
        self.what = f"{given.profile} with {given.version}" if given.version else f"{given.profile} as it is now"
        self._given, self._changed, self._others = given, changed, others
        self.touched = False  # whether this roll has changed a box
        self._measured: set[str] = set()
        self._seen: dict[str, Seen] = {}
        self._shelf: Shelf = {}
        # What the new release is, in the same words to every playbook: they give its results their key.
        self._release: Variables = {"profile": given.profile, "overrides": overrides(given.set)}
        if given.version:
            self._release["engine_version"] = given.version
        if given.reports != ROOT / "reports":
            self._release["report_folder"] = str(given.reports.resolve())

    # --- what they are ------------------------------------------------------------------------------

    def look(self) -> list[Box]:
        """Return every box as it is now. Raises DrafthouseError where none could be looked at."""
        self._seen = self._looked(self._changed, self._release)
        if self._others:
            self._seen |= self._looked(self._others, {})
        self._shelf = shelf_of(self._given.reports, self._given.profile)
        rolled = [Box(name, _state(seen := self._seen[name]), seen["same"], self._word(name)) for name in self._changed]
        return [*rolled, *(Box(name, _state(self._seen[name]), rolled=False) for name in self._others)]

    def _word(self, box: str) -> Word | None:
        """Return what is known of the new release there; a box that serves it in traffic was judged for that."""
        judged = self.judged(box) if not self._in_traffic(box) else None
        return judged.word if judged else Word.FINE if self._in_traffic(box) and self._new(box) else None

    def _in_traffic(self, box: str) -> bool:
        return self._seen[box]["same"] and self._seen[box]["state"] == READY

    def _looked(self, hosts: Sequence[str], release: Variables) -> dict[str, Seen]:
        with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
            file = Path(folder) / "seen.json"
            variables: Variables = {**release, "roll_file": str(file)}
            line = command(["playbooks/fleet_roll.yml"], self._given.inventory, variables, self._words(*hosts))
            done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            seen: dict[str, Seen] = object_in(file)
        if missing := [host for host in hosts if host not in seen]:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            found = f"no state of {', '.join(missing)}: {printable(said[-1]) if said else 'no output'}"
            do = "drafthouse fleet status shows more"
            raise one_problem("no-such-host", found, "boxes that can be reached", do, self._given.inventory)
        return seen

    def judged(self, box: str) -> Judged | None:
        """Return the judgement of the new release on a box, None where it was not measured (--again: in this run)."""
        new, before = self._new(box), self._reports(box).before
        if new is None:
            return None
        others = [(self._reports(peer), self._seen[peer]["same"]) for peer in self._changed if peer != box]
        last = [reports.new if same and reports.new else reports.before for reports, same in others]
        peers = [read(folder) for folder in last if folder]
        return judge(read(new), read(before) if before else None, peers, self._given.regression, self._given.behind)

    def _new(self, box: str) -> Path | None:
        """Return the report of the new release on a box; with --again one that this run has made."""
        return self._reports(box).new if not self._given.again or box in self._measured else None

    def comparable(self, box: str) -> bool:
        """Tell whether the box has a report of what it serves."""
        return self._reports(box).before is not None

    def _reports(self, box: str) -> Reports:
        seen = self._seen[box]
        return reports_of(self._shelf, box, seen["key"], seen["keys"])

    # --- what is done to them -----------------------------------------------------------------------

    def drain(self, box: str) -> bool:
        """Have a box take no more requests, and wait for those that run."""
        return self._marked(box, "drained")

    def put_back(self, box: str) -> bool:
        """Have a box take requests again."""
        return self._marked(box, "undrained")

    def change(self, box: str) -> bool:
        """Serve the new release on a box, and measure it."""
        again: Variables = {"remeasure": True} if self._given.again else {}
        before = self._reports(box).new
        # The front keeps what it has: the box is drained, and comes back at the same address.
        well = self._played("site.yml", box, {**self._release, **again}, "--skip-tags", "fleet")
        self._shelf = shelf_of(self._given.reports, self._given.profile)
        self._measured |= {box} if well or self._reports(box).new != before else set()
        self.touched = True
        return well

    def back(self, box: str) -> bool:
        """Serve the release before on a box."""
        variables: Variables = {"profile": self._given.profile, "rollback_why": f"{WHY}: refused"}
        return self._played("playbooks/rollback.yml", box, variables)

    def wait(self) -> None:
        """Let a moment pass."""
        time.sleep(_LOOK_EVERY_S)

    def _marked(self, box: str, state: str) -> bool:
        variables: Variables = {"replica": box, "fleet_state": state, "drain_why": WHY}
        if box in self._changed:
            variables["profile"] = self._given.profile
        return self._played("playbooks/fleet_drain.yml", box, variables)

    def tell_front(self) -> bool:
        """Have the front and its monitoring know what its replicas are by now."""
        words = [*self._words(*self._changed), "--tags", "fleet"]
        return play(["site.yml"], self._given.inventory, self._release, words) == 0

    def _played(self, playbook: str, box: str, variables: Variables, *more: str) -> bool:
        return play([playbook], self._given.inventory, variables, [*self._words(box), *more]) == 0

    def _words(self, *hosts: str) -> list[str]:
        """Return what a person adds to every playbook, and behind it the boxes that it is about."""
        return [*self._given.words, "--limit", ",".join(hosts)]


def _state(seen: Seen) -> State:
    if seen["state"] == READY:
        return State.READY
    return State.OURS if (seen["state"], seen["why"]) == (IS_DRAINED, WHY) else State.OUT
