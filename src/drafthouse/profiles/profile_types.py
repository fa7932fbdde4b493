"""What a profile and a site hold, as types; `schemas.py` and `site_schema.py` check the files against the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

    from ..engines.entry_types import Options
    from ..prompts.load_levels import LadderWishes


#: What a person wrote that was held against no shape yet: a site, a part of a profile.
Unchecked = Mapping[str, object]


Runtime = Literal["docker", "process"]


class Speculation(TypedDict):
    """How a profile speculates."""

    method: str
    draft: NotRequired[str]
    num_speculative_tokens: int
    options: NotRequired[Options]


class Expectation(TypedDict):
    """The acceptance that somebody published, and where."""

    acceptance: float
    source: str


class PromptCounts(TypedDict):
    """How many prompts of a kind are asked."""

    declared: NotRequired[int]
    others: NotRequired[int]


class ExperimentWishes(TypedDict):
    """What a profile measures."""

    suites: list[str]
    kinds: NotRequired[list[str]]
    once: NotRequired[list[str]]
    prompts_per_kind: NotRequired[PromptCounts]
    max_output_tokens: NotRequired[int]
    stock: NotRequired[bool]
    concurrency: NotRequired[int]
    rounds: NotRequired[int]
    budget: NotRequired[str | int | float]
    most_rounds: NotRequired[int]
    schedule: NotRequired[Literal["auto", "interleaved", "alternated"]]
    ladder: NotRequired[LadderWishes]


class Tunable(TypedDict):
    """What `make tune` may change: options with the values to try."""

    serve: NotRequired[dict[str, list[Any]]]
    options: NotRequired[dict[str, list[Any]]]
    methods: NotRequired[list[str]]
    drafts: NotRequired[list[str]]
    num_speculative_tokens: NotRequired[list[int]]


class TunedSpeed(TypedDict):
    """A speed-up of the tuner's: the median over so many prompts, and its interval."""

    median: float
    low: float
    high: float
    prompts: int


class EqualAnswers(TypedDict):
    """How many answers at temperature 0 are the baseline's own; ``control``: the share of them where it is asked twice.

    None where it was not.
    """

    pairs: int
    equal: int
    control: float | None


_From = TypedDict("_From", {"from": str})


class Tuned(_From):
    """How the tuner found a profile's values, and what they brought; ``tried``: each candidate's speed, or why not."""

    date: str
    inventory: str
    engine: str
    budget_s: int
    spent_s: NotRequired[int]
    verdict: NotRequired[str]
    rule: NotRequired[str]
    over_profile: NotRequired[TunedSpeed]
    over_baseline: NotRequired[TunedSpeed]
    equal_outputs: NotRequired[EqualAnswers]
    outputs: NotRequired[str]
    searched_with: NotRequired[str]
    judged_with: NotRequired[str]
    ended: NotRequired[str]
    tried: NotRequired[dict[str, str | float | None]]
    notes: NotRequired[list[str]]


class Profile(TypedDict):
    """A file of `profiles/`."""

    title: str
    article: NotRequired[str]
    hardware: str
    engine: str
    engine_version: NotRequired[str]
    plugin_version: NotRequired[str]
    channel: NotRequired[Literal["stable", "nightly"]]
    runtimes: NotRequired[list[Runtime]]
    target: str
    speculation: Speculation
    serve: NotRequired[Options]
    environment: NotRequired[dict[str, str]]
    temperature: NotRequired[float]
    expect: NotRequired[Expectation]
    experiment: ExperimentWishes
    verified: NotRequired[list[str]]
    accept_known_issues: NotRequired[dict[str, str]]
    tunable: NotRequired[Tunable]
    tuned: NotRequired[Tuned]


class WatchdogSettings(TypedDict):
    """What a site says of the watchdog; times in seconds."""

    mode: NotRequired[Literal["report", "schedule", "restart"]]
    every_s: NotRequired[float]
    drain_s: NotRequired[float]
    look_s: NotRequired[float]
    patience_s: NotRequired[float]
    dwell_s: NotRequired[float]
    least_drafted: NotRequired[int]
    off_below: NotRequired[float]
    on_above: NotRequired[float]
    trial_after_s: NotRequired[float]
    trial_at_most_s: NotRequired[float]


class MonitoringWishes(TypedDict):
    """What a site says of the monitoring."""

    enabled: bool
    port: NotRequired[int]
    listen: NotRequired[str]
    retention_days: NotRequired[int]
    retention_gb: NotRequired[int]
    grafana: NotRequired[bool]
    alertmanager: NotRequired[str]


class FleetWishes(TypedDict):
    """What a site says of its fleet; times in seconds."""

    front: NotRequired[str]
    port: NotRequired[int]
    name: NotRequired[str]
    served_name: NotRequired[str]
    policy: NotRequired[str]
    router: NotRequired[str]
    router_policy: NotRequired[str]
    probe_s: NotRequired[float]
    drain_s: NotRequired[float]


class Span(TypedDict):
    """A host's place among those of a replica: ``rank`` 0 is the head. Addresses are of the private subnet."""

    replica: str
    rank: int
    names: list[str]
    addresses: list[str]
    interface: str
    infiniband: list[str]


class Together(TypedDict):
    """Of an arm over several hosts: a hash of what is the same on all, and the head's words before its command.

    ``words``: of an executor, behind those; a follower runs them alone.
    """

    digest: str
    keeper: list[str]
    words: list[str]


class Site(TypedDict):
    """What the inventory says: its `drafthouse_*`."""

    manage_host: bool
    runtime: Runtime
    runtime_asked: NotRequired[bool]
    home: str
    models_dir: str
    host: str
    port: int
    allow_cidrs: NotRequired[list[str]]
    gateway: NotRequired[bool]
    gateway_port: NotRequired[int]
    gateway_name: NotRequired[str]
    fleet: NotRequired[FleetWishes]
    address: NotRequired[str]
    watchdog: NotRequired[WatchdogSettings]
    monitoring: NotRequired[MonitoringWishes]
    engine_image: NotRequired[str]
    engine_program: NotRequired[str]
    gpus: NotRequired[list[str]]
    price_per_hour: NotRequired[float]
    currency: NotRequired[str]
    weights_from: NotRequired[str]
    weights_from_box: NotRequired[str]
    bundle: NotRequired[str]
    hosts_per_replica: NotRequired[int]
    replica: NotRequired[str]
    private_subnet: NotRequired[str]
    replica_port: NotRequired[int]
    executor: NotRequired[str]
    ray_address: NotRequired[str]
    span: NotRequired[Span]
