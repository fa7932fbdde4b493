"""vast.ai's REST API: what renting needs of it, and what can be said when it refuses. Standard library only.

The `vastai` package is not used: it would bring borb, pycares and a pinned cryptography to every controller, and it
tries a create again after a lost connection (1.9.1, api/client.py), which rents twice. What the API looks like is taken
from it; tests/vast/test_real_client.py holds the two against each other.

Reads, and what may be asked twice, are tried again on 429, 5xx and a lost network. A create is sent once: where its
outcome is unknown, `OutcomeUnknown` says so, and whoever called looks for the label.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import urlencode

from ...core.errors import Problem, one_problem
from ...core.retry import PASSING, Patience, asked_to_wait
from .clock import ProviderClock
from .errors import KeyRefused, NotWhole, OfferGone, OutcomeUnknown, OutOfReach, QuotaSpent, VastError
from .http import Answer, NotSent, Unanswered, checked_url, send
from .ledger import CONSOLE

if TYPE_CHECKING:
    from drafthouse.cloud.vast.rows import Instance, Offer, SshKey

DEFAULT_URL = "https://console.vast.ai"
KEYS_PAGE = "https://console.vast.ai/manage-keys/"
#: The code of the problem that no key was given.
NO_KEY = "no-vast-key"
# A minute in all: a machine is rented by the second, and whoever waits is a person.
PATIENCE = Patience(tries=5, first_s=1.0, longest_s=15.0, longest_wait_s=60.0)
PAGE, MOST_PAGES = 25, 400
_FACE = {"User-Agent": "drafthouse", "Accept": "application/json"}
# A revoked key, with any status: 404 has been seen.
_KEY_ERROR = "auth_error"
# How the API has been seen to say that somebody else rented it (410 today, 404 and 400 before).
_GONE = ("no_such_ask", "not available", "no longer available")


def key_of_environment(environ: Mapping[str, str], home: Path, variable: str = "VAST_API_KEY") -> str:
    """The account's key, found where vast.ai's own command line finds it.

    DrafthouseError where there is none.
    """
    if key := environ.get(variable, "").strip():
        return checked_key(key, variable)
    files: list[Path] = []
    if variable == "VAST_API_KEY":
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        files = [config / "vastai" / "vast_api_key", home / ".vast_api_key"]
    for file in files:
        try:
            key = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if key:
            return checked_key(key, str(file))
    raise one_problem(
        "no-vast-key",
        "no vast.ai API key",
        " or ".join([variable, *map(str, files)]),
        f"make one at {KEYS_PAGE}, then: read -rs {variable} && export {variable}",
    )


def checked_key(key: str, where: str) -> str:
    """``key`` if it can be one; DrafthouseError names where it came from, never itself."""
    if key and key.isascii() and key.isprintable() and " " not in key:
        return key
    raise one_problem(
        "api-key-invalid", "a key with blanks or odd characters", "one word", f"copy it from {KEYS_PAGE}", where
    )


class VastClient:
    """One account at vast.ai. The key shows in no text that this gives: no repr, no error, no message."""

    def __init__(
        self,
        key: str,
        url: str = DEFAULT_URL,
        *,
        patience: Patience = PATIENCE,
        timeout_s: float = 30.0,
        sleep: Callable[[float], object] = time.sleep,
        tell: Callable[[str], object] | None = None,
        clock: ProviderClock | None = None,
        transport: Callable[..., Answer] = send,
    ) -> None:
        self.url = checked_url(url)
        self._key = checked_key(key, "the account's key")
        self._patience, self._timeout_s, self._sleep, self._tell = patience, timeout_s, sleep, tell
        self.clock = clock or ProviderClock()
        self._transport = transport

    def __repr__(self) -> str:
        return f"VastClient({self.url!r})"

    @property
    def account(self) -> str:
        """What tells this account from another in the ledger; nobody gets the key back from it."""
        return hashlib.sha256(f"drafthouse\n{self.url}\n{self._key}".encode()).hexdigest()[:12]

    # --- offers and instances ------------------------------------------------------------------------

    def offers(self, query: Mapping[str, object]) -> list[Offer]:
        """What a search finds, 64 offers at most; prices are for the query's `allocated_storage`."""
        offers: list[Offer] = self._rows(self._read("POST", "/api/v0/bundles/", query), "offers")
        return offers

    def create(self, offer: int, body: Mapping[str, object]) -> int:
        """Rent an offer and return the new instance's number.

        Raises OfferGone, OutcomeUnknown where a machine may have been rented, and VastError where surely none was. A
        429 may hide an effect: before the next try its label is looked for, and a refusal after it proves nothing.
        """
        path = f"/api/v0/asks/{int(offer)}/"
        for failed in range(1, self._patience.tries + 1):
            if failed > 1 and (number := self._labelled(offer, body.get("label"))) is not None:
                return number
            try:
                answer = self._send("PUT", path, body)
            except NotSent as error:
                raise OutOfReach(self._no_answer(str(error), 1)) from None
            except Unanswered as error:
                raise OutcomeUnknown(self._unknown(offer, str(error))) from None
            # 429 is the one thing that a create may be tried again for.
            pause = self._pause(answer, failed) if answer.status == 429 else None
            if pause is not None:
                self._wait(pause, f"HTTP {answer.status}", path)
                continue
            try:
                return self._created(offer, answer)
            except OutcomeUnknown:
                raise
            except VastError as refused:
                if failed == 1 and answer.status != 429:
                    raise
                found = f"refused after HTTP 429: {refused.problems[0].found}"
                raise OutcomeUnknown(self._unknown(offer, found), refused) from refused
        raise AssertionError("the last try has no pause")

    def _labelled(self, offer: int, label: object) -> int | None:
        """The number of the instance with this label, None where the list has none. Raises OutcomeUnknown."""
        try:
            rows = self.instances()
        except VastError as error:
            raise OutcomeUnknown(self._unknown(offer, f"HTTP 429, then {error.problems[0].found}")) from error
        for row in rows:
            if label and row.get("label") == label:
                return int(row["id"])
        return None

    def instances(self) -> list[Instance]:
        """Every instance of the account, all pages; NotWhole rather than a list that is not all of it.

        What is rented or ended between two pages changes the count, so a list that does not agree is read again.
        """
        for failed in range(1, self._patience.tries + 1):
            rows, wrong = self._listed()
            if not wrong:
                return rows
            if (pause := self._patience.pause(failed)) is not None:
                self._wait(pause, wrong, "/api/v1/instances/")
        raise NotWhole(
            Problem(
                "vast-answer-malformed",
                f"{self.url} gave {self._without_key(wrong)}: what is billing is unknown",
                "the complete list of the account's instances",
                f"run it again in a minute; until then check {CONSOLE}",
            )
        )

    def _listed(self) -> tuple[list[Instance], str]:
        """What all pages list, and why that is not the whole of it ('' where it is).

        Each page says `success`, and in `total_instances` how many the account has in all
        (https://docs.vast.ai/api-reference/instances/show-instances-v1).
        """
        found: dict[int, Instance] = {}
        order = json.dumps([{"col": "id", "dir": "asc"}])
        query: dict[str, str] = {"select_filters": "{}", "order_by": order, "limit": str(PAGE)}
        seen: set[str] = set()
        totals: set[str] = set()
        succeeded = True
        for _ in range(MOST_PAGES):
            answer = self._read("GET", f"/api/v1/instances/?{urlencode(query)}")
            found |= {int(row["id"]): row for row in self._rows(answer, "instances")}
            succeeded = succeeded and answer.field("success") is True
            token, total = answer.field("next_token"), answer.field("total_instances")
            totals.add(str(total))
            if not token:
                if succeeded and totals == {str(len(found))} and isinstance(total, int):
                    return list(found.values()), ""
                wrong = f"a list of {len(found)} of {' or '.join(sorted(totals))} instances"
                if not succeeded:
                    wrong += ", no success"
                return list(found.values()), wrong
            if token in seen:
                break
            seen.add(str(token))
            query["after_token"] = str(token)
        raise VastError(self._malformed("an endless list of instances"))

    def instance(self, number: int) -> Instance | None:
        """One instance, or None where there is none (any more)."""
        answer = self._read("GET", f"/api/v0/instances/{int(number)}/?owner=me", missing=True)
        if answer.status == 404:
            if not self._says_no_such(answer):
                self._refuse(answer)
            return None
        data = answer.data
        if not isinstance(data, dict) or "instances" not in data:
            raise VastError(self._malformed("an answer without an instance"))
        if data.get("success") is False:
            raise VastError(self._malformed("an answer that reports a failure"))
        row = data["instances"]
        if row is None or row == []:
            return None
        if isinstance(row, list):
            row = row[0]
        if not isinstance(row, dict) or not _is_number(row.get("id")):
            raise VastError(self._malformed("an instance without a number"))
        return cast("Instance", row)

    def destroy(self, number: int) -> bool:
        """End an instance, its disk too; False where there was none (any more)."""
        answer = self._read("DELETE", f"/api/v0/instances/{int(number)}/", {}, missing=True)
        if answer.status == 404:
            # A 404 alone could come from a proxy or a wrong address, and the machine would go on costing money.
            if any(row["id"] == number for row in self.instances()) or self.instance(number) is not None:
                raise VastError(self._malformed(f"'no instance {number}' when asked to end it, but it is there"))
            return False
        self._succeeded(answer)
        return True

    def stop(self, number: int) -> None:
        """Stop an instance; its disk goes on being billed."""
        self._succeeded(self._read("PUT", f"/api/v0/instances/{int(number)}/", {"state": "stopped"}))

    # --- SSH keys ------------------------------------------------------------------------------------

    def ssh_keys(self) -> list[SshKey]:
        """The account's public keys: `id` and `key`."""
        answer = self._read("GET", "/api/v0/ssh/", missing=True)
        rows = answer.data
        if answer.status == 404:  # how the API says that there is none
            if not isinstance(rows, dict):
                self._refuse(answer)
            return []
        if isinstance(rows, dict):
            rows = rows.get("ssh_keys")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise VastError(self._malformed("no list of SSH keys"))
        return [row for row in rows if not row.get("deleted_at")]

    def add_ssh_key(self, public: str) -> None:
        """Put a public key into the account, unless it is there: every instance created from now on has it."""
        wanted = public.split()[:2]
        if self._has_key(wanted):
            return
        try:
            self._succeeded(self._read("POST", "/api/v0/ssh/", {"ssh_key": public.strip()}))
        except VastError:
            if not self._has_key(wanted):  # asked for twice, after a lost answer
                raise

    def attach_ssh_key(self, number: int, public: str) -> None:
        """Give a public key to an instance that runs already."""
        self._succeeded(self._read("POST", f"/api/v0/instances/{int(number)}/ssh/", {"ssh_key": public.strip()}))

    def _has_key(self, wanted: list[str]) -> bool:
        return any(str(row.get("key") or row.get("public_key") or "").split()[:2] == wanted for row in self.ssh_keys())

    # --- asking --------------------------------------------------------------------------------------

    def _send(self, method: str, path: str, body: Any = None) -> Answer:
        headers = {**_FACE, "Authorization": f"Bearer {self._key}"}
        answer = self._transport(method, self.url + path, headers, body, self._timeout_s)
        self.clock.hear(answer.headers)
        return answer

    def _read(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Answer:
        """A good answer (or a 404, if that may be), asked for again where that may help."""
        failed, reason = 0, ""
        while True:
            failed += 1
            answer, pause = None, None
            try:
                answer = self._send(method, path, body)
                if answer.status not in PASSING:
                    is_missing = missing and answer.status == 404 and answer.word("error") != _KEY_ERROR
                    if answer.status != 200 and not is_missing:
                        self._refuse(answer)
                    return answer
                pause, reason = self._pause(answer, failed), f"HTTP {answer.status}"
            except (NotSent, Unanswered) as error:
                pause, reason = self._patience.pause(failed), str(error)
            if pause is None:
                if answer is not None and answer.status == 429:
                    self._refuse(answer)
                raise OutOfReach(self._no_answer(reason, failed))
            self._wait(pause, reason, path)

    def _pause(self, answer: Answer, failed: int) -> float | None:
        if answer.word("error") == "search_quota_exceeded":
            return None
        return self._patience.pause(failed, asked_to_wait(answer.headers))

    def _wait(self, pause: float, reason: str, path: str) -> None:
        if self._tell:
            self._tell(self._without_key(f"vast.ai, {path.partition('?')[0]}: {reason}; again in {pause:.0f} s"))
        self._sleep(pause)

    # --- what answers mean ---------------------------------------------------------------------------

    def _rows(self, answer: Answer, name: str) -> Any:
        """What an answer lists; each of it has a number."""
        rows = answer.field(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) and _is_number(row.get("id")) for row in rows):
            raise VastError(self._malformed(f"an answer without a list of {name}"))
        return rows

    def _created(self, offer: int, answer: Answer) -> int:
        number = answer.field("new_contract")
        if answer.status == 200 and answer.field("success") and _is_number(number):
            return int(str(number))
        message = f"{answer.word('error')} {answer.word('msg')}".lower()
        if answer.status < 500 and any(word in message for word in _GONE):
            found = f"offer {offer} is gone: someone else has rented it"
            raise OfferGone(Problem("offer-gone", found, "an available offer", "take the next one"))
        if 300 <= answer.status < 500 and answer.status != 408:
            self._refuse(answer)
        raise OutcomeUnknown(self._unknown(offer, f"HTTP {answer.status} {answer.word('msg')}".rstrip()))

    def _succeeded(self, answer: Answer) -> None:
        if answer.field("success") is not True:
            message = answer.word("msg") or answer.word("error") or "an answer without success"
            raise VastError(self._malformed(message))

    def _says_no_such(self, answer: Answer) -> bool:
        return "no_such" in answer.word("error") or "not found" in answer.word("msg").lower()

    def _refuse(self, answer: Answer) -> NoReturn:
        """Raise what an answer other than 200 means."""
        found = f"{self.url} answered HTTP {answer.status}"
        message = self._without_key(answer.word("msg") or answer.word("error"))
        if message:
            found += f": {message}"
        if answer.word("error") == "search_quota_exceeded":
            do = f"come back after {_reset_of(answer)}, or use another account"
            raise QuotaSpent(Problem("vast-quota-spent", "the account has used up today's searches", "one more", do))
        if answer.status in (401, 403) or answer.word("error") == _KEY_ERROR:
            do = f"check {KEYS_PAGE}: the key must belong to this account, with permission for instances"
            raise KeyRefused(Problem("vast-key-refused", found, "a key with this permission", do))
        if 300 <= answer.status < 400:
            do = "correct VAST_URL, or unset it: the key is not sent to the address that this redirects to"
            raise VastError(Problem("vast-refused", found, "an answer of the API", do))
        if answer.word("error") == "insufficient_credit":
            do = "add credit at https://console.vast.ai/billing/"
            raise VastError(Problem("vast-no-credit", found, "credit on the account", do))
        do = "wait a while" if answer.status == 429 else "read what it says; the account is at https://console.vast.ai"
        raise VastError(Problem("vast-refused", found, "a request that the API accepts", do))

    def _malformed(self, what: str) -> Problem:
        do = "try again; if it persists, the API has changed: upgrade Drafthouse"
        found = f"{self.url} gave {self._without_key(what)}"
        return Problem("vast-answer-malformed", found, "an answer in the API's documented form", do)

    def _no_answer(self, reason: str, tries: int) -> Problem:
        times = f", {tries} times in a row" if tries > 1 else ""
        found = f"no answer from {self.url}: {self._without_key(reason)}{times}"
        do = "check the network (and VAST_URL, if it is set), then run again"
        return Problem("vast-unreachable", found, "a connection to vast.ai", do)

    def _unknown(self, offer: int, reason: str) -> Problem:
        return Problem(
            "rental-state-unknown",
            f"offer {offer} was requested, but the answer was lost ({self._without_key(reason)}): it may be rented",
            "confirmation either way",
            "look for its label among the instances (make destroy does), and at https://console.vast.ai/instances/",
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(key)")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _reset_of(answer: Answer, now: datetime | None = None) -> str:
    """The time at which searches are allowed again: as the answer says, else midnight UTC."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    today = now or datetime.now(timezone.utc)
    try:
        then = datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), timezone.utc)
    except (KeyError, ValueError, OverflowError, OSError):
        then = (today + timedelta(days=1)).replace(hour=0, minute=0)
    return f"{then:%Y-%m-%d %H:%M} UTC"
