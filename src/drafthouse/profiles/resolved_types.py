"""Types of the resolved profile: the explicit data that plan, templates, roles, benchmark and report read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, final

from .catalog_types import BuiltinHead, CatalogModel, HardwareEntry

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.core.first_process import FirstProcess
    from drafthouse.core.shell import Flag
    from drafthouse.engines.entry_types import DraftKind, MethodRequires, Metrics, Options, Settings
    from drafthouse.engines.install_types import EngineInstall
    from drafthouse.profiles.fleet_settings import Fleet
    from drafthouse.profiles.known_issue_schema import MatchedIssue
    from drafthouse.profiles.planned_types import PlannedExperiment
    from drafthouse.profiles.profile_types import Runtime, Site, Together
    from drafthouse.profiles.published_schema import PublishedFigure
    from drafthouse.prompts.suite_types import Suite

SourceKind = Literal["path", "package", "derived", "hub"]
Ports = dict[str, int]
"""Ports by name: of the arms that are served at the same time, or of the monitoring's programs."""


class Hardware(HardwareEntry):
    """The hardware with ``id``, its name in the catalogue."""

    id: str


class Model(CatalogModel):
    """The target or the draft; ``path`` is its folder on the box, or its single file."""

    path: str


class ResolvedEngine(TypedDict):
    """The engine in the version that runs; ``home``: the folder of its environment, or of the site's ``program``."""

    id: str
    name: str
    version: str
    version_reason: str
    plugin: str | None  # the plugin's version
    runtime: Runtime
    runtimes: list[Runtime]
    home: str
    install: EngineInstall | None  # None: it cannot run as a process
    image: str | None  # None: it cannot run in Docker
    template: str
    offline_template: str | None
    health: str  # a path of the server
    ready_timeout_s: int
    metrics: Metrics
    key_environment: str | None  # the variable that takes the API key
    has_key: bool
    program: NotRequired[str]


class ResolvedMethod(TypedDict):
    """The method; ``settings`` are by the engine's own names; ``requires``: what it needs in both arms."""

    id: str
    name: str
    kind: DraftKind
    num_speculative_tokens: int  # K
    settings: Options
    requires: MethodRequires | None


class ScoresBy(TypedDict):
    """The engine's way to score a given text: ``by`` is a field of the request, ``tokens`` the most of such a text."""

    by: str
    tokens: int


class WeightItem(TypedDict):
    """Weights to put at ``path`` on the box; ``details``: the value of the key ``source`` in their `ModelSource`."""

    id: str
    name: str
    source: SourceKind
    details: Any
    path: str
    bytes: int
    allow_pickle: NotRequired[list[str]]  # patterns of the pickled files that are allowed
    pinned: NotRequired[str | None]  # a commit
    from_path: NotRequired[str]  # of the weights from which these are derived
    builtin_head: NotRequired[BuiltinHead]


class Rental(TypedDict):
    """Requirements of a box to rent; `rental_spec.rental_of` documents the fields."""

    vast_names: list[str]
    devices: int
    memory_mib: int  # of one device
    compute_cap: int  # 100 times the compute capability
    cuda: str
    driver: str
    image: str
    disk_gb: int
    download_gb: float


class PairMethod(TypedDict):
    """The method of a pair; ``vocab_difference``: by how many entries the two vocabularies may differ at most."""

    id: str
    kind: DraftKind
    vocab_difference: int


class Pair(TypedDict):
    """A target and its draft, whose files are compared on the box."""

    target_path: str
    draft_path: str
    method: PairMethod


class Elsewhere(TypedDict, total=False):
    """A folder or mount that may already hold weights (the site's `weights_from`); empty if there is none."""

    folder: str
    models_dir: str


class NamedRoute(TypedDict):
    """A path of the engine's server; ``gives``: what a request to it can do (the words of `exposure`)."""

    path: str
    gives: str


class OpenRoute(NamedRoute):
    """A path of the server; ``open`` is True if it answers without a key."""

    open: bool


class ResolvedOpenPaths(TypedDict):
    """The engine's paths; ``ask``: the HTTP method that probes one; ``lists``: the path that lists all, or ''."""

    ask: str
    lists: str
    guards: list[str]
    routes: list[OpenRoute]


class Gateway(TypedDict):
    """The gateway in front; ``hold_s``: seconds for which it holds requests while the watchdog restarts the engine."""

    port: int
    name: str
    hold_s: NotRequired[float]


class Monitoring(TypedDict):
    """The monitoring: its programs, and what they watch (`monitoring_settings.monitoring_of`)."""

    ports: Ports  # of all programs that a box may have, by name
    listen: str  # the address of Prometheus and Grafana; the exporters listen on loopback
    programs: list[str]  # those that run under systemd or supervisord; the others are containers
    open_ports: list[int]  # for the firewall
    retention_days: int  # of Prometheus's data, which are deleted at this age or above the next size
    retention_gb: int
    alertmanager: str  # its address and port; "": none
    grafana: bool
    profile: str  # a label of the engine's series
    target: str  # the engine's address and port, as the box itself reaches it
    health: str  # the path of the engine's health page
    dialect: str  # the engine whose counters Prometheus reads; "": it shows none
    path: str  # of the engine's counters
    key: bool  # whether the counters need the API key
    node: bool  # whether the node exporter shows the machine's memory and processors
    gpu: bool  # whether DCGM's exporter shows the GPUs
    gateway: Gateway | None
    log: str  # for the alerts' texts: the path of the engine's log, or the command that prints it


class ExpectedSpeed(TypedDict):
    """The speed-up that arithmetic expects for ``users`` at once, ``low`` to ``high``; None without an ``acceptance``.

    Speculation pays for ``until`` users at most (None: unknown, or any number) and gains most with K = ``best_tokens``.
    ``decode_limit_tok_s``: tokens/s at batch size one, if decoding does nothing but read ``bytes_per_token``.
    """

    bandwidth_bytes_s: float
    bytes_per_token: int
    decode_limit_tok_s: float
    num_speculative_tokens: int
    draft_cost: float  # bytes read per drafted token, over those per token of the target
    acceptance: float | None
    acceptance_source: str | None
    speedup: float | None
    low: float | None
    high: float | None
    users: int
    until: int | None
    best_tokens: int | None


class EngineYaml(TypedDict):
    """The engine's YAML configuration: the flag that names it, its file in the arm's folder, and comments for it."""

    flag: str
    file: str
    data: Settings
    notes: list[str]


class ArmContainer(TypedDict):
    """The container of an arm, which `container.arm_container` completes; ``published``: addresses for its port."""

    image: str
    entrypoint: list[str]
    command: list[str]
    published: list[str]
    port: int
    gpus: bool
    device_ids: NotRequired[list[str]]
    environment: dict[str, str]
    ipc: str | None
    ulimits: dict[str, int]
    cache: str | None
    mounts: list[str]


@final
class Folder(TypedDict):
    """A folder to create; ``mode`` as chmod takes it."""

    path: str
    mode: str


@final
class File(TypedDict):
    """A rendered file; ``path`` is below the arm's folder, ``mode`` as chmod takes it."""

    path: str
    mode: str
    content: str
    part: NotRequired[str]


class Fit(TypedDict):
    """Memory of an arm on one device in bytes, contexts in tokens (`memory_fit.fit_arm`); ``left`` < 0: too large."""

    memory: int  # of the device
    utilization: float  # the fraction of it that the engine may use
    weights: int
    draft: int  # weights of the draft or the built-in head
    overhead: int  # assumed, besides weights and KV cache
    kv_per_token: int
    context: int
    sequences: int
    kv_needed: int  # for all sequences at full length
    left: int
    longest_context: int  # of a single sequence
    reserved: int  # what the engine takes at its start


class BuiltArm(TypedDict):
    """An arm before its files are rendered (`arms.build_arm`)."""

    command: list[str]
    flags: list[Flag]  # those of speculation included
    speculation_flags: list[Flag]
    config: EngineYaml | None
    environment: dict[str, str]
    container: ArmContainer | None
    together: NotRequired[Together]


class ResolvedArm(BuiltArm):
    """An arm of the experiment, with its rendered files."""

    fit: Fit
    files: list[File]


class DerivedImage(TypedDict):
    """An image that is built on the box from the image ``base``."""

    name: str
    base: str
    containerfile: str
    packages: list[str]


class RemoteCode(TypedDict):
    """Python code of a model's repository that the engine runs; ``commit`` is None for a folder of the box."""

    model: str
    repo: str
    commit: str | None


class ResolvedProfile(TypedDict):
    """A profile, joined with the catalogue for a site: what `resolver.resolve` returns."""

    profile: str
    title: str
    article: str | None  # the article whose commands the profile replaces
    synthetic: str | None  # why its models are not real; None: they are
    unpinned: str | None  # why the engine's build is not pinned; None: it is
    verified: list[str]  # hardware on which the profile was run
    warnings: list[str]
    known_issues: list[MatchedIssue]
    published: list[PublishedFigure]
    site: Site
    hardware: Hardware
    engine: ResolvedEngine
    config_template: str | None
    derived_image: DerivedImage | None
    target: Model
    draft: Model | None
    method: ResolvedMethod
    scores: ScoresBy | None
    weights: list[WeightItem]
    rental: Rental
    shared_memory: int  # bytes
    pair: Pair | None
    elsewhere: Elsewhere
    key_file: str  # the path of the API key's file on the box
    open_paths: ResolvedOpenPaths
    gateway: Gateway | None
    fleet: Fleet | None
    monitoring: Monitoring | None
    expectation: ExpectedSpeed
    experiment: PlannedExperiment
    group_ports: list[str]  # FIRST:LAST, at which the hosts of a replica listen for each other
    ports: list[int]  # of all arms
    arms: dict[str, ResolvedArm]
    stock: BuiltArm | None  # the engine with its own defaults; None: the baseline has them
    offline: Options  # for the engine's Python API
    hashes: dict[str, list[str]]  # of packages, by name==version
    remote_code: list[RemoteCode]
    prompts: NotRequired[dict[str, dict[str, str]]]
    suites: NotRequired[dict[str, Suite]]
    extras: NotRequired[list[File]]  # rendered for people, not for the box
    image_digest: NotRequired[str | None]
    # Only in a release that a box keeps: `serving.releases.identity_of`.
    identity: NotRequired[str | None]


class Run(ResolvedProfile):
    """A resolved profile during a run on a box; ``deadline``: when a rental ends, in seconds since 1970."""

    key: str  # the result's, from `result_key.measured_key`
    result_dir: str
    suites_file: str
    overrides: Options
    rented: FirstProcess | None  # None: not a rented container
    rented_vm: bool
    deadline: int | None
    lease: Any
