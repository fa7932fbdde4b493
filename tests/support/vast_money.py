"""Whatever happens to three rentals of one to three boxes: what bills is named with a status other than 0, or ended.

A state machine: answers, faults of the API, deaths of the controller between any two steps, clocks that jump, and a
ledger that is damaged, in any order. The account's own state is the truth, and our ledger is not. What is left out, as
nobody could tell: a server that lies the same way in every answer, and a ledger that loses lines in the seconds for
which the list does not show a new instance.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from drafthouse.cli import destroy as destroy_script
from drafthouse.cloud.vast import run_and_destroy as rented_run
from drafthouse.cloud.vast.account import compare_with_account, instances_of
from drafthouse.cloud.vast.attempt import RentSetup, Waits
from drafthouse.cloud.vast.destroy import end_rentals
from drafthouse.cloud.vast.fleet import Fleet
from drafthouse.cloud.vast.ledger import CONSOLE, read
from drafthouse.cloud.vast.offers import Limits
from drafthouse.cloud.vast.rent import rent
from drafthouse.cloud.vast.rows import Instance
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.exit_codes import DONE, FAILED, of_error
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.fakes.vast_in_process import FAULTS, Account, Dead, Trouble
from tests.fakes.vast_market import Life, offer

PROFILE = "h100-llama33-draft3b"
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeyOfTheTests someone@example.com"
WAITS = Waits(boot_s=60, ports_s=10, look_s=45, poll_s=5, tries=2)
RESOLVED = resolved_profile(PROFILE, site_of_inventory("vastai"))
MOST = 3
LIVES: tuple[dict[str, Any], ...] = ({}, {}, {"stuck": True}, {"dies_after": 0}, {"dies_after": 2}, {"direct": False})
HOUR = 3600.0
# What was counted, for the line that a lane ends with.
TALLY: dict[str, int] = {}

deaths = st.one_of(st.none(), st.none(), st.integers(1, 30), st.integers(20, 70))
faults = st.tuples(
    st.sampled_from([(route, kind) for route, kinds in FAULTS.items() for kind in kinds]),
    st.sampled_from((1, 1, 2, 6, 1000)),
)
losses = st.sampled_from((None, None, None, None, "empty", "remove"))
# The two cheapest cost $4.59 an hour, and not every other one takes their places within 5.
fleets = st.builds(
    Fleet,
    boxes=st.sampled_from((1, 1, 2, 3)),
    max_total=st.sampled_from((math.inf, math.inf, 5.0)),
    all_or_nothing=st.booleans(),
)
some_faults = st.one_of(st.none(), faults)
Faults = tuple[tuple[str, str], int] | None


def count(what: str) -> None:
    TALLY[what] = TALLY.get(what, 0) + 1


class Money(RuleBasedStateMachine):
    """Three rentals, and everything that can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self._exit = contextlib.ExitStack()
        self.folder = Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="drafthouse-")))
        self.ledger = self.folder / "ledger.jsonl"
        self.account = Account()
        for number in range(8200004, 8200004 + 3 * MOST):  # machines for all
            self.account.market.offers[number] = offer(number, dph_base=3.0)
        self._exit.enter_context(self.account.installed())
        self.rented = 0
        self.is_clean = True  # nothing was damaged, refused, lost or killed until now
        self.is_damaged = False
        count("histories")

    # --- what a person does --------------------------------------------------------------------------

    @initialize(boxes=st.integers(0, 2))
    def begin(self, boxes: int) -> None:
        for _ in range(boxes):
            self.rent(life={}, late=0, death=None, trouble=None, fleet=Fleet())

    @precondition(lambda self: self.rented < MOST)
    @rule(
        life=st.sampled_from(LIVES),
        late=st.sampled_from((0, 0, 8, 35)),
        death=deaths,
        trouble=some_faults,
        fleet=fleets,
    )
    def rent(self, life: dict[str, Any], late: int, death: int | None, trouble: Faults, fleet: Fleet) -> None:
        self.rented += 1
        self._meets(trouble)
        account = self.account
        account.market.late_s = late
        account.market.lives = [Life(**life), Life()]
        before = account.billing()
        told: list[str] = []
        world = RentSetup(
            account.client(), self.ledger, told.append, ask=lambda question: True, clock=account.clock,
            sleep=account.sleep,
        )  # fmt: skip

        def work() -> int:
            outcome = rent(world, RESOLVED, Limits(9.0, 3.0), PUBLIC, WAITS, fleet)
            assert outcome
            assert math.fsum(box.price.hour for box in outcome.boxes) <= fleet.max_total
            if outcome.short:  # as the command does
                # All run, and a second instance of a label could not be ended; or fewer run, which were enough.
                assert len(outcome.boxes) == fleet.boxes or not fleet.all_or_nothing
                raise outcome.short
            assert len({box.row["machine_id"] for box in outcome.boxes}) == fleet.boxes
            count("boxes")
            return DONE

        done = self._run(work, death)
        count("rentals")
        new = {number: label for number, label in account.billing().items() if number not in before}
        if done is not None and done[0] != DONE:
            self._is_named(new, done[1])
            # Where nothing went wrong but that a box did not come, it is all or nothing.
            assert not (fleet.all_or_nothing and new and not account.hit)
        elif done is not None and len(new) != fleet.boxes:
            assert "instances" in account.hit or account.market.late_s, new
            assert account.market.late_s or any("cannot tell whether anything else bills" in line for line in told)

    @rule(
        yes=st.booleans(), terminal=st.sampled_from((None, True, False)), death=deaths, trouble=some_faults, loss=losses
    )
    def destroy(self, yes: bool, terminal: bool | None, death: int | None, trouble: Faults, loss: str | None) -> None:
        self._meets(trouble)
        if loss and self.ledger.exists() and not self.account.is_late():
            self.damage(how=loss, place=0.0, bit=0)
        done = self._destroy(yes, terminal, death)
        if done is not None:
            self._check(*done)

    @rule(death=deaths, trouble=some_faults)
    def a_run_is_over(self, death: int | None, trouble: Faults) -> None:
        """With `DESTROY=always`, and a playbook that did not come so far as to name its boxes."""
        self._meets(trouble)
        told: list[str] = []
        account = self.account
        world = rented_run.RunSetup(
            account.client(), self.ledger, told.append, clock=account.clock, sleep=account.sleep, patience_s=60
        )

        def work() -> int:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    rented_run, "end_rentals", functools.partial(end_rentals, clock=account.clock, sleep=account.sleep)
                )
                rented_run._after(0, "always", world, None)
            return DONE

        done = self._run(work, death)
        if done is not None:
            self._check(*done)

    @rule()
    def look(self) -> None:
        """As the doctor, the inventory and `make rent` do."""
        self.account.hit.clear()
        try:
            found = compare_with_account(self.account.client(), self.ledger)
        except DrafthouseError:
            assert self.account.hit
            return
        said = "\n".join(f"{one.found} {one.where}" for one in found.billing)
        known = [one for one in read(self.ledger).rentals.values() if one.is_open]
        rows: list[Instance] = [{"id": number, "label": label} for number, label in self.account.billing().items()]
        listed = {row["id"] for one in known for row in instances_of(one, rows, self.account.client().account)}
        for number, label in self.account.billing().items():
            late = self.account.market.instances[number].row["_appears"] > self.account.market.mono
            assert number in listed or late or str(number) in said or label in said, said
        assert not (self.is_clean and said) or self.account.is_late(), said

    @precondition(lambda self: self.account.billing() and not self.account.is_late())
    @rule(which=st.integers(0, 2))
    def ended_by_hand(self, which: int) -> None:
        """By a person, who sees what the list shows."""
        numbers = sorted(self.account.billing())
        self.account.market.destroy(numbers[which % len(numbers)])

    # --- what happens to them --------------------------------------------------------------------------

    def _meets(self, trouble: Faults) -> None:
        if trouble:
            (route, kind), times = trouble
            self.is_clean = False
            self.account.troubles.append(Trouble(route, kind, times))
            count("faults")

    @rule()
    def trouble_is_over(self) -> None:
        self.account.troubles.clear()

    @rule(seconds=st.sampled_from((1, 20, 90, 8000)), jumps=st.sampled_from((0, 0, -240, -24, -1, 1, 24, 240)))
    def time_goes_by(self, seconds: int, jumps: int) -> None:
        """And the controller's clock is put so many hours on or back, but for while the list is behind."""
        self.account.sleep(seconds)
        if jumps and not self.account.is_late():
            self.account.wall += jumps * HOUR
            count("clock jumps")

    @precondition(lambda self: self.ledger.exists() and not self.account.is_late())
    @rule(
        how=st.sampled_from(("flip", "flip", "flip", "zero", "cut", "empty", "remove", "swap a newline")),
        place=st.floats(0, 1, exclude_max=True),
        bit=st.integers(0, 7),
    )
    def damage(self, how: str, place: float, bit: int) -> None:
        data = bytearray(self.ledger.read_bytes())
        if not data:
            return
        self.is_clean, self.is_damaged = False, True
        at = int(place * len(data))
        if how == "swap a newline":
            at = data.find(b"\n", at)
            at = at if at >= 0 else len(data) - 1
        if how in ("flip", "swap a newline"):
            data[at] ^= 1 << bit
        elif how == "zero":
            data[at : at + 2**bit] = bytes(len(data[at : at + 2**bit]))
        elif how == "cut":
            del data[at:]
        self.ledger.write_bytes(b"" if how == "empty" else data)
        if how == "remove":
            self.ledger.unlink()
        count(f"damage {how}")

    @precondition(lambda self: self.ledger.exists())
    @rule()
    def written_by_an_earlier_version(self) -> None:
        """Its lines have no checksum."""
        self.ledger.write_bytes(re.sub(rb'\{"sum": "[0-9a-f]{16}", ', b"{", self.ledger.read_bytes()))

    # --- what is held to be true -----------------------------------------------------------------------

    def _run(self, work: Callable[[], int], death: int | None = None) -> tuple[int, str] | None:
        """The status and what was said of what may bill, None where the controller died."""
        account = self.account
        account.hit.clear()
        account.steps_left, account.died = death, False
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                status, problems = work(), ""
            except Dead:
                self.is_clean = False
                count("deaths")
                return None
            except DrafthouseError as error:
                status, problems = of_error(error), str(error)
            finally:
                account.steps_left, account.died = None, False
                account.check_others()
        _, head, tail = said.getvalue().partition("according to the ledger")
        return status, problems + head + tail

    def _destroy(self, yes: bool, terminal: bool | None, death: int | None = None) -> tuple[int, str] | None:
        given = argparse.Namespace(names=[], yes=yes, settle_s=60.0, list=False)
        account = self.account

        def confirmed(question: str) -> bool | None:
            # A person knows the numbers of the boxes that this account has besides.
            return terminal and not any(str(number) in question for number in account.vast.others)

        def work() -> int:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(destroy_script, "confirmed", confirmed)
                return destroy_script.act(given, account.client(), self.ledger, account.clock, account.sleep)

        count("destroys")
        return self._run(work, death)

    def _check(self, status: int, said: str) -> None:
        billing = self.account.billing()
        if status == DONE:
            assert not billing, f"{billing} bill, and the status was 0"
        else:
            assert status == FAILED
            assert not self.is_clean, said
            self._is_named(billing, said)

    def _is_named(self, billing: dict[int, str], said: str) -> None:
        for number, label in billing.items():
            named = f"{number}" in said or label in said
            # Without a list nobody can tell, and that is said.
            untold = "instances" in self.account.hit and CONSOLE in said
            assert named or untold, f"{number} ({label}) bills, and is not named in: {said}"
            count("named" if named else "cannot tell")

    def teardown(self) -> None:
        """Let all trouble be over: one more command, with a yes, and nothing bills."""
        try:
            self.account.troubles.clear()
            self.account.sleep(60)
            done = self._destroy(yes=True, terminal=True)
            assert done is not None
            status, said = done
            assert not self.account.billing(), said
            if not self.is_damaged:
                assert (status, said) == (DONE, "")
                assert self._destroy(yes=False, terminal=None) == (DONE, "")
            elif read(self.ledger).damage:
                assert status == FAILED and "damaged" in said
        finally:
            self._exit.close()


USUAL: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "stateful_step_count": 14,
    "suppress_health_check": list(HealthCheck),
    "print_blob": False,
}


def histories(many: int, machine: type[Money] = Money, **options: Any) -> str:
    """Try so many; return what was counted. Raises what one of them found."""
    TALLY.clear()
    run_state_machine_as_test(machine, settings=settings(max_examples=many, **USUAL, **options))
    return ", ".join(f"{number} {what}" for what, number in sorted(TALLY.items()))
