"""What the resolver answers, as types: the explicit data that plan, templates, roles, benchmark and report look at."""

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
"""The port of each arm that is served."""


class Hardware(HardwareEntry):
    """The profile's hardware."""

    id: str


class Model(CatalogModel):
    """The target or the draft; ``path`` is the folder on the box, or the one file."""

    path: str


class ResolvedEngine(TypedDict):
    """The engine in the version that runs; ``home`` is its environment's folder, or that of the site's ``program``."""

    id: str
    name: str
    version: str
    version_reason: str
    plugin: str | None
    runtime: Runtime
    runtimes: list[Runtime]
    home: str
    install: EngineInstall | None
    image: str | None
    template: str
    offline_template: str | None
    health: str
    ready_timeout_s: int
    metrics: Metrics
    key_environment: str | None
    has_key: bool
    program: NotRequired[str]


class ResolvedMethod(TypedDict):
    """The method; ``settings`` are the engine's own words for it and its options."""

    id: str
    name: str
    kind: DraftKind
    num_speculative_tokens: int
    settings: Options
    requires: MethodRequires | None


class ScoresBy(TypedDict):
    """How the engine scores a text, and up to how many tokens."""

    by: str
    tokens: int


class WeightItem(TypedDict):
    """Weights to put in place; ``details`` is what `ModelSource` says of a source of this kind."""

    id: str
    name: str
    source: SourceKind
    details: Any
    path: str
    bytes: int
    allow_pickle: NotRequired[list[str]]
    pinned: NotRequired[str | None]
    from_path: NotRequired[str]
    builtin_head: NotRequired[BuiltinHead]


class Rental(TypedDict):
    """What to rent; the units are `rental_spec.rental_of`'s."""

    vast_names: list[str]
    devices: int
    memory_mib: int
    compute_cap: int
    cuda: str
    driver: str
    image: str
    disk_gb: int
    download_gb: float


class PairMethod(TypedDict):
    """What a method asks of a pair."""

    id: str
    kind: DraftKind
    vocab_difference: int


class Pair(TypedDict):
    """Target and draft on the box, to be held against each other."""

    target_path: str
    draft_path: str
    method: PairMethod


class Elsewhere(TypedDict, total=False):
    """Where weights may lie already; empty where only the hub is asked."""

    folder: str
    models_dir: str


class NamedRoute(TypedDict):
    """A path of the server, and what it gives."""

    path: str
    gives: str


class OpenRoute(NamedRoute):
    """A path of the server, and whether it asks nobody for a key."""

    open: bool


class ResolvedOpenPaths(TypedDict):
    """What this version of the engine answers without a key."""

    ask: str
    lists: str
    guards: list[str]
    routes: list[OpenRoute]


class Gateway(TypedDict):
    """The gateway in front; ``hold_s``: how long it holds requests while the watchdog restarts the engine."""

    port: int
    name: str
    hold_s: NotRequired[float]


class Monitoring(TypedDict):
    """What is watched, and with what (`monitoring_settings.monitoring_of`)."""

    ports: Ports
    listen: str
    programs: list[str]
    open_ports: list[int]
    retention_days: int
    retention_gb: int
    alertmanager: str
    grafana: bool
    profile: str
    target: str
    health: str
    dialect: str
    path: str
    key: bool
    node: bool
    gpu: bool
    gateway: Gateway | None
    log: str


class ExpectedSpeed(TypedDict):
    """What arithmetic expects: bytes and bytes/s, tokens/s at a batch of one, and the speed-up with its range.

    The speed-up is for ``users`` at once; it pays ``until`` so many (None: not known, or for all that are looked at),
    and ``best_tokens`` drafted ones gain most. None of it is there without an assumed acceptance.
    """

    bandwidth_bytes_s: float
    bytes_per_token: int
    decode_limit_tok_s: float
    num_speculative_tokens: int
    draft_cost: float
    acceptance: float | None
    acceptance_source: str | None
    speedup: float | None
    low: float | None
    high: float | None
    users: int
    until: int | None
    best_tokens: int | None


class EngineYaml(TypedDict):
    """The engine's YAML: its flag, its file in the arm's folder, and what stands in it."""

    flag: str
    file: str
    data: Settings
    notes: list[str]


class ArmContainer(TypedDict):
    """The container that runs an arm."""

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
    """A folder to be there."""

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
    """One arm on one device (`memory_fit.fit_arm`), in bytes and tokens. ``left`` is negative when it does not fit."""

    memory: int
    utilization: float
    weights: int
    draft: int
    overhead: int
    kv_per_token: int
    context: int
    sequences: int
    kv_needed: int
    left: int
    longest_context: int
    reserved: int


class BuiltArm(TypedDict):
    """One arm before anything is rendered (`arms.build_arm`)."""

    command: list[str]
    flags: list[Flag]
    speculation_flags: list[Flag]
    config: EngineYaml | None
    environment: dict[str, str]
    container: ArmContainer | None
    together: NotRequired[Together]


class ResolvedArm(BuiltArm):
    """One arm of the experiment, with its rendered files."""

    fit: Fit
    files: list[File]


class DerivedImage(TypedDict):
    """An image that is built on the box from another."""

    name: str
    base: str
    containerfile: str
    packages: list[str]


class RemoteCode(TypedDict):
    """Code of a repository that runs on the box, at a commit; that of a folder has none."""

    model: str
    repo: str
    commit: str | None


class ResolvedProfile(TypedDict):
    """A profile, joined with the catalogue for a site."""

    profile: str
    title: str
    article: str | None
    synthetic: str | None
    unpinned: str | None
    verified: list[str]
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
    shared_memory: int
    pair: Pair | None
    elsewhere: Elsewhere
    key_file: str
    open_paths: ResolvedOpenPaths
    gateway: Gateway | None
    fleet: Fleet | None
    monitoring: Monitoring | None
    expectation: ExpectedSpeed
    experiment: PlannedExperiment
    group_ports: list[str]
    ports: list[int]
    arms: dict[str, ResolvedArm]
    stock: BuiltArm | None
    offline: Options
    hashes: dict[str, list[str]]
    remote_code: list[RemoteCode]
    prompts: NotRequired[dict[str, dict[str, str]]]
    suites: NotRequired[dict[str, Suite]]
    extras: NotRequired[list[File]]
    image_digest: NotRequired[str | None]
    # Of a release that is kept on a box.
    identity: NotRequired[str | None]


class Run(ResolvedProfile):
    """A resolved profile on its way over a box: where its results are kept, and under which key."""

    key: str
    result_dir: str
    suites_file: str
    overrides: Options
    rented: FirstProcess | None
    rented_vm: bool
    deadline: int | None
    lease: Any
