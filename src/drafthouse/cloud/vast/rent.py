"""Rent the cheapest boxes that fit, one or several at once, and leave nothing billing when that does not work.

The order is what makes it safe: the SSH key is in the account before anything is rented; the ledger has each label on
disk before its request; whatever goes wrong after it, Ctrl-C included, the instance is looked for by number or label
and ended; and where even that fails, what still bills is said together with the command that ends it. Each box watches
its deadline from its first second (body.py), whatever becomes of this machine.

All boxes are asked for first and then waited for side by side, in one thread: a death between any two steps leaves what
the ledger says. One that does not come is replaced by the next offer within the ceilings. An interruption ends all that
this run rented; a box that fails, only itself, unless all were wanted or none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.format import count
from ...profiles.resolved_types import ResolvedProfile
from .account import compared
from .attempt import Attempt, NotThisOne, Rented, Waits, World
from .destroy import StillBilling, end, end_copies
from .fleet import Fleet, incomplete, planned, question, summary
from .ledger import NotWritten
from .offers import Choice, Limits, choices, none_fits, query_of

# A sum of prices is rounded by the last digit.
_ROUNDING = 1e-9


class LeftBilling(StillBilling):
    """What was rented is left as it is: whoever runs this wanted it so, for the second time."""


@dataclass(frozen=True)
class Outcome:
    """The boxes that run, and what to say where they are fewer than were asked for."""

    boxes: list[Rented]
    short: DrafthouseError | None = None


def rent(
    world: World,
    resolved: ResolvedProfile,
    limits: Limits,
    public_key: str,
    waits: Waits | None = None,
    fleet: Fleet | None = None,
) -> Outcome | None:
    """Rent boxes for ``resolved`` and wait until they run: one unless ``fleet`` says more; None where the answer is no.

    Raises DrafthouseError where no offer fits, or none became a box, with what still bills if anything does.
    """
    fleet = fleet or Fleet()
    pool = offered(world, resolved, limits, fleet)
    world.tell(summary(pool, resolved, limits, fleet))
    tell_of_account(world)
    if not world.ask(question(pool, limits, fleet)):
        return None
    world.client.add_ssh_key(public_key)
    return _Renting(world, resolved, limits, public_key, waits or Waits(), fleet, pool).run()


def offered(world: World, resolved: ResolvedProfile, limits: Limits, fleet: Fleet) -> list[Choice]:
    """The offers to rent, and those behind them; DrafthouseError where they are not enough."""
    offers = world.client.offers(query_of(resolved, limits))
    found = choices(offers, resolved, limits)
    if not found:
        raise none_fits(offers, resolved, limits)
    return planned(found, fleet)


def tell_of_account(world: World) -> None:
    """Say what bills already and is not in the ledger, or not in the list: another box beside it costs twice."""
    try:
        for problem in compared(world.client, world.ledger).billing:
            world.tell(f"{problem.found}; {problem.do}")
    except DrafthouseError as error:
        world.tell(f"cannot tell what is already billing: {error.problems[0].found}")


class _Renting:
    """The boxes of one run, from the first request until all run or no more can be had."""

    def __init__(
        self,
        world: World,
        resolved: ResolvedProfile,
        limits: Limits,
        public_key: str,
        waits: Waits,
        fleet: Fleet,
        pool: Sequence[Choice],
    ) -> None:
        self.world, self.resolved, self.limits, self.waits, self.fleet = world, resolved, limits, waits, fleet
        self.public_key = public_key
        self.pool = list(pool)
        self.live: list[Attempt] = []
        self.why: list[str] = []
        self.failed: list[DrafthouseError] = []

    def run(self) -> Outcome:
        try:
            while True:
                self._ask_for_more()
                waiting = [one for one in self.live if one.box is None]
                in_vain = self.fleet.all_or_nothing and len(self.live) < self.fleet.boxes
                if in_vain or not waiting:
                    return self._over()
                self._look(waiting)
        except LeftBilling:
            raise
        except BaseException as error:
            self._end(self._may_exist(), error)
            raise

    def _may_exist(self) -> list[Attempt]:
        return [one for one in self.live if one.may_exist]

    def _boxes(self) -> list[Rented]:
        """What runs."""
        return [one.box for one in self.live if one.box is not None]

    def _ask_for_more(self) -> None:
        """Ask for boxes until there are enough, or no offer is left that may be taken."""
        while len(self.live) < self.fleet.boxes and not self.failed:
            if len(self.why) >= self.waits.tries * self.fleet.boxes:
                return
            room = self._room(None)
            choice = next((one for one in self.pool if one.price.hour <= room), None)
            if choice is None:
                return
            self.pool.remove(choice)
            one = Attempt(self.world, self.resolved, self.limits, self.public_key, self.waits, choice, self._room)
            self.live.append(one)
            try:
                one.request()
            except (NotThisOne, DrafthouseError) as error:
                self._drop(one, error)

    def _room(self, but: Attempt | None) -> float:
        """What one more box may cost beside those that are there; $ an hour."""
        return self.fleet.max_total - math.fsum(one.price.hour for one in self.live if one is not but) + _ROUNDING

    def _look(self, waiting: Sequence[Attempt]) -> None:
        """Look at each that does not run yet, then wait for a moment."""
        states = []
        for one in waiting:
            try:
                words = one.look()
            except (NotThisOne, DrafthouseError) as error:
                self._drop(one, error)
                continue
            if one.box is None:
                states.append(words)
            elif self.fleet.boxes > 1:
                self.world.tell(f"instance {one.box.instance} runs")
        if states:
            if self.fleet.boxes > 1:
                states.insert(0, f"{len(self._boxes())} of {self.fleet.boxes} run")
            self.world.passing("; ".join(states))
            self.world.sleep(min(one.pause_s for one in waiting))

    def _drop(self, one: Attempt, error: NotThisOne | DrafthouseError) -> None:
        """End what an attempt may have made; the next offer may take its place after NotThisOne alone."""
        if one.may_exist:
            try:
                self._end([one], error)
            except LeftBilling:
                raise
            except DrafthouseError as failed:
                error = failed
        self.live.remove(one)
        if isinstance(error, NotThisOne):
            self.why.append(f"{one.choice.number}: {error}")
            self.world.tell(f"offer {one.choice.number}: {error}; it is not billing")
        else:
            self.failed.append(error)
            if self.live:
                self.world.tell(f"offer {one.choice.number}: {error.problems[0].found}; no more boxes are requested")

    def _over(self) -> Outcome:
        """What runs; DrafthouseError where nothing does, or all were wanted."""
        fleet, boxes = self.fleet, self._boxes()
        copies = self._end_copies()
        if len(boxes) == fleet.boxes and not copies:
            return Outcome(boxes)
        if len(boxes) == fleet.boxes:
            return Outcome(boxes, StillBilling(copies))
        short = self._short(boxes)
        if fleet.all_or_nothing or not boxes:
            live, self.live = self.live, []
            if live:
                self._end(live, short)
            raise short
        return Outcome(boxes, short)

    def _end_copies(self) -> list[Problem]:
        """End second instances of our labels; return what of them may still bill."""
        world = self.world
        try:
            ids = {one.id for one in self.live}
            return end_copies(world.client, world.ledger, ids, world.tell, world.sleep)
        except DrafthouseError as error:
            world.tell(f"cannot tell whether anything else bills: {error.problems[0].found}")
            return []

    def _short(self, boxes: Sequence[Rented]) -> DrafthouseError:
        """Why there are fewer boxes than were asked for."""
        problems: list[Problem] = []
        for error in self.failed:
            problems += error.problems
        problems = list(dict.fromkeys(problems))
        kind = next((type(one) for one in self.failed if isinstance(one, StillBilling)), None)
        if self.fleet.boxes > 1 and (boxes or self.fleet.all_or_nothing):
            ran = [f"{one.instance} (${one.price.hour:.3f} an hour)" for one in boxes]
            problems = [*incomplete(self.fleet, ran, self.why).problems, *problems]
            return (kind or DrafthouseError)(problems)
        if len(self.failed) == 1:
            return self.failed[0]
        if self.failed:
            return (kind or type(self.failed[0]))(problems)
        return one_problem(
            "no-offer-started",
            f"{count(len(self.why), 'offer')} tried, none of which started ({'; '.join(self.why)})",
            "a running box",
            "run it again later: other machines may be on offer",
            "vast.ai",
        )

    def _end(self, meant: Sequence[Attempt], error: BaseException) -> None:
        """End whatever their requests made; DrafthouseError with what still bills where that fails.

        A Ctrl-C that comes while they are ended does not keep them from being ended; the next one does.
        """
        stopped: KeyboardInterrupt | None = None
        while meant:
            try:
                if stopped is not None:
                    self.world.tell("ending it; another Ctrl-C leaves it as it is, billing")
                self._ended(meant, error)
                break
            except KeyboardInterrupt as again:
                if stopped is not None:
                    left = self._may_exist() or meant
                    raise LeftBilling([*_problems(error), *(one.may_bill(again) for one in left)]) from error
                stopped = again
        if stopped is not None and not isinstance(error, KeyboardInterrupt):
            raise stopped

    def _ended(self, meant: Sequence[Attempt], error: BaseException) -> None:
        world, why = self.world, type(error).__name__
        if isinstance(error, NotThisOne):
            why = str(error)
        elif isinstance(error, DrafthouseError):
            why = error.problems[0].found
        shown = why.splitlines()[0] if why else "stopped"
        # What was still on its way a moment ago may appear for as long from now on.
        late = max((world.clock() - one.begun for one in meant if one.on_its_way), default=0.0)
        try:
            world.tell(f"ending what was rented: {shown}")
            end(
                world.client,
                world.ledger,
                only={one.id for one in meant},
                why=why[:200],
                tell=world.tell,
                clock=world.clock,
                sleep=world.sleep,
                settle_s=self.waits.look_s + late,
            )
        except StillBilling as failed:
            raise StillBilling([*_problems(error), *failed.problems]) from error
        except NotWritten as failed:
            raise NotWritten([*_problems(error), *failed.problems]) from error
        except Exception as failed:
            left = [one.may_bill(failed) for one in meant]
            raise StillBilling([*_problems(error), *_problems(failed), *left]) from error


def _problems(error: BaseException) -> list[Problem]:
    if not isinstance(error, DrafthouseError):
        return []
    return error.problems
