"""What a box is asked for a profile, and what is read of it, as types."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired

    from drafthouse.host.box_types import BoxFacts
    from drafthouse.host.driver.facts import DriverFacts
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import Gateway, Ports, ResolvedEngine, ResolvedOpenPaths
    from drafthouse.prompts.suite_types import RequestFields

ProblemWords = dict[str, str]
"""A problem as plain data (`Problem.as_dict`)."""


# --- what is asked --------------------------------------------------------------------------------


class WantedMonitoring(TypedDict):
    """Where its programs listen ('' for one that is not there), what Prometheus reads, which ports others reach."""

    prometheus: str
    grafana: str
    jobs: list[str]
    ports: Ports
    open_ports: list[int]


class Asked(TypedDict):
    """What a box is asked for a profile (`expected.asked_of`): ``weights`` are paths by id, ``chats`` bodies."""

    profile: str
    gpu: bool
    site: Site
    ports: list[int]
    engine: ResolvedEngine
    weights: dict[str, str]
    open_paths: ResolvedOpenPaths
    # Regular expressions for a line of the engine's log, by the known issue that shows so.
    signatures: dict[str, str]
    gateway: Gateway | None
    certificate: str
    monitoring: WantedMonitoring
    served_name: str
    key_file: str
    chats: list[RequestFields]


class Given(TypedDict):
    """How the box is looked at: the module's arguments."""

    parts: list[str]
    sys: str
    proc: str
    timeout_s: float
    prove_container: bool
    firewall: bool


# --- what was read ----------------------------------------------------------------------------------


class Space(TypedDict):
    """What is free of a file system: bytes and inodes."""

    free: int
    inodes: int


class ClockFacts(TypedDict):
    """The box's clock in unix seconds, what systemd says of it, and the controller's before and after."""

    time: float
    synchronised: bool | None
    controller: list[float] | None


class EnvironmentFacts(TypedDict):
    """The engine's environment of the process runtime, and what is installed in it."""

    made: bool
    python: bool
    error: str
    image: str
    versions: dict[str, str]


class LogFacts(TypedDict):
    """How large each supervised log may become, and how much all of them are now."""

    bounds: dict[str, str]
    bytes: int


class LogConfig(TypedDict):
    """A container's log driver and its options, as Docker has them."""

    Type: str
    Config: dict[str, str] | None


class ContainerFacts(TypedDict):
    """A container of ours."""

    name: str
    arm: str
    profile: str
    port: int | None
    running: bool
    status: str
    image: str
    image_id: str
    log: LogConfig


class ImageFacts(TypedDict):
    """The engine's image."""

    id: str


class InsideFacts(TypedDict, total=False):
    """What nvidia-smi said in a container that runs; empty where none does."""

    container: str
    output: str


class ProofFacts(TypedDict, total=False):
    """What a container that was run for the purpose has seen, or what was wrong with it."""

    gpus: int
    problem: ProblemWords


class DockerFacts(TypedDict, total=False):
    """Docker; ``error`` says why it does not answer, and then only ``root`` is there beside it."""

    error: str
    root: str
    version: str
    runtimes: list[str]
    image: ImageFacts | None
    containers: list[ContainerFacts]
    toolkit: str
    cdi: dict[str, str]
    inside: InsideFacts
    proof: ProofFacts


class WeightFacts(TypedDict):
    """Weights on the disk, and what the notes beside them say; ``files`` is how many were verified."""

    there: bool
    link: str
    files: int
    changed: list[str]
    complete: bool
    repo: str
    asked: str
    commit: str


class FamilyFacts(TypedDict):
    """The rules of an IP family: those in force, and ours as they were confirmed."""

    saved: str
    error: str
    kept: list[str]


class FirewallFacts(TypedDict, total=False):
    """The firewall; ``not_here`` says why it was not looked at, and then nothing else is there."""

    not_here: str
    families: dict[str, FamilyFacts]
    pending: bool
    enabled: bool


class DeadlineFacts(TypedDict):
    """The watch over the deadline; ``left_s`` is None where nobody has counted since the machine was started."""

    watched: bool
    left_s: float | None
    last: list[str]


class ServedFacts(TypedDict):
    """An arm that is there, of any profile; ``since`` in unix seconds."""

    arm: str
    profile: str
    port: int | None
    status: str
    running: bool
    since: float | None
    why: str


class KeyFacts(TypedDict):
    """What is wrong with the key's file."""

    problem: ProblemWords | None


class Answered(TypedDict):
    """An answer's status (None: none came), and what was wrong with it."""

    status: int | None
    error: str


class AnsweredModels(Answered):
    """The models that a server names."""

    models: list[str]


class Chat(Answered):
    """A chat request: tokens and seconds of its answer, and what that tells of drafts (None: nothing)."""

    tokens: int
    seconds: float
    draft_n: int | None
    per_iteration: float | None


class OpenPath(TypedDict):
    """A path that answers without the key; ``gives`` is '' where the catalogue does not have it."""

    path: str
    gives: str
    status: int


class PathFacts(TypedDict):
    """How many paths were asked without the key, which are open, and what ended it."""

    asked: int
    open: list[OpenPath]
    error: str


class AskedFacts(TypedDict):
    """What the engine answered; ``before`` and ``after`` are the lines of its counters."""

    health: Answered
    without_key: Answered
    with_key: AnsweredModels
    chats: list[Chat]
    before: str
    after: str
    counters_error: str
    speculates: bool | None
    paths: PathFacts | None


class GatewayFacts(TypedDict, total=False):
    """The gateway, and when its certificate ends (unix seconds); empty where there is none."""

    problem: ProblemWords | None
    not_after: float | None
    tls_error: str
    paths: PathFacts | None


class MonitoringFacts(TypedDict, total=False):
    """What is wrong with the monitoring, and how many rules it evaluated; empty where there is none."""

    problem: ProblemWords | None
    rules: int


class WatchdogFacts(TypedDict, total=False):
    """Whether the watchdog runs, and when it last wrote (unix seconds, None: never); empty where there is none."""

    runs: bool
    written: float | None


Door = TypedDict("Door", {"address": str, "port": int, "is": int})
"""Where another machine shall knock; ``is`` is the port of the box behind it."""


class Knocked(Door):
    """What was found there: who answers, and as whom the one who knocked was seen."""

    source: str
    answers: bool


_From = TypedDict("_From", {"from": str}, total=False)


class OutsideFacts(_From):
    """What another machine (``from``) found behind the doors, or why nobody knocked."""

    doors: list[Knocked]
    why: str
    problem: NotRequired[ProblemWords | None]


class DoctorFacts(TypedDict, total=False):
    """What was read of a box: the parts that were asked for. ``unread``: what could not be read, and why."""

    unread: dict[str, ProblemWords]
    clock: ClockFacts
    outside: OutsideFacts
    box: BoxFacts
    driver: DriverFacts
    environment: EnvironmentFacts
    unattended_upgrades: bool
    # Lines of NVIDIA's driver since the box started, the newest last; None where they may not be read.
    kernel_log: list[str] | None
    docker: DockerFacts
    logs: LogFacts
    weights: dict[str, WeightFacts]
    disk: dict[str, Space]
    firewall: FirewallFacts
    deadline: DeadlineFacts | None
    listening: dict[str, list[str]]
    measured: bool
    served: list[ServedFacts]
    drift: str
    # What of the engine's log has the sign of a known issue, by its name.
    log_signs: dict[str, str]
    key: KeyFacts
    asked: AskedFacts
    gateway: GatewayFacts
    monitoring: MonitoringFacts
    watchdog: WatchdogFacts
    addresses: list[str]
    client: str
