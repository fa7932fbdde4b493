"""Rent the cheapest suitable boxes (machines of vast.ai), and leave no instance billing if that fails.

The order of the steps makes this safe. The SSH key is in the account before anything is rented. The ledger has each
label on disk before the create request. After any failure, Ctrl-C included, the instance is found by its number or
label and destroyed; if that fails too, the error names what still bills and the command that ends it. Each box watches
its own deadline from its start (body.py).

All boxes are requested first; then one thread waits for all of them. A box that does not start is destroyed and
replaced by the next offer within the price caps. An interruption destroys all boxes of this run; so does a missing box
if the fleet is `all_or_nothing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.format import count
from ...profiles.resolved_types import ResolvedProfile
from .account import compare_with_account
from .attempt import Attempt, NotThisOne, Rented, RentSetup, Waits
from .destroy import StillBilling, end_duplicates, end_rentals
from .fleet import Fleet, confirmation, incomplete_fleet, plan_fleet, summary
from .ledger import NotWritten
from .offers import Choice, Limits, no_offer_fits, query_of, suitable_offers

# Tolerance for the rounding of a sum of prices, in $ per hour.
_ROUNDING = 1e-9


class LeftBilling(StillBilling):
    """The user pressed Ctrl-C again while the instances were being destroyed, so they are left as they are."""


@dataclass(frozen=True)
class Outcome:
    """The running boxes of a run."""

    boxes: list[Rented]
    short: DrafthouseError | None = None  # to report: fewer boxes than requested, or something else that still bills


def rent(
    setup: RentSetup,
    resolved: ResolvedProfile,
    limits: Limits,
    public_key: str,
    waits: Waits | None = None,
    fleet: Fleet | None = None,
) -> Outcome | None:
    """Rent the boxes of ``fleet`` (default: one) and wait until they run; None if the user does not confirm.

    ``public_key``: the user's SSH key, for the account and the boxes. Raises DrafthouseError if no offer is suitable or
    no box started; its problems name what still bills.
    """
    fleet = fleet or Fleet()
    candidates = offers_to_rent(setup, resolved, limits, fleet)
    setup.tell(summary(candidates, resolved, limits, fleet))
    tell_of_account(setup)
    if not setup.ask(confirmation(candidates, limits, fleet)):
        return None
    setup.client.add_ssh_key(public_key)
    renting = _Renting(
        setup=setup, resolved=resolved, limits=limits, public_key=public_key, waits=waits or Waits(), fleet=fleet,
        candidates=candidates,
    )  # fmt: skip
    return renting.run()


def offers_to_rent(setup: RentSetup, resolved: ResolvedProfile, limits: Limits, fleet: Fleet) -> list[Choice]:
    """Offers to rent, followed by spare ones. Raises DrafthouseError if there are too few."""
    offers = setup.client.offers(query_of(resolved, limits))
    fitting = suitable_offers(offers, resolved, limits)
    if not fitting:
        raise no_offer_fits(offers, resolved, limits)
    return plan_fleet(fitting, fleet)


def tell_of_account(setup: RentSetup) -> None:
    """Tell the user what already bills unexpectedly, before another box adds to the cost."""
    try:
        for problem in compare_with_account(setup.client, setup.ledger).billing:
            setup.tell(f"{problem.found}; {problem.do}")
    except DrafthouseError as error:
        setup.tell(f"cannot tell what is already billing: {error.problems[0].found}")


class _Renting:
    """Attempts of one run, from the first request until all boxes run or no further offer can be rented."""

    def __init__(
        self,
        setup: RentSetup,
        resolved: ResolvedProfile,
        limits: Limits,
        public_key: str,
        waits: Waits,
        fleet: Fleet,
        candidates: Sequence[Choice],
    ) -> None:
        self.setup = setup
        self.resolved = resolved
        self.limits = limits
        self.waits = waits
        self.fleet = fleet
        self.public_key = public_key
        self.candidates = list(candidates)  # offers that were not tried yet, the cheapest first
        self.live: list[Attempt] = []  # those that wait or run
        self.rejections: list[str] = []  # why offers did not become boxes (NotThisOne); the next offer is tried
        self.errors: list[DrafthouseError] = []  # all other errors; no further boxes are requested after one

    def run(self) -> Outcome:
        """Request and check in turns. Any error, Ctrl-C included, destroys what may exist before it is raised."""
        try:
            while True:
                self._request_boxes()
                waiting = [attempt for attempt in self.live if attempt.box is None]
                is_hopeless = self.fleet.all_or_nothing and len(self.live) < self.fleet.boxes
                if is_hopeless or not waiting:
                    return self._outcome()
                self._check(waiting)
        except LeftBilling:
            raise
        except BaseException as error:
            self._end_attempts(self._may_exist(), error)
            raise

    def _may_exist(self) -> list[Attempt]:
        return [attempt for attempt in self.live if attempt.may_exist]

    def _running_boxes(self) -> list[Rented]:
        return [attempt.box for attempt in self.live if attempt.box is not None]

    def _request_boxes(self) -> None:
        """Request boxes until there are enough, the tries are used up, or no offer is left within the price caps."""
        while len(self.live) < self.fleet.boxes and not self.errors:
            if len(self.rejections) >= self.waits.tries * self.fleet.boxes:
                return
            budget = self._budget(None)
            choice = next((offer for offer in self.candidates if offer.price.hour <= budget), None)
            if choice is None:
                return
            self.candidates.remove(choice)
            attempt = Attempt(
                setup=self.setup, resolved=self.resolved, limits=self.limits, public_key=self.public_key,
                waits=self.waits, choice=choice, budget=self._budget,
            )  # fmt: skip
            self.live.append(attempt)
            try:
                attempt.request()
            except (NotThisOne, DrafthouseError) as error:
                self._drop(attempt, error)

    def _budget(self, box: Attempt | None) -> float:
        """Price in $ per hour that the total cap leaves for ``box``, or for one more box if that is None."""
        return self.fleet.max_total - math.fsum(other.price.hour for other in self.live if other is not box) + _ROUNDING

    def _check(self, waiting: Sequence[Attempt]) -> None:
        """Check each waiting attempt once, show the states, then sleep."""
        states = []
        for attempt in waiting:
            try:
                state = attempt.check()
            except (NotThisOne, DrafthouseError) as error:
                self._drop(attempt, error)
                continue
            if attempt.box is None:
                states.append(state)
            elif self.fleet.boxes > 1:
                self.setup.tell(f"instance {attempt.box.instance} runs")
        if states:
            if self.fleet.boxes > 1:
                states.insert(0, f"{len(self._running_boxes())} of {self.fleet.boxes} run")
            self.setup.show_progress("; ".join(states))
            self.setup.sleep(min(attempt.pause_s for attempt in waiting))

    def _drop(self, failed: Attempt, error: NotThisOne | DrafthouseError) -> None:
        """Destroy what a failed attempt may have rented. Another offer is tried only after NotThisOne.

        If it cannot be destroyed, that error counts instead of the attempt's own.
        """
        if failed.may_exist:
            try:
                self._end_attempts([failed], error)
            except LeftBilling:
                raise
            except DrafthouseError as end_error:
                error = end_error
        self.live.remove(failed)
        if isinstance(error, NotThisOne):
            self.rejections.append(f"{failed.choice.number}: {error}")
            self.setup.tell(f"offer {failed.choice.number}: {error}; it is not billing")
        else:
            self.errors.append(error)
            if self.live:
                self.setup.tell(f"offer {failed.choice.number}: {error.problems[0].found}; no more boxes are requested")

    def _outcome(self) -> Outcome:
        """Outcome of the run. Raises DrafthouseError if no box runs, or one is missing and all are required."""
        fleet = self.fleet
        boxes = self._running_boxes()
        duplicates = self._end_duplicates()
        if len(boxes) == fleet.boxes and not duplicates:
            return Outcome(boxes)
        if len(boxes) == fleet.boxes:
            return Outcome(boxes, StillBilling(duplicates))
        short = self._shortage(boxes)
        if fleet.all_or_nothing or not boxes:
            live = self.live
            self.live = []  # so that `run` does not end them again after the error below
            if live:
                self._end_attempts(live, short)
            raise short
        return Outcome(boxes, short)

    def _end_duplicates(self) -> list[Problem]:
        """Destroy further instances with the labels of this run; return problems for those that may still bill."""
        setup = self.setup
        try:
            ids = {attempt.id for attempt in self.live}
            return end_duplicates(setup.client, setup.ledger, ids, setup.tell, setup.sleep)
        except DrafthouseError as error:
            setup.tell(f"cannot tell whether anything else bills: {error.problems[0].found}")
            return []

    def _shortage(self, boxes: Sequence[Rented]) -> DrafthouseError:
        """Error that explains why fewer boxes run than requested.

        For a fleet of which some boxes run, or that is `all_or_nothing`, the numbers come first. Else it is the only
        error, all errors in one, or (without any) that no offer became a box.
        """
        problems: list[Problem] = []
        for error in self.errors:
            problems += error.problems
        problems = list(dict.fromkeys(problems))
        # An error about what still bills keeps its class, whatever else went wrong.
        kind = next((type(error) for error in self.errors if isinstance(error, StillBilling)), None)
        if self.fleet.boxes > 1 and (boxes or self.fleet.all_or_nothing):
            ran = [f"{box.instance} (${box.price.hour:.3f} an hour)" for box in boxes]
            problems = [*incomplete_fleet(self.fleet, ran, self.rejections).problems, *problems]
            return (kind or DrafthouseError)(problems)
        if len(self.errors) == 1:
            return self.errors[0]
        if self.errors:
            return (kind or type(self.errors[0]))(problems)
        return one_problem(
            "no-offer-started",
            f"{count(len(self.rejections), 'offer')} tried, none of which started ({'; '.join(self.rejections)})",
            "a running box",
            "run it again later: other machines may be on offer",
            "vast.ai",
        )

    def _end_attempts(self, attempts: Sequence[Attempt], error: BaseException) -> None:
        """Destroy the instances of the attempts. Raises DrafthouseError with what still bills if that fails.

        The first Ctrl-C during this is delayed until they are destroyed; the second one raises LeftBilling.
        """
        interruption: KeyboardInterrupt | None = None
        while attempts:
            try:
                if interruption is not None:
                    self.setup.tell("ending it; another Ctrl-C leaves it as it is, billing")
                self._destroy(attempts, error)
                break
            except KeyboardInterrupt as ctrl_c:
                if interruption is not None:
                    left = self._may_exist() or attempts
                    raise LeftBilling([*_problems(error), *(attempt.may_bill(ctrl_c) for attempt in left)]) from error
                interruption = ctrl_c
        if interruption is not None and not isinstance(error, KeyboardInterrupt):
            raise interruption

    def _destroy(self, attempts: Sequence[Attempt], error: BaseException) -> None:
        """Destroy the instances of the attempts; ``error`` is the reason, and comes first in an error about the rest.

        Raises StillBilling, or NotWritten if only the ledger fails.
        """
        setup = self.setup
        why = type(error).__name__
        if isinstance(error, NotThisOne):
            why = str(error)
        elif isinstance(error, DrafthouseError):
            why = error.problems[0].found
        shown = why.splitlines()[0] if why else "stopped"
        # A request that was interrupted may still create an instance, which is listed later: wait longer for it.
        open_s = max((setup.clock() - attempt.begun for attempt in attempts if attempt.is_request_open), default=0.0)
        try:
            setup.tell(f"ending what was rented: {shown}")
            end_rentals(
                setup.client,
                setup.ledger,
                only={attempt.id for attempt in attempts},
                why=why[:200],
                tell=setup.tell,
                clock=setup.clock,
                sleep=setup.sleep,
                settle_s=self.waits.look_s + open_s,
            )
        except StillBilling as failed:
            raise StillBilling([*_problems(error), *failed.problems]) from error
        except NotWritten as failed:
            raise NotWritten([*_problems(error), *failed.problems]) from error
        except Exception as failed:
            left = [attempt.may_bill(failed) for attempt in attempts]
            raise StillBilling([*_problems(error), *_problems(failed), *left]) from error


def _problems(error: BaseException) -> list[Problem]:
    if not isinstance(error, DrafthouseError):
        return []
    return error.problems
