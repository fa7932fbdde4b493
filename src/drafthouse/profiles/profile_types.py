"""Types of a profile's file and of a site (an inventory's settings); `schemas.py` checks both against them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from ..core.forms import FOLDER, GPU, HOME, HOST, IMAGE, NAME, Count, Plain, Variables
from ..core.schema import Anything
from ..engines.entry_types import Options
from ..prompts.load_levels import LadderWishes

if TYPE_CHECKING:
    from typing import NotRequired


#: Data that a person wrote and that is not checked against its shape yet: a site, or a part of a profile.
Unchecked = Mapping[str, object]


Runtime = Literal["docker", "process"]
RouterPolicy = Literal["consistent_hash", "cache_aware", "sticky_least_loaded", "power_of_two", "round_robin", "random"]
Folder = Annotated[str, {"form": FOLDER}]
Host = Annotated[str, {"form": HOST}]
Port = Annotated[int, {"low": 1, "high": 65535}]


class Speculation(TypedDict):
    """The speculation of a profile."""

    method: str
    also: NotRequired[str]  # a lookup that runs beside the method, for an engine that can run both
    draft: NotRequired[str]  # a model or a separate head
    num_speculative_tokens: Count  # K, the tokens per draft
    options: NotRequired[Options]  # of the method


class Expectation(TypedDict):
    """What a publication lets expect."""

    acceptance: Annotated[float, {"low": 0, "high": 1}]  # the chance that one drafted token is accepted
    source: str  # the publication


class PromptCounts(TypedDict):
    """The most prompts of a kind; missing: all that the suite has."""

    declared: NotRequired[Count]  # of each declared kind; the verdict is about those
    others: NotRequired[Count]  # of each other kind


class ExperimentWishes(TypedDict):
    """The key `experiment` of a profile: what to measure, and for how long."""

    suites: list[str]
    kinds: NotRequired[list[str]]  # declared kinds of prompts, which the verdict is about; missing: all without a gate
    once: NotRequired[list[str]]  # suites or kinds that only the first round sends
    prompts_per_kind: NotRequired[PromptCounts]
    # Prompts of the declared kinds: every round sends the same anchors; each of the first two also sends fresh ones.
    anchors: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    fresh: NotRequired[Annotated[int, {"low": 0, "high": 1_000}]]
    max_output_tokens: NotRequired[Annotated[int, {"low": 8}]]
    stock: NotRequired[bool]  # also measure the stock arm
    concurrency: NotRequired[Count]  # requests at once
    # Rounds that are always measured. While the verdict is uncertain, the budget allows more, up to most_rounds.
    rounds: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    budget: NotRequired[Annotated[str | int | float, Anything()]]  # time for more rounds (`budget.parse_budget`)
    most_rounds: NotRequired[Annotated[int, {"low": 2, "high": 1_000}]]
    schedule: NotRequired[Literal["auto", "interleaved", "alternated"]]  # arms side by side, or in turn
    ladder: NotRequired[LadderWishes]  # a load sweep


class Tunable(TypedDict):
    """The settings that `make tune` may change, with the values to try."""

    load: NotRequired[Count]  # concurrent requests at which the best candidates are measured too
    serve: NotRequired[dict[str, list[Any]]]  # by server option
    options: NotRequired[dict[str, list[Any]]]  # by option of the method
    methods: NotRequired[list[str]]
    drafts: NotRequired[list[str]]
    num_speculative_tokens: NotRequired[list[Count]]  # K


class TunedSpeed(TypedDict):
    """A speed-up that the tuner measured; 1.2 is 1.2 times as fast."""

    gain: float  # the geometric mean over the prompts
    low: float  # its interval
    high: float
    prompts: int


class EqualAnswers(TypedDict):
    """Answers at temperature 0 that are the same text as the baseline's."""

    pairs: int
    equal: int  # of the pairs
    control: float | None  # the fraction of equal answers if the baseline itself is asked twice; None if it is not


_From = TypedDict("_From", {"from": str})


class Tuned(_From):
    """The tuner's record of how it found a profile's values; ``from`` is the original profile."""

    date: str
    inventory: str
    engine: str
    budget_s: int  # seconds that it might take
    spent_s: NotRequired[int]  # seconds that it took
    verdict: NotRequired[str]  # a sentence
    rule: NotRequired[str]  # by which the verdict was found
    over_profile: NotRequired[TunedSpeed]  # speed-up over the original profile
    over_baseline: NotRequired[TunedSpeed]
    equal_outputs: NotRequired[EqualAnswers]
    outputs: NotRequired[str]  # whether the answers are the baseline's, in words
    searched_with: NotRequired[str]  # the prompts of the search, in words
    judged_with: NotRequired[str]  # the prompts of the verdict, in words
    ended: NotRequired[str]  # why the search ended
    tried: NotRequired[dict[str, str | float | None]]  # by candidate, its speed-up, why it was left out, or None
    notes: NotRequired[list[str]]


class Profile(TypedDict):
    """A file of `profiles/`: names of entries in the catalogue (hardware, engine, models), and settings for them."""

    title: str
    article: NotRequired[str]  # the article whose commands the profile replaces
    hardware: str
    engine: str
    engine_version: NotRequired[str]  # missing: the catalogue's default
    plugin_version: NotRequired[str]
    channel: NotRequired[Literal["stable", "nightly"]]  # nightly: a build without a version
    runtimes: NotRequired[list[Runtime]]  # in which it may run; missing: all that the engine has
    target: str
    speculation: Speculation
    serve: NotRequired[Options]  # server options of every arm, and `extra`, further flags
    environment: NotRequired[Variables]  # of every arm
    temperature: NotRequired[Annotated[float, {"low": 0, "high": 2}]]  # missing: that of the target's entry
    expect: NotRequired[Expectation]
    experiment: ExperimentWishes
    verified: NotRequired[list[str]]  # hardware on which it was run
    # Known issues (catalog/known-issues.yml) that the profile accepts, each with the reason.
    accept_known_issues: NotRequired[Annotated[dict[str, str], {"names": NAME}]]
    tunable: NotRequired[Tunable]
    # Only in a profile that the tuner wrote.
    tuned: NotRequired[Annotated[Tuned, Anything()]]


class WatchdogRules(TypedDict, total=False):
    """The fields of the watchdog's `decision.Rules`, which has the defaults, that a site sets. Times are in seconds."""

    look_s: Annotated[float, {"low": 10, "high": 86_400}]  # the time window of a decision
    patience_s: Annotated[float, {"low": 0, "high": 86_400}]  # of traffic below off_below before it switches
    dwell_s: Annotated[float, {"low": 10}]  # at least, between two changes of the server
    least_drafted: Count  # drafted tokens in look_s that a decision needs
    # Gains. The ranges meet at 1.03: if off_below exceeded on_above, the watchdog would switch to and fro.
    off_below: Annotated[float, {"low": 0.1, "high": 1.03}]
    on_above: Annotated[float, {"low": 1.03, "high": 10}]
    trial_after_s: Annotated[float, {"low": 10}]  # until speculation is tried again; doubled by each failed trial
    trial_at_most_s: Annotated[float, {"low": 10}]  # the limit of that doubling


class WatchdogSettings(WatchdogRules, total=False):
    """A site's settings of the watchdog (`drafthouse_watchdog`). Times are in seconds."""

    mode: Literal["report", "restart"]
    every_s: Annotated[float, {"low": 1, "high": 60}]  # between two samples
    drain_s: Annotated[float, {"low": 0, "high": 3600}]  # for running requests to finish before a change


class MonitoringWishes(TypedDict):
    """A site's settings of the monitoring (`drafthouse_monitoring`)."""

    enabled: bool
    # The first of five consecutive ports: Prometheus, node, blackbox and DCGM exporter, Grafana.
    port: NotRequired[Annotated[int, {"low": 1, "high": 65531}]]
    # The address at which Prometheus and Grafana listen; the firewall admits drafthouse_allow_cidrs only.
    listen: NotRequired[str]
    retention_days: NotRequired[Annotated[int, {"low": 1, "high": 3650}]]
    retention_gb: NotRequired[Annotated[int, {"low": 1, "high": 10_000}]]
    # In the docker runtime only.
    grafana: NotRequired[bool]
    # HOST:PORT of an Alertmanager that receives the alerts.
    alertmanager: NotRequired[str]


class FleetWishes(TypedDict):
    """A site's settings of its fleet: several boxes behind one address, the front. Times are in seconds."""

    # The host of the inventory that runs the front; empty: the first host that has a fleet.
    front: NotRequired[Plain]
    port: NotRequired[Port]
    # A DNS name of the front: certificates are then obtained and renewed automatically.
    name: NotRequired[Plain]
    # The model's name in requests, the same on all replicas; empty: the name from the profile.
    served_name: NotRequired[Plain]
    # Caddy's choice of a replica. Its other policies bind a client to a replica by address and ignore the load.
    policy: NotRequired[Literal["least_conn", "round_robin", "random"]]
    router: NotRequired[Literal["caddy", "vllm-router"]]
    # The router's choice of a replica.
    router_policy: NotRequired[RouterPolicy]
    drain_s: NotRequired[Annotated[float, {"low": 0, "high": 86_400}]]


class Span(TypedDict):
    """A host's place in its replica, the hosts that serve one model."""

    replica: str  # its name
    rank: int  # 0 is the head, which has the API
    names: list[str]  # of all hosts of the replica, by rank
    addresses: list[str]  # their private addresses, by rank
    interface: str  # of the host itself, in the private network
    infiniband: list[str]  # adapters of the host itself


class Together(TypedDict):
    """Values that keep the hosts of a replica on one arm."""

    digest: str  # hash of the settings that all hosts must share
    # The command in front of the head's engine; [] on its followers, which only follow what the head serves.
    keeper: list[str]
    # The executor's command: behind the keeper on the head, in place of the engine's command on a follower.
    words: list[str]


class Site(TypedDict):
    """An inventory's variables `drafthouse_<key>`, by key."""

    # True: Drafthouse installs the driver, the container engine and the firewall of the box.
    manage_host: bool
    runtime: Runtime
    # True: the command line names the runtime. The inventory's gives way if a profile has only one runtime.
    runtime_asked: NotRequired[bool]
    # Folders of the box: for Drafthouse's files, and for weights.
    home: Annotated[str, {"form": HOME}]
    models_dir: Annotated[str, {"form": HOME}]
    # The engine's address and port; a second arm beside it has the next port.
    host: Host
    port: Annotated[int, {"low": 1, "high": 65534}]
    # Networks whose clients the firewall admits.
    allow_cidrs: NotRequired[list[str]]
    # A proxy with TLS and the API key in front of the engine, which then listens on loopback only.
    gateway: NotRequired[bool]
    gateway_port: NotRequired[Port]
    gateway_name: NotRequired[Plain]
    # Several boxes of this inventory behind one address (docs/fleet.md).
    fleet: NotRequired[FleetWishes]
    # The address at which the other boxes of the fleet reach this one; default: Ansible's.
    address: NotRequired[Host]
    # A check whether speculation still pays on live traffic (docs/watchdog.md).
    watchdog: NotRequired[WatchdogSettings]
    # Prometheus with alerts for the engine, and a dashboard (docs/monitoring.md).
    monitoring: NotRequired[MonitoringWishes]
    # A mirror or an image of one's own in place of the catalogue's, for the same engine version.
    engine_image: NotRequired[Annotated[str, {"form": IMAGE}]]
    # A server program of the engine that was built on the box; the process runtime starts it and installs none.
    engine_program: NotRequired[Folder]
    # The GPUs to use, as nvidia-smi -L lists them: indices or UUIDs. Default: CUDA_VISIBLE_DEVICES of the box, else
    # all GPUs.
    gpus: NotRequired[list[Annotated[str, {"form": GPU}]]]
    # What an hour of the box costs, for the report.
    price_per_hour: NotRequired[Annotated[float, {"low": 0}]]
    # The price's currency, as a report writes it: EUR, $.
    currency: NotRequired[str]
    # A folder or mount of the box that may already hold the weights; it is searched before the hub.
    weights_from: NotRequired[Plain]
    # A folder of the box, or a web page, with wheels for all environments, in addition to the package index.
    find_links: NotRequired[Plain]
    # The box reaches no network: packages come from find_links only; weights and images must be on the box.
    offline: NotRequired[bool]
    # Folders of the controller with the user's own profiles and catalogue entries (docs/models.md).
    profiles_dir: NotRequired[list[str]]
    # One model over several hosts (docs/several-hosts.md); `several_hosts.SETTINGS` limits these keys.
    hosts_per_replica: NotRequired[int]
    replica: NotRequired[str]
    private_subnet: NotRequired[str]
    replica_port: NotRequired[int]
    executor: NotRequired[str]
    ray_address: NotRequired[str]
    span: NotRequired[Span]
