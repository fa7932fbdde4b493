"""Client of vast.ai's REST API for searching, renting and destroying. Standard library only.

The `vastai` package is not used: it needs borb, pycares and a pinned cryptography, and it repeats a create request
after a lost connection (1.9.1, api/client.py), which may rent two machines. Its requests are the model for this client;
tests/vast/test_real_client.py compares the two.

Requests that may safely be repeated are retried after 429, 5xx and network errors. A create request is not: if its
answer is lost, `OutcomeUnknown` is raised, and the caller looks for the label among the instances.
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
#: Code of the problem of a missing key.
NO_KEY = "no-vast-key"
# Short pauses, and 60 s at most if the server asks for them: machines are billed by the second, and a user waits.
PATIENCE = Patience(tries=5, first_s=1.0, longest_s=15.0, longest_wait_s=60.0)
PAGE_SIZE = 25  # instances of a page
MAX_PAGES = 400  # of a list, in case the pages never end
_HEADERS = {"User-Agent": "drafthouse", "Accept": "application/json"}
# The error of an answer for a revoked key; its status varies, and has been 404.
_KEY_REFUSED = "auth_error"
# Words in the API's refusals of an offer that someone else has rented (status 410 today, 404 and 400 before).
_OFFER_GONE = ("no_such_ask", "not available", "no longer available")


def key_of_environment(environ: Mapping[str, str], home: Path, variable: str = "VAST_API_KEY") -> str:
    """API key from the variable, else (for VAST_API_KEY) from the files of vast.ai's command line, the new one first.

    Raises DrafthouseError if there is none, or if the one that was found is malformed.
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
    """Return ``key`` if it is well-formed. Raises DrafthouseError, which names its source but not the key."""
    if key and key.isascii() and key.isprintable() and " " not in key:
        return key
    raise one_problem(
        "api-key-invalid", "a key with blanks or odd characters", "one word", f"copy it from {KEYS_PAGE}", where
    )


class VastClient:
    """One account at vast.ai. Its key never appears in the repr, in errors or in messages."""

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
        self._patience = patience
        self._timeout_s = timeout_s  # of a request
        self._sleep = sleep
        self._tell = tell  # prints a line about each retry; None: no lines
        self.clock = clock or ProviderClock()
        self._transport = transport

    def __repr__(self) -> str:
        return f"VastClient({self.url!r})"

    @property
    def account(self) -> str:
        """The account's name in the ledger: 12 hex digits of a hash of URL and key, so another key is another name."""
        return hashlib.sha256(f"drafthouse\n{self.url}\n{self._key}".encode()).hexdigest()[:12]

    # --- offers and instances ------------------------------------------------------------------------

    def offers(self, query: Mapping[str, object]) -> list[Offer]:
        """Result of a search, 64 offers at most, with prices for the query's `allocated_storage` (GB)."""
        offers: list[Offer] = self._list_field(self._request("POST", "/api/v0/bundles/", query), "offers")
        return offers

    def create(self, offer: int, body: Mapping[str, object]) -> int:
        """Rent an offer and return the new instance's number.

        Raises OfferGone; OutcomeUnknown if a machine may have been rented; VastError if none was. A request answered
        with 429 may have rented one: each retry looks for the label first, and its refusal becomes OutcomeUnknown.
        """
        path = f"/api/v0/asks/{int(offer)}/"
        for attempt in range(1, self._patience.tries + 1):
            if attempt > 1 and (instance_id := self._find_label(offer, body.get("label"))) is not None:
                return instance_id
            try:
                answer = self._send("PUT", path, body)
            except NotSent as error:
                raise OutOfReach(self._no_answer(str(error), 1)) from None
            except Unanswered as error:
                raise OutcomeUnknown(self._unknown_outcome(offer, str(error))) from None
            # A create request is repeated after status 429 only.
            pause = self._retry_pause(answer, attempt) if answer.status == 429 else None
            if pause is not None:
                self._wait_to_retry(pause, f"HTTP {answer.status}", path)
                continue
            try:
                return self._new_instance_id(offer, answer)
            except OutcomeUnknown:
                raise
            except VastError as refused:
                # Nothing was rented if the first request was refused. An earlier 429 may hide a rented machine.
                if attempt == 1 and answer.status != 429:
                    raise
                found = f"refused after HTTP 429: {refused.problems[0].found}"
                raise OutcomeUnknown(self._unknown_outcome(offer, found), refused) from refused
        raise AssertionError("the last try has no pause")

    def _find_label(self, offer: int, label: object) -> int | None:
        """Number of the instance with this label; None if none is listed. Raises OutcomeUnknown."""
        try:
            instances = self.instances()
        except VastError as error:
            raise OutcomeUnknown(self._unknown_outcome(offer, f"HTTP 429, then {error.problems[0].found}")) from error
        for instance in instances:
            if label and instance.get("label") == label:
                return int(instance["id"])
        return None

    def instances(self) -> list[Instance]:
        """Every instance of the account, from all pages. Raises NotWhole if the list stays incomplete.

        The list is read again if instances were created or destroyed between two pages, which changes the total.
        """
        for attempt in range(1, self._patience.tries + 1):
            instances, fault = self._listed()
            if not fault:
                return instances
            if (pause := self._patience.pause(attempt)) is not None:
                self._wait_to_retry(pause, fault, "/api/v1/instances/")
        raise NotWhole(
            Problem(
                "vast-answer-malformed",
                f"{self.url} gave {self._without_key(fault)}: what is billing is unknown",
                "the complete list of the account's instances",
                f"run it again in a minute; until then check {CONSOLE}",
            )
        )

    def _listed(self) -> tuple[list[Instance], str]:
        """Instances of all pages, and why the list is incomplete ('' if it is complete).

        Each page has the fields `success`, and `total_instances` with the number of instances of the account
        (https://docs.vast.ai/api-reference/instances/show-instances-v1).
        """
        by_id: dict[int, Instance] = {}
        order = json.dumps([{"col": "id", "dir": "asc"}])
        query: dict[str, str] = {"select_filters": "{}", "order_by": order, "limit": str(PAGE_SIZE)}
        seen_tokens: set[str] = set()
        totals: set[str] = set()
        succeeded = True
        for _ in range(MAX_PAGES):
            answer = self._request("GET", f"/api/v1/instances/?{urlencode(query)}")
            by_id |= {int(instance["id"]): instance for instance in self._list_field(answer, "instances")}
            succeeded = succeeded and answer.field("success") is True
            token = answer.field("next_token")
            total = answer.field("total_instances")
            totals.add(str(total))
            if not token:
                # Complete: all pages succeeded and named the same total, which is the number of instances.
                if succeeded and totals == {str(len(by_id))} and isinstance(total, int):
                    return list(by_id.values()), ""
                fault = f"a list of {len(by_id)} of {' or '.join(sorted(totals))} instances"
                if not succeeded:
                    fault += ", no success"
                return list(by_id.values()), fault
            if token in seen_tokens:  # the pages go in a circle
                break
            seen_tokens.add(str(token))
            query["after_token"] = str(token)
        raise VastError(self._malformed("an endless list of instances"))

    def instance(self, instance_id: int) -> Instance | None:
        """Instance with this number, or None if it does not exist or has ended. Raises VastError."""
        answer = self._request("GET", f"/api/v0/instances/{int(instance_id)}/?owner=me", missing=True)
        if answer.status == 404:
            if not self._is_no_such_instance(answer):
                self._refuse(answer)
            return None
        data = answer.data
        if not isinstance(data, dict) or "instances" not in data:
            raise VastError(self._malformed("an answer without an instance"))
        if data.get("success") is False:
            raise VastError(self._malformed("an answer that reports a failure"))
        instance = data["instances"]
        if instance is None or instance == []:
            return None
        if isinstance(instance, list):
            instance = instance[0]
        if not isinstance(instance, dict) or not _is_id(instance.get("id")):
            raise VastError(self._malformed("an instance without a number"))
        return cast("Instance", instance)

    def destroy(self, instance_id: int) -> bool:
        """Destroy an instance and its disk; return False if it did not exist (any more). Raises VastError.

        True means that the request was accepted; the instance may be listed for some seconds more.
        """
        answer = self._request("DELETE", f"/api/v0/instances/{int(instance_id)}/", {}, missing=True)
        if answer.status == 404:
            # A 404 may come from a proxy or a wrong URL, so it is no proof that the instance is gone.
            if any(box["id"] == instance_id for box in self.instances()) or self.instance(instance_id) is not None:
                raise VastError(self._malformed(f"'no instance {instance_id}' when asked to end it, but it is there"))
            return False
        self._check_ok(answer)
        return True

    def stop(self, instance_id: int) -> None:
        """Stop an instance; its disk is still billed. Raises VastError."""
        self._check_ok(self._request("PUT", f"/api/v0/instances/{int(instance_id)}/", {"state": "stopped"}))

    # --- SSH keys ------------------------------------------------------------------------------------

    def ssh_keys(self) -> list[SshKey]:
        """Public SSH keys of the account, without deleted ones. Raises VastError."""
        answer = self._request("GET", "/api/v0/ssh/", missing=True)
        keys = answer.data
        if answer.status == 404:  # the account has no keys
            if not isinstance(keys, dict):
                self._refuse(answer)
            return []
        if isinstance(keys, dict):
            keys = keys.get("ssh_keys")
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise VastError(self._malformed("no list of SSH keys"))
        return [key for key in keys if not key.get("deleted_at")]

    def add_ssh_key(self, public: str) -> None:
        """Add a public key to the account, unless it has it; every new instance gets the account's keys.

        Raises VastError.
        """
        wanted = public.split()[:2]  # type and key, without the comment
        if self._has_key(wanted):
            return
        try:
            self._check_ok(self._request("POST", "/api/v0/ssh/", {"ssh_key": public.strip()}))
        except VastError:
            if not self._has_key(wanted):  # an earlier try may have added it, and its answer was lost
                raise

    def attach_ssh_key(self, instance_id: int, public: str) -> None:
        """Add a public key to an existing instance. Raises VastError."""
        self._check_ok(self._request("POST", f"/api/v0/instances/{int(instance_id)}/ssh/", {"ssh_key": public.strip()}))

    def _has_key(self, wanted: list[str]) -> bool:
        return any(str(key.get("key") or key.get("public_key") or "").split()[:2] == wanted for key in self.ssh_keys())

    # --- requests ------------------------------------------------------------------------------------

    def _send(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request once, and set the clock by the answer. Raises NotSent or Unanswered."""
        headers = {**_HEADERS, "Authorization": f"Bearer {self._key}"}
        answer = self._transport(method, self.url + path, headers, body, self._timeout_s)
        self.clock.update(answer.headers)
        return answer

    def _request(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Answer:
        """Send a request, with retries. The answer has status 200, or 404 if ``missing``. Raises VastError.

        After the last try this is the refusal for status 429, and OutOfReach for other passing statuses or no answer.
        """
        attempt = 0
        while True:
            attempt += 1
            answer = None
            try:
                answer = self._send(method, path, body)
                if answer.status not in PASSING:
                    is_missing = missing and answer.status == 404 and answer.text_field("error") != _KEY_REFUSED
                    if answer.status != 200 and not is_missing:
                        self._refuse(answer)
                    return answer
                pause = self._retry_pause(answer, attempt)
                reason = f"HTTP {answer.status}"
            except (NotSent, Unanswered) as error:
                pause = self._patience.pause(attempt)
                reason = str(error)
            if pause is None:
                if answer is not None and answer.status == 429:
                    self._refuse(answer)
                raise OutOfReach(self._no_answer(reason, attempt))
            self._wait_to_retry(pause, reason, path)

    def _retry_pause(self, answer: Answer, attempt: int) -> float | None:
        """Seconds to wait after the failed ``attempt``, None for no further one."""
        if answer.text_field("error") == "search_quota_exceeded":
            return None
        return self._patience.pause(attempt, asked_to_wait(answer.headers))

    def _wait_to_retry(self, pause: float, reason: str, path: str) -> None:
        """Tell the reason, and sleep for ``pause`` seconds."""
        if self._tell:
            self._tell(self._without_key(f"vast.ai, {path.partition('?')[0]}: {reason}; again in {pause:.0f} s"))
        self._sleep(pause)

    # --- checking answers ----------------------------------------------------------------------------

    def _list_field(self, answer: Answer, name: str) -> Any:
        """List in the field ``name`` of an answer; every entry is an object with a valid ``id``."""
        rows = answer.field(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) and _is_id(row.get("id")) for row in rows):
            raise VastError(self._malformed(f"an answer without a list of {name}"))
        return rows

    def _new_instance_id(self, offer: int, answer: Answer) -> int:
        """Number of the instance that a create request made.

        Raises OfferGone; VastError for another refusal (3xx or 4xx, except 408), which rents nothing; OutcomeUnknown
        for every other answer.
        """
        instance_id = answer.field("new_contract")
        if answer.status == 200 and answer.field("success") and _is_id(instance_id):
            return int(str(instance_id))
        message = f"{answer.text_field('error')} {answer.text_field('msg')}".lower()
        if answer.status < 500 and any(word in message for word in _OFFER_GONE):
            found = f"offer {offer} is gone: someone else has rented it"
            raise OfferGone(Problem("offer-gone", found, "an available offer", "take the next one"))
        if 300 <= answer.status < 500 and answer.status != 408:
            self._refuse(answer)
        raise OutcomeUnknown(self._unknown_outcome(offer, f"HTTP {answer.status} {answer.text_field('msg')}".rstrip()))

    def _check_ok(self, answer: Answer) -> None:
        """Raise VastError unless the field ``success`` of the answer is true."""
        if answer.field("success") is not True:
            message = answer.text_field("msg") or answer.text_field("error") or "an answer without success"
            raise VastError(self._malformed(message))

    def _is_no_such_instance(self, answer: Answer) -> bool:
        return "no_such" in answer.text_field("error") or "not found" in answer.text_field("msg").lower()

    def _refuse(self, answer: Answer) -> NoReturn:
        """Raise the VastError for an answer with another status than 200; the first kind that fits."""
        found = f"{self.url} answered HTTP {answer.status}"
        message = self._without_key(answer.text_field("msg") or answer.text_field("error"))
        if message:
            found += f": {message}"
        if answer.text_field("error") == "search_quota_exceeded":
            do = f"come back after {_reset_of(answer)}, or use another account"
            raise QuotaSpent(Problem("vast-quota-spent", "the account has used up today's searches", "one more", do))
        if answer.status in (401, 403) or answer.text_field("error") == _KEY_REFUSED:
            do = f"check {KEYS_PAGE}: the key must belong to this account, with permission for instances"
            raise KeyRefused(Problem("vast-key-refused", found, "a key with this permission", do))
        if 300 <= answer.status < 400:
            do = "correct VAST_URL, or unset it: the key is not sent to the address that this redirects to"
            raise VastError(Problem("vast-refused", found, "an answer of the API", do))
        if answer.text_field("error") == "insufficient_credit":
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

    def _unknown_outcome(self, offer: int, reason: str) -> Problem:
        """Problem of a create request of which nobody knows whether it rented something."""
        return Problem(
            "rental-state-unknown",
            f"offer {offer} was requested, but the answer was lost ({self._without_key(reason)}): it may be rented",
            "confirmation either way",
            "look for its label among the instances (make destroy does), and at https://console.vast.ai/instances/",
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "(key)")


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _reset_of(answer: Answer, now: datetime | None = None) -> str:
    """Time from which searches are allowed again, as text: from the answer's headers, else the next midnight UTC."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    today = now or datetime.now(timezone.utc)
    try:
        reset = datetime.fromtimestamp(int(headers["x-ratelimit-reset"]), timezone.utc)
    except (KeyError, ValueError, OverflowError, OSError):
        reset = (today + timedelta(days=1)).replace(hour=0, minute=0)
    return f"{reset:%Y-%m-%d %H:%M} UTC"
