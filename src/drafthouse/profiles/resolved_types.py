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
    """The engine in the version that runs."""

    id: str  # its name in the catalogue
    name: str  # for people
    version: str
    version_reason: str  # why this version, as text for people
    plugin: str | None  # the plugin's version; None without a plugin
    runtime: Runtime  # in which it runs
    runtimes: list[Runtime]  # in which the profile may run
    home: str  # the folder of its environment, or of the site's ``program``
    install: EngineInstall | None  # None: it cannot run as a process, or the site has its own program
    image: str | None  # None: it cannot run in Docker
    template: str  # of serve.sh
    offline_template: str | None  # of a script for its Python API; None without one
    health: str  # a path of the server
    ready_timeout_s: int  # seconds that its start may take
    metrics: Metrics
    key_environment: str | None  # the variable that takes the API key; None: it takes the key in another way, or none
    has_key: bool  # it can be given an API key
    program: NotRequired[str]  # the site's own


class ResolvedMethod(TypedDict):
    """The speculation method."""

    id: str  # its name in the catalogue
    name: str  # with the name of the lookup that runs beside it, if there is one
    kind: DraftKind
    num_speculative_tokens: int  # K
    settings: Options  # by the engine's own names
    requires: MethodRequires | None  # what it needs of the engine in both arms; None: nothing


class ScoresBy(TypedDict):
    """The engine's way to score a given text."""

    by: str  # a field of the request
    tokens: int  # of the longest such text


class WeightItem(TypedDict):
    """Weights to put at ``path`` on the box."""

    id: str  # the model's name in the catalogue
    name: str  # for people
    source: SourceKind
    details: Any  # the value of the key ``source`` in the model's `ModelSource`
    path: str
    bytes: int  # by the catalogue
    allow_pickle: NotRequired[list[str]]  # patterns of the pickled files that are allowed
    pinned: NotRequired[str | None]  # the commit of the first use; None: the catalogue has one, or there is none yet
    from_path: NotRequired[str]  # of the weights from which these are derived
    builtin_head: NotRequired[BuiltinHead]  # the head that drafts, if it is part of these weights


class Rental(TypedDict):
    """Requirements of a box to rent, from `rental_spec.rental_of`."""

    vast_names: list[str]  # vast.ai's names of the GPU; [] if it offers none, or the names are unknown
    devices: int
    memory_mib: int  # of one device
    compute_cap: int  # 100 times the compute capability; 0 without one
    cuda: str  # the least version; '' if the catalogue has none
    driver: str  # the same for the NVIDIA driver
    image: str  # '' if there is none
    disk_gb: int
    download_gb: float  # over the network


class PairMethod(TypedDict):
    """The method of a pair."""

    id: str
    kind: DraftKind
    vocab_difference: int  # entries by which the two vocabularies may differ at most


class Pair(TypedDict):
    """A target and its draft, whose files are compared on the box."""

    target_path: str
    draft_path: str
    method: PairMethod


class Elsewhere(TypedDict, total=False):
    """A folder or mount that may already hold weights (the site's `weights_from`); empty if there is none."""

    folder: str  # has the layout of ``models_dir``
    models_dir: str  # the box's folder of models


class NamedRoute(TypedDict):
    """A path of the engine's server; ``gives``: what a request to it can do (the words of `exposure`)."""

    path: str
    gives: str


class OpenRoute(NamedRoute):
    """A path of the server; ``open`` is True if it answers without a key."""

    open: bool


class ResolvedOpenPaths(TypedDict):
    """The engine's paths, and which of them answer without the API key."""

    ask: str  # the HTTP method that probes a path
    lists: str  # the path that lists all paths; '' without one
    guards: list[str]  # prefixes of the paths that the key protects
    routes: list[OpenRoute]


class Gateway(TypedDict):
    """The gateway in front of the engine."""

    port: int
    name: str  # DNS name; '' for a generated certificate
    hold_s: NotRequired[float]  # seconds for which it holds requests while the watchdog restarts the engine


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
    """The speed-up that arithmetic expects; it and what depends on it is None without an assumed ``acceptance``."""

    bandwidth_bytes_s: float  # of all devices that work on a token at the same time
    bytes_per_token: int  # that the target reads at batch size one
    decode_limit_tok_s: float  # tokens/s at batch size one, if decoding does nothing but read ``bytes_per_token``
    num_speculative_tokens: int  # K
    draft_cost: float  # bytes read per drafted token, over those per token of the target
    acceptance: float | None  # chance that a drafted token is accepted
    acceptance_source: str | None
    speedup: float | None  # over the baseline, for ``users`` at once
    low: float | None  # the range of the speed-up
    high: float | None
    users: int  # at once
    until: int | None  # the most users for whom speculation pays; None: unknown, or any number
    best_tokens: int | None  # the K with the highest speed-up


class EngineYaml(TypedDict):
    """The engine's YAML configuration."""

    flag: str  # that names the file
    file: str  # in the arm's folder
    data: Settings
    notes: list[str]  # comments in the file


class ArmContainer(TypedDict):
    """The container of an arm, which `container.arm_container` completes."""

    image: str
    entrypoint: list[str]
    command: list[str]  # arguments of the entrypoint
    published: list[str]  # addresses of the host at which ``port`` is published
    port: int  # inside the container
    gpus: bool  # it gets GPUs
    device_ids: NotRequired[list[str]]  # indices or UUIDs of its GPUs; missing: all
    environment: dict[str, str]
    ipc: str | None  # Docker's IPC mode; None for its default
    ulimits: dict[str, int]  # by name; -1 is no limit
    cache: str | None  # folder of the host for the engine's compile cache; None: it keeps none
    mounts: list[str]  # SOURCE:TARGET:ro or rw


@final
class Folder(TypedDict):
    """A folder to create; ``mode`` as chmod takes it."""

    path: str
    mode: str


@final
class File(TypedDict):
    """A rendered file."""

    path: str  # below the arm's folder
    mode: str  # as chmod takes it
    content: str
    part: NotRequired[str]  # the same in both arms for files that belong together under different names


class Fit(TypedDict):
    """Memory of an arm on one device in bytes, contexts in tokens (`memory_fit.fit_arm`)."""

    memory: int  # of the device
    utilization: float  # the fraction of it that the engine may use
    weights: int  # of the target
    draft: int  # weights of the draft or the built-in head
    overhead: int  # assumed, besides weights and KV cache
    kv_per_token: int
    context: int  # the engine's option
    sequences: int  # at once
    kv_needed: int  # for all sequences at full length
    left: int  # beside what is needed; below 0 if the arm is too large for the device
    longest_context: int  # of a single sequence
    reserved: int  # what the engine takes at its start


class BuiltArm(TypedDict):
    """An arm before its files are rendered (`arms.build_arm`)."""

    command: list[str]  # the words before the flags
    flags: list[Flag]  # those of speculation included
    speculation_flags: list[Flag]  # [] if the arm has none, or its YAML has them
    config: EngineYaml | None  # None for an engine that reads no YAML
    environment: dict[str, str]
    container: ArmContainer | None  # None if the engine has no image
    together: NotRequired[Together]  # only on a host of several that serve one model


class ResolvedArm(BuiltArm):
    """An arm of the experiment, with its rendered files."""

    fit: Fit
    files: list[File]


class DerivedImage(TypedDict):
    """An image that is built on the box from the image ``base``."""

    name: str
    base: str
    containerfile: str  # its text
    packages: list[str]  # that it adds, with versions


class RemoteCode(TypedDict):
    """Python code of a model's repository that the engine runs."""

    model: str  # its name in the catalogue
    repo: str  # ORG/NAME, or a folder of the box
    commit: str | None  # None for a folder


class ResolvedProfile(TypedDict):
    """A profile, joined with the catalogue for a site: what `resolver.resolve` returns."""

    profile: str  # its name
    title: str
    article: str | None  # the article whose commands the profile replaces
    synthetic: str | None  # why its models are not real; None: they are
    unpinned: str | None  # why the engine's build is not pinned; None: it is
    verified: list[str]  # hardware on which the profile was run
    warnings: list[str]  # lines for the user
    known_issues: list[MatchedIssue]  # that affect the profile
    published: list[PublishedFigure]  # that others measured with the target
    site: Site
    hardware: Hardware
    engine: ResolvedEngine
    config_template: str | None  # of the engine's YAML; None for an engine that reads none
    derived_image: DerivedImage | None  # None: the engine's image runs as it is, or no image runs
    target: Model
    draft: Model | None  # None for a method without a separate draft
    method: ResolvedMethod
    scores: ScoresBy | None  # None: this version of the engine cannot score a text
    weights: list[WeightItem]  # each after the weights from which it is derived
    rental: Rental
    shared_memory: int  # bytes that the engine needs at least
    pair: Pair | None  # None without a separate draft
    elsewhere: Elsewhere
    key_file: str  # the path of the API key's file on the box
    open_paths: ResolvedOpenPaths
    gateway: Gateway | None  # None, as the next two, if the site has none
    fleet: Fleet | None
    monitoring: Monitoring | None
    expectation: ExpectedSpeed
    experiment: PlannedExperiment
    group_ports: list[str]  # FIRST:LAST, at which the hosts of a replica listen for each other
    ports: list[int]  # of all arms
    arms: dict[str, ResolvedArm]  # that are measured, by name
    stock: BuiltArm | None  # the engine with its own defaults; None: the baseline has them
    offline: Options  # for the engine's Python API
    hashes: dict[str, list[str]]  # of packages, by name==version
    remote_code: list[RemoteCode]
    # The next four keys are added by `workspace.resolved_profile`.
    prompts: NotRequired[dict[str, dict[str, str]]]  # hashes of the prompts (`prompts.suites.prompt_hashes`)
    suites: NotRequired[dict[str, Suite]]  # as far as they are sent, by name
    extras: NotRequired[list[File]]  # rendered for people, not for the box
    image_digest: NotRequired[str | None]  # pinned at the first use; None: there is no pin
    # Only in a release that a box keeps: `serving.releases.identity_of`.
    identity: NotRequired[str | None]


class Run(ResolvedProfile):
    """A resolved profile during a run on a box."""

    key: str  # the result's, from `result_key.measured_key`
    result_dir: str
    suites_file: str
    overrides: Options  # of the profile, for this run only
    rented: FirstProcess | None  # None: not a rented container
    rented_vm: bool
    deadline: int | None  # when the rental ends, in seconds since 1970; None for a box that is not rented
    lease: Any
