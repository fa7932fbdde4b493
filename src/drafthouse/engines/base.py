"""The base class of all inference engines (vLLM, SGLang, ...): how to read counters, logs and pasted commands.

To add an engine, subclass `Engine` (docs/add-an-engine.md). How an engine is started, its versions, options and
methods are data in `profiles/catalog/engines/<name>.yml`; its renamed and removed flags are data in
`profiles/catalog/old_flags/<name>.yml`. This class holds what needs code. Each attribute and method has a default that
suits an engine without counters: it is measured too, and its draft tokens are counted from its answers.
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
    """The names of an engine's Prometheus series; '' if the engine does not have that series."""

    drafts: str
    draft_tokens: str
    accepted_tokens: str
    accepted_at: str  # accepted tokens by draft position
    output_tokens: str
    input_tokens: str
    drafts_where: str = ""  # a label matcher for ``drafts``
    not_accepted: str = ""  # series to subtract if ``accepted_tokens`` counts other tokens too; blanks between names
    position: str = "position"  # the label of ``accepted_at`` with the draft position
    output_seconds: str = ""  # total seconds spent on output tokens, for an engine without a TPOT histogram
    running: str = ""  # requests in progress
    waiting: str = ""  # requests in the queue
    kv_cache: str = ""  # the used fraction
    ttft: str = ""  # this and the next two are histograms in seconds
    tpot: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Drafted:
    """Speculation counters of a server since its start; None for a figure that the engine does not count."""

    num_drafts: int | None = 0
    draft_tokens: int | None = 0
    accepted_tokens: int | None = 0
    per_position: list[int] = field(default_factory=list)  # accepted tokens by draft position, the first one first
    family: str | None = None  # the set of counters that was read; figures of two families must not be compared
    length: float | None = None  # mean acceptance length of the last few steps, from a gauge; None with counters


@dataclass(frozen=True)
class LogLine:
    """Speculation figures of one log line, which cover the time since the previous such line."""

    num_drafts: float | None  # computed from the other figures, hence no whole number; None where it cannot be
    draft_tokens: int  # 0, as the next, for an engine that logs no counts
    accepted_tokens: int
    rates: list[float]  # acceptance rates (fractions) by draft position; [] if they are not logged
    length: float | None = None  # the mean acceptance length, of an engine that logs no counts


@dataclass(frozen=True)
class HostPlace:
    """The place of a host among several that serve one model together. Rank 0 is the head: it alone has the API."""

    rank: int
    addresses: tuple[str, ...]  # of all hosts in their private subnet, by rank
    interface: str  # of this host in that subnet
    infiniband: tuple[str, ...]  # names of this host's InfiniBand adapters, if any
    ports: tuple[int, int]  # free ports of the head; an executor uses ports from the second one up, on every host
    copies: int  # complete models over all hosts; 1: one model, split over the hosts
    devices: int  # GPUs of this host that serve
    executor: str = "mp"  # what starts the workers: the engine ("mp"), or a key of `Engine.executors`
    cluster: str = ""  # the address of an executor's cluster that already runs, or ''
    token_file: str = ""  # the file with the secret that admits a host to the cluster

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return len(self.addresses)

    @property
    def head(self) -> str:
        """The address of the host with rank 0."""
        return self.addresses[0]

    @property
    def address(self) -> str:
        """The address of this host."""
        return self.addresses[self.rank]


@dataclass(frozen=True)
class Executor:
    """A program other than the engine that starts its workers on several hosts (Ray, for example)."""

    since: str  # the oldest engine version that has been run with it
    packages: tuple[str, ...]  # requirements that it adds to the engine's environment
    tools: tuple[str, ...]  # files that it needs from roles/engine/files


class Engine:
    """The facts and parsers of one engine. Subclass it, and add an instance to `ENGINES` in `registry.py`.

    A pasted command is an old command of a user, which ``drafthouse translate`` turns into a profile. "Drafting" is the
    work of speculation: a draft is a guess of several tokens that the model then verifies.
    """

    # --- names and counters: facts --------------------------------------------------------------------------

    #: The engine's name in the catalogue, also in ``metrics.dialect`` of an entry.
    name: ClassVar[str] = ""
    #: The engine whose command and counters this one shares (``like`` in its entry); '' for none.
    like: ClassVar[str] = ""
    #: Prefixes of the names of its Prometheus series.
    prefixes: ClassVar[tuple[str, ...]] = ()
    #: Parts of the names of the series that `drafted` reads.
    drafting_words: ClassVar[tuple[str, ...]] = ("spec_decode",)
    #: The series that monitoring records; None: Prometheus only checks that the server is up.
    series: ClassVar[Series | None] = None
    #: Counter (without ``_total``) -> what it counts: requests, input_tokens, output_tokens or cached_tokens (prompt
    #: tokens from the prefix cache), all since the start; or running: requests now in progress or in the queue.
    traffic: ClassVar[Mapping[str, str]] = {}
    #: True if its /tokenize returns the tokens of a text.
    tokenizes: ClassVar[bool] = False
    #: True if the draft counters exist, as 0, before the first draft. If False, their absence proves nothing.
    shows_zeros: ClassVar[bool] = True
    #: The message for a server without any sign of drafting, and the counters that would show it.
    no_sign: ClassVar[str] = ""
    see_drafts: ClassVar[str] = ""
    #: The path that tells whether a running server speculates, for an engine whose counters do not; '' for none.
    slots: ClassVar[str] = ""

    # --- one model over several hosts: facts ----------------------------------------------------------------

    #: The oldest version that serves one model over several hosts (see `place_flags`); '' if none does.
    spans_hosts_since: ClassVar[str] = ""
    #: Programs that may start its workers on several hosts, by the value of the inventory's `drafthouse_executor`.
    executors: ClassVar[Mapping[str, Executor]] = {}
    #: Patterns of the names of packages that must have the same version on all of these hosts.
    same_on_hosts: ClassVar[tuple[str, ...]] = ()

    # --- pasted command: how to recognise it ----------------------------------------------------------------

    #: Serving programs, without their folder, each with the subcommand that serves ('' if there are none).
    programs: ClassVar[Mapping[str, str]] = {}
    #: The program among these that reads models from an ini file of presets; '' if none does.
    presets_of: ClassVar[str] = ""
    #: Subcommands that do not serve a model -> what they start, for a message.
    other_verbs: ClassVar[Mapping[str, str]] = {}
    #: Serving Python modules, as after ``python -m``.
    python_modules: ClassVar[tuple[str, ...]] = ()
    #: Patterns of container images, each with the command of the entrypoint (empty if the user gives the command).
    images: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    #: The prefix of environment variables that stand for flags.
    flag_variables: ClassVar[str] = ""
    #: The command that Kubernetes charts and Ray Serve start without naming it; empty if it is not this engine's.
    chart_command: ClassVar[tuple[str, ...]] = ()
    #: Python classes whose constructor takes the engine's settings.
    python_calls: ClassVar[tuple[str, ...]] = ()
    #: A package with such classes that cannot be translated: its name, what is needed instead, what to do.
    python_package: ClassVar[tuple[str, str, str] | None] = None
    #: Forms of its commands, as a message lists them.
    forms: ClassVar[tuple[str, ...]] = ()
    #: True if the file that a command names holds the command's flags.
    flags_in_file: ClassVar[bool] = False

    # --- counters and log -----------------------------------------------------------------------------------

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The speculation counters in ``samples``, which are all of this engine; None if there are none."""
        return None

    def log_lines(self, text: str) -> list[LogLine]:
        """The lines of the log ``text`` that report speculation."""
        return []

    def speculates(self, text: str) -> bool | None:
        """True if the response ``text`` from the path `slots` shows speculation; None if it does not tell."""
        return None

    # --- one model over several hosts -----------------------------------------------------------------------

    def place_flags(self, place: HostPlace) -> list[Flag]:
        """The flags with which the host at ``place`` joins the others; none for an engine of one host."""
        return []

    def place_words(self, place: HostPlace) -> list[str]:
        """The executor's command: it precedes the engine's command on the head, and replaces it on other hosts."""
        return []

    def place_environment(self, place: HostPlace) -> dict[str, str]:
        """The environment variables with which the host at ``place`` finds the others."""
        return {}

    # --- configuration file ---------------------------------------------------------------------------------

    def config_problems(self, data: Settings, version: str, where: str) -> list[Problem]:
        """What engine ``version`` would refuse in the configuration file ``data``, which ``where`` names."""
        return []

    def config_warnings(self, data: Settings) -> list[str]:
        """What the engine would silently change in the valid configuration file ``data``."""
        return []

    def shows_counters(self, config: Settings) -> bool:
        """True if a server with the configuration file ``config`` (empty: without a file) has a metrics endpoint."""
        return self.series is not None

    # --- pasted command -------------------------------------------------------------------------------------

    def claims(self, taken: Settings, environment: Mapping[str, str]) -> bool:
        """True if a command of the engine `like` is for this engine; ``taken`` as in `Command`."""
        return False

    def settings_of_call(self, given: Settings) -> Settings:
        """The engine's settings among the keyword arguments ``given`` of one of `python_calls`."""
        return given

    def take_speculation(self, command: Command) -> None:
        """Move the speculation flags from ``command.given`` to ``command.taken``; the model is not yet known then."""

    def read_speculation(self, command: Command) -> Speculation | None:
        """Remove the speculation settings from ``command`` and return them; None if it does not speculate."""
        return None


def by_field(
    samples: Sequence[Sample], fields: Mapping[str, Field], prefixes: Sequence[str], label: str
) -> dict[Field, dict[int, int]]:
    """The values of counters by field, then by draft position, summed over all other labels.

    ``fields`` maps a counter's name without prefix and ``_total`` to its field. ``label`` is the label with the draft
    position; a sample without it is at position 0. A name with ``_total`` overrides the same name without it. Fields
    without a sample are missing; samples without a finite value do not count.
    """
    sums: dict[tuple[Field, bool, int], float] = {}
    for sample in samples:
        prefix = next((prefix for prefix in prefixes if sample.name.startswith(prefix)), "")
        field_of_sample = fields.get(sample.counter[len(prefix) :])
        if field_of_sample is None or not sample.finite:
            continue
        position = sample.labels.get(label, "")
        key = (field_of_sample, sample.name.endswith(TOTAL), int(position) if position.isdigit() else 0)
        sums[key] = sums.get(key, 0.0) + sample.value
    values: dict[Field, dict[int, int]] = {}
    # Sorted by "with `_total`": the sums with that ending come last, and overwrite those without.
    for (field_of_sum, _, at), value in sorted(sums.items(), key=lambda total: total[0][1]):
        values.setdefault(field_of_sum, {})[at] = int(value)
    return values


def by_position(counts: Mapping[int, int]) -> list[int]:
    """``counts`` by draft position as a list; 0 at a position that is missing."""
    if not counts:
        return []
    return [counts.get(position, 0) for position in range(max(counts) + 1)]


class SpecDecodeCounters(Engine):
    """An engine with vLLM's names of draft counters, such as ``<prefix>spec_decode_num_drafts_total``."""

    _FIELDS: ClassVar[Mapping[str, str]] = {
        "spec_decode_num_drafts": "num_drafts",
        "spec_decode_num_draft_tokens": "draft_tokens",
        "spec_decode_num_accepted_tokens": "accepted_tokens",
        "spec_decode_num_accepted_tokens_per_pos": "per_position",
    }

    def drafted(self, samples: Sequence[Sample]) -> Drafted | None:
        """The totals of the counters in `_FIELDS`; see `Engine.drafted`."""
        values = by_field(samples, self._FIELDS, self.prefixes, "position")
        if not values:
            return None
        # A counter that an older version does not have is unknown (None), not 0.
        totals = {name: counts.get(0, 0) for name, counts in values.items()}
        return Drafted(
            num_drafts=totals.get("num_drafts"),
            draft_tokens=totals.get("draft_tokens"),
            accepted_tokens=totals.get("accepted_tokens"),
            per_position=by_position(values.get("per_position", {})),
        )


def spec_decode_series(prefix: str, **names: str) -> Series:
    """The `Series` of a `SpecDecodeCounters` engine; ``names`` are its further series, by the fields of `Series`."""
    return Series(
        drafts=f"{prefix}spec_decode_num_drafts_total",
        draft_tokens=f"{prefix}spec_decode_num_draft_tokens_total",
        accepted_tokens=f"{prefix}spec_decode_num_accepted_tokens_total",
        accepted_at=f"{prefix}spec_decode_num_accepted_tokens_per_pos_total",
        **names,
    )
