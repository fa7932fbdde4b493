"""What the house must know of an engine in Python: the page that whoever adds one reads (docs/add-an-engine.md).

How an engine is started, its versions, options and methods are data (`profiles/catalog/engines/<name>.yml`), and so is
what became of its old flags (`profiles/catalog/old_flags/<name>.yml`). Here stands what data cannot say: how its
counters are read, and how a pasted command of it is understood. Everything has a default that suits an engine which
says nothing about itself: such a one is measured all the same, and its drafting is read from its answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ..core.errors import Problem
from ..core.prometheus_text import TOTAL, Sample
from .pasted import Command, Speculation

if TYPE_CHECKING:
    from drafthouse.core.shell import Flag
    from drafthouse.engines.entry_types import Settings

Field = TypeVar("Field")


@dataclass(frozen=True)
class Series:
    """The names of an engine's counters as Prometheus records them; '' where it has none.

    ``ttft``, ``tpot`` and ``queue`` are histograms, in seconds. ``position`` is the label of ``accepted_at``,
    ``drafts_where`` what else a line of ``drafts`` must have. ``not_accepted``: what is to be taken off
    ``accepted_tokens``, where that counts more than those (several names, blanks between).
    """

    drafts: str
    draft_tokens: str
    accepted_tokens: str
    accepted_at: str
    output_tokens: str
    input_tokens: str
    drafts_where: str = ""
    not_accepted: str = ""
    position: str = "position"
    output_seconds: str = ""  # spent on output tokens, where there is no histogram
    running: str = ""
    waiting: str = ""
    kv_cache: str = ""
    ttft: str = ""
    tpot: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Drafted:
    """What an engine's counters say of drafting since its start; None where it does not count that.

    ``per_position`` has the accepted tokens at each place of a draft. ``family`` tells ways to count apart whose
    figures do not compare. ``length``: the mean acceptance length of the last moments, of an engine that has a gauge
    of it and counts nothing.
    """

    num_drafts: int | None = 0
    draft_tokens: int | None = 0
    accepted_tokens: int | None = 0
    per_position: list[int] = field(default_factory=list)
    family: str | None = None
    length: float | None = None


@dataclass(frozen=True)
class LogLine:
    """What a line of an engine's log says of drafting since the last one; ``rates`` are acceptances by position.

    ``length``: the mean acceptance length, of an engine that writes no counts.
    """

    num_drafts: float | None
    draft_tokens: int
    accepted_tokens: int
    rates: list[float]
    length: float | None = None


@dataclass(frozen=True)
class HostPlace:
    """A host's place among the ``hosts`` that serve one model: ``rank`` 0 is the ``head``, which alone has the API.

    ``addresses`` are of the private subnet, the head's first; ``interface`` is the host's own there. ``ports``: two
    free ones of the head; an executor's begin with the second, on every host. ``copies``: how many whole models there
    are over all hosts; 1: a single one, split over them. ``devices``: how many of the host's serve. ``executor``: what
    starts the workers, the engine itself (``mp``) or one of its `Engine.executors`; ``cluster``: where one is already
    there; ``token_file``: what lets a host take part in it.
    """

    rank: int
    addresses: tuple[str, ...]
    interface: str
    infiniband: tuple[str, ...]
    ports: tuple[int, int]
    copies: int
    devices: int
    executor: str = "mp"
    cluster: str = ""
    token_file: str = ""

    @property
    def hosts(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def head(self) -> str:
        """The address of the first."""
        return self.addresses[0]

    @property
    def address(self) -> str:
        """The host's own."""
        return self.addresses[self.rank]


@dataclass(frozen=True)
class Executor:
    """Another way to start an engine's workers on several hosts.

    ``since`` is the oldest version that has run with ``packages``, which are added to its environment as they are, and
    with ``tools`` of `roles/engine/files`.
    """

    since: str
    packages: tuple[str, ...]
    tools: tuple[str, ...]


class Engine:
    """An engine, as it is told from others and read. Subclass it, and name the class in `registry.py`."""

    #: As the catalogue's `metrics.dialect` and an engine's own entry name it.
    name: ClassVar[str] = ""
    #: The engine whose command and counters it has, as its entry's `like` says; '' for one of its own.
    like: ClassVar[str] = ""
    #: What the names of its Prometheus series begin with.
    prefixes: ClassVar[tuple[str, ...]] = ()
    #: What the names of the series have in them that `drafted` reads.
    of_drafting: ClassVar[tuple[str, ...]] = ("spec_decode",)
    #: Under which names Prometheus finds what is watched; None: it is only asked whether it lives.
    series: ClassVar[Series | None] = None
    #: Which of its counters (without ``_total``) says what of its work: requests, input_tokens, output_tokens and
    #: cached_tokens (of prompts, which its prefix cache had) since its start; running now, those in the queue included.
    traffic: ClassVar[Mapping[str, str]] = {}
    #: Whether /tokenize tells how many tokens a text has.
    tokenizes: ClassVar[bool] = False
    #: Whether counters of drafting are there before anything was drafted. Where not, their absence tells nothing.
    shows_zeros: ClassVar[bool] = True
    #: What to say, and what to do, where such an engine shows no sign of drafting at all.
    no_sign: ClassVar[str] = ""
    see_drafts: ClassVar[str] = ""

    #: Since which version it serves one model over several hosts, and `place_flags` says how; '' where it cannot.
    spans_hosts_since: ClassVar[str] = ""

    #: What may start its workers on several hosts in its own place, by the inventory's `drafthouse_executor`.
    executors: ClassVar[Mapping[str, Executor]] = {}

    #: Packages, as patterns of names, that must have the same version on all of those hosts.
    same_on_hosts: ClassVar[tuple[str, ...]] = ()

    #: Where a running server says whether it speculates, where its counters look the same without; '' for nowhere.
    slots: ClassVar[str] = ""

    #: Programs that serve, without their folder, and the words behind one that have it serve, where it does more.
    programs: ClassVar[Mapping[str, str]] = {}
    #: The program of these whose models an ini of presets lists; '' where there is no such file.
    presets_of: ClassVar[str] = ""
    #: Words behind such a program with which it does something else: what that is.
    other_verbs: ClassVar[Mapping[str, str]] = {}
    #: Python modules that serve, as behind ``python -m``.
    python_modules: ClassVar[tuple[str, ...]] = ()
    #: Patterns of images, each with the command that its entrypoint starts (nothing where it must be given).
    images: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    #: What the names of variables begin with that are flags of it.
    flag_variables: ClassVar[str] = ""
    #: What charts of Kubernetes and Ray Serve start without saying so; nothing where that is another engine.
    chart_command: ClassVar[tuple[str, ...]] = ()
    #: Calls in Python that make an engine of it.
    python_calls: ClassVar[tuple[str, ...]] = ()
    #: A package whose calls look the same and cannot be read: its name, what is needed in its place, what to do.
    python_package: ClassVar[tuple[str, str, str] | None] = None
    #: How its commands are written, for people.
    forms: ClassVar[tuple[str, ...]] = ()
    #: Whether the file that a command names holds flags, and not settings of its own.
    flags_in_file: ClassVar[bool] = False

    # --- its counters -------------------------------------------------------------------------------------

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """What these series (all of its own) say of drafting; None where none of them does."""
        return None

    def log_lines(self, text: str) -> list[LogLine]:
        """What the lines of a log say of drafting."""
        return []

    def speculates(self, text: str) -> bool | None:
        """What the answer at `slots` tells, None where it tells nothing."""
        return None

    # --- one model over several hosts -----------------------------------------------------------------------

    def place_flags(self, place: HostPlace) -> list[Flag]:
        """The flags by which a host takes its place; only of an engine that spans hosts."""
        return []

    def place_words(self, place: HostPlace) -> list[str]:
        """An executor's words: before a head's command, and in the place of a follower's."""
        return []

    def place_environment(self, place: HostPlace) -> dict[str, str]:
        """The variables by which it finds the others."""
        return {}

    # --- its configuration file ---------------------------------------------------------------------------

    def config_problems(self, data: Settings, version: str, where: str) -> list[Problem]:
        """What is wrong with the configuration file of a version, where the engine cannot be asked itself."""
        return []

    def config_warnings(self, data: Settings) -> list[str]:
        """What the engine would silently change of a file that is right."""
        return []

    def shows_counters(self, config: Settings) -> bool:
        """Tell whether a server with this configuration file (empty: without one) shows its counters."""
        return self.series is not None

    # --- a pasted command of it ---------------------------------------------------------------------------

    def claims(self, taken: Settings, environment: Mapping[str, str]) -> bool:
        """Tell whether a command of the engine that this one is ``like`` is really one of this; see `Command`."""
        return False

    def settings_of_call(self, given: Settings) -> Settings:
        """The engine's settings in the keyword arguments of one of ``python_calls``."""
        return given

    def take_speculation(self, command: Command) -> None:
        """Take the speculation out of a command's flags (``given``) into ``taken``, before its model is known."""

    def read_speculation(self, command: Command) -> Speculation | None:
        """What a command says of speculation, taken out of it; None where it does not speculate."""
        return None


def by_field(
    samples: Sequence[Sample], fields: Mapping[str, Field], prefixes: Sequence[str], label: str
) -> dict[Field, dict[int, int]]:
    """The values of counters by field and by place in a draft, summed over all other labels.

    ``fields`` has the counters' names without prefix and ``_total``; ``label`` holds the place (0 without it). Where a
    server writes both spellings of a counter, the one with ``_total`` counts.
    """
    sums: dict[tuple[Field, bool, int], float] = {}
    for sample in samples:
        begins = next((prefix for prefix in prefixes if sample.name.startswith(prefix)), "")
        wanted = fields.get(sample.counter[len(begins) :])
        if wanted is None or not sample.finite:
            continue
        place = sample.labels.get(label, "")
        key = (wanted, sample.name.endswith(TOTAL), int(place) if place.isdigit() else 0)
        sums[key] = sums.get(key, 0.0) + sample.value
    found: dict[Field, dict[int, int]] = {}
    for (wanted, _, at), value in sorted(sums.items(), key=lambda total: total[0][1]):
        found.setdefault(wanted, {})[at] = int(value)
    return found


def by_place(counts: Mapping[int, int]) -> list[int]:
    """Counts by place as a list, 0 where nothing was counted."""
    if not counts:
        return []
    return [counts.get(at, 0) for at in range(max(counts) + 1)]


class SpecDecodeCounters(Engine):
    """An engine whose counters of drafting have vLLM's names: ``<prefix>spec_decode_num_drafts_total`` and others."""

    _FIELDS: ClassVar[Mapping[str, str]] = {
        "spec_decode_num_drafts": "num_drafts",
        "spec_decode_num_draft_tokens": "draft_tokens",
        "spec_decode_num_accepted_tokens": "accepted_tokens",
        "spec_decode_num_accepted_tokens_per_pos": "per_position",
    }

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The totals of these counters; see `Engine.drafted`."""
        found = by_field(samples, self._FIELDS, self.prefixes, "position")
        if not found:
            return None
        # What an older engine does not count is not 0 but unknown.
        totals = {name: counts.get(0, 0) for name, counts in found.items()}
        return Drafted(
            num_drafts=totals.get("num_drafts"),
            draft_tokens=totals.get("draft_tokens"),
            accepted_tokens=totals.get("accepted_tokens"),
            per_position=by_place(found.get("per_position", {})),
        )


def spec_decode_series(prefix: str, **names: str) -> Series:
    """The `Series` of such an engine; ``names`` has what else it shows."""
    return Series(
        drafts=f"{prefix}spec_decode_num_drafts_total",
        draft_tokens=f"{prefix}spec_decode_num_draft_tokens_total",
        accepted_tokens=f"{prefix}spec_decode_num_accepted_tokens_total",
        accepted_at=f"{prefix}spec_decode_num_accepted_tokens_per_pos_total",
        **names,
    )
