"""What a profile and a site hold, as types; `schemas.py` checks the files by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import FOLDER, GPU, HOME, HOST, IMAGE, NAME, Count, Plain, Variables
from ..core.schema import Anything
from ..engines.entry_types import Options
from ..prompts.load_levels import LadderWishes

if TYPE_CHECKING:
    from typing import NotRequired


#: What a person wrote that was held against no shape yet: a site, a part of a profile.
Unchecked = Mapping[str, object]


Runtime = Literal["docker", "process"]
RouterPolicy = Literal["consistent_hash", "cache_aware", "sticky_least_loaded", "power_of_two", "round_robin", "random"]
Folder = Annotated[str, {"form": FOLDER}]
Host = Annotated[str, {"form": HOST}]
Port = Annotated[int, {"low": 1, "high": 65535}]


class Speculation(TypedDict):
    """How a profile speculates."""

    method: str
    draft: NotRequired[str]
    num_speculative_tokens: Count
    options: NotRequired[Options]


class Expectation(TypedDict):
    """The acceptance that somebody published, and where."""

    acceptance: Annotated[float, {"low": 0, "high": 1}]
    source: str


class PromptCounts(TypedDict):
    """How many prompts of a kind are asked."""

    declared: NotRequired[Count]
    others: NotRequired[Count]


class ExperimentWishes(TypedDict):
    """What a profile measures."""

    suites: list[str]
    kinds: NotRequired[list[str]]
    once: NotRequired[list[str]]
    prompts_per_kind: NotRequired[PromptCounts]
    # Prompts of the declared kinds that every round asks, and fresh ones of each of the first rounds.
    anchors: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    fresh: NotRequired[Annotated[int, {"low": 0, "high": 1_000}]]
    max_output_tokens: NotRequired[Annotated[int, {"low": 8}]]
    stock: NotRequired[bool]
    concurrency: NotRequired[Count]
    # To begin with; the budget buys more of them while the evidence is in doubt.
    rounds: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    budget: NotRequired[Annotated[str | int | float, Anything()]]
    most_rounds: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    schedule: NotRequired[Literal["auto", "interleaved", "alternated"]]
    ladder: NotRequired[LadderWishes]


class Tunable(TypedDict):
    """What `make tune` may change: options with the values to try."""

    serve: NotRequired[dict[str, list[Any]]]
    options: NotRequired[dict[str, list[Any]]]
    methods: NotRequired[list[str]]
    drafts: NotRequired[list[str]]
    num_speculative_tokens: NotRequired[list[Count]]


class TunedSpeed(TypedDict):
    """A speed-up of the tuner's: the geometric mean over so many prompts, and its interval."""

    gain: float
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
    environment: NotRequired[Variables]
    temperature: NotRequired[Annotated[float, {"low": 0, "high": 2}]]
    expect: NotRequired[Expectation]
    experiment: ExperimentWishes
    verified: NotRequired[list[str]]
    # Known issues (catalog/known-issues.yml) that it runs into all the same, and why that is right.
    accept_known_issues: NotRequired[Annotated[dict[str, str], {"names": NAME}]]
    tunable: NotRequired[Tunable]
    # What the tuner left in a profile it wrote: where the values come from, and what they brought.
    tuned: NotRequired[Annotated[Tuned, Anything()]]


class WatchdogRules(TypedDict, total=False):
    """The fields of `decision.Rules`, which has their defaults: those that a site sets; times in seconds."""

    look_s: Annotated[float, {"low": 10, "high": 86_400}]
    patience_s: Annotated[float, {"low": 0, "high": 86_400}]
    dwell_s: Annotated[float, {"low": 10}]
    least_drafted: Count
    # The two ranges only touch: with the bars the wrong way round nothing would stand still between them.
    off_below: Annotated[float, {"low": 0.1, "high": 1.03}]
    on_above: Annotated[float, {"low": 1.03, "high": 10}]
    trial_after_s: Annotated[float, {"low": 10}]
    trial_at_most_s: Annotated[float, {"low": 10}]


class WatchdogSettings(WatchdogRules, total=False):
    """What a site says of the watchdog; times in seconds."""

    mode: Literal["report", "restart"]
    every_s: Annotated[float, {"low": 1, "high": 60}]
    drain_s: Annotated[float, {"low": 0, "high": 3600}]


class MonitoringWishes(TypedDict):
    """What a site says of the monitoring."""

    enabled: bool
    # The first of five in a row: Prometheus, node, blackbox and DCGM exporter, Grafana.
    port: NotRequired[Annotated[int, {"low": 1, "high": 65531}]]
    # Where Prometheus and Grafana listen; the firewall then lets drafthouse_allow_cidrs in, and nobody else.
    listen: NotRequired[str]
    retention_days: NotRequired[Annotated[int, {"low": 1, "high": 3650}]]
    retention_gb: NotRequired[Annotated[int, {"low": 1, "high": 10_000}]]
    # Only in the docker runtime.
    grafana: NotRequired[bool]
    # HOST:PORT of an Alertmanager that is told of alerts.
    alertmanager: NotRequired[str]


class FleetWishes(TypedDict):
    """What a site says of its fleet; times in seconds."""

    # The host of the inventory that clients reach; empty: the first one that has a fleet.
    front: NotRequired[Plain]
    port: NotRequired[Port]
    # A DNS name that leads to the front: certificates are then asked for and renewed.
    name: NotRequired[Plain]
    # The model's name in requests, the same on all replicas; empty: the profile's own.
    served_name: NotRequired[Plain]
    # How Caddy chooses. The others that it has keep a client at a replica by address, and see no load.
    policy: NotRequired[Literal["least_conn", "round_robin", "random"]]
    router: NotRequired[Literal["caddy", "vllm-router"]]
    # How vllm-router chooses.
    router_policy: NotRequired[RouterPolicy]
    drain_s: NotRequired[Annotated[float, {"low": 0, "high": 86_400}]]


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

    # Whether driver, container engine and firewall of the box are ours to install.
    manage_host: bool
    runtime: Runtime
    # Whether the command line names it. What the inventory says gives way where a profile has only one runtime.
    runtime_asked: NotRequired[bool]
    home: Annotated[str, {"form": HOME}]
    models_dir: Annotated[str, {"form": HOME}]
    host: Host
    port: Annotated[int, {"low": 1, "high": 65534}]
    allow_cidrs: NotRequired[list[str]]
    # TLS and the API key in front of the engine, which then stays on loopback.
    gateway: NotRequired[bool]
    gateway_port: NotRequired[Port]
    gateway_name: NotRequired[Plain]
    # Several boxes of this inventory behind one address (docs/fleet.md).
    fleet: NotRequired[FleetWishes]
    # Where the other boxes of the fleet reach this one; without it where Ansible does.
    address: NotRequired[Host]
    # Whether speculation still pays on real traffic, and what to do where it does not.
    watchdog: NotRequired[WatchdogSettings]
    # Prometheus with rules and alerts for the engine, and a dashboard (docs/monitoring.md).
    monitoring: NotRequired[MonitoringWishes]
    engine_image: NotRequired[Annotated[str, {"form": IMAGE}]]
    # A server of the engine that was built on the box, for the process runtime; nothing is installed in its place.
    engine_program: NotRequired[Folder]
    # The GPUs that are ours, as nvidia-smi -L lists them: indices or UUIDs. Without it CUDA_VISIBLE_DEVICES of the
    # box, otherwise all of them.
    gpus: NotRequired[list[Annotated[str, {"form": GPU}]]]
    price_per_hour: NotRequired[Annotated[float, {"low": 0}]]
    # Of the price, as a report writes it: EUR, $.
    currency: NotRequired[str]
    # Where weights may lie already, asked before the hub: a folder or mount of the box.
    weights_from: NotRequired[Plain]
    # A folder of the box, or a page, with wheels for all environments; asked beside the package index.
    find_links: NotRequired[Plain]
    # The box reaches no network: packages come from find_links alone, weights and images must be there.
    offline: NotRequired[bool]
    # Folders of the controller with profiles and catalogue entries of one's own (docs/models.md).
    profiles_dir: NotRequired[list[str]]
    hosts_per_replica: NotRequired[int]
    replica: NotRequired[str]
    private_subnet: NotRequired[str]
    replica_port: NotRequired[int]
    executor: NotRequired[str]
    ray_address: NotRequired[str]
    span: NotRequired[Span]
