"""Types of the doctor's order to a box (what to read for a profile) and of the facts that the box returns."""

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
"""A problem as a dict of strings (`Problem.as_dict`)."""


# --- the order ------------------------------------------------------------------------------------


class WantedMonitoring(TypedDict):
    """URLs of Prometheus and Grafana ('' if not used), Prometheus's scrape jobs, all ports, and the open ports."""

    prometheus: str
    grafana: str
    jobs: list[str]
    ports: Ports
    open_ports: list[int]


class Asked(TypedDict):
    """Data of a profile for the box (`expected.asked_of`): ``weights`` are paths by id, ``chats`` request bodies."""

    profile: str
    gpu: bool
    site: Site
    ports: list[int]
    engine: ResolvedEngine
    weights: dict[str, str]
    open_paths: ResolvedOpenPaths
    # By known issue, the regular expression that matches the line in the engine's log.
    signatures: dict[str, str]
    gateway: Gateway | None
    certificate: str
    monitoring: WantedMonitoring
    served_name: str
    key_file: str
    chats: list[RequestFields]


class Given(TypedDict):
    """Arguments of the Ansible module that reads the facts; ``sys`` and ``proc`` are the paths of /sys and /proc."""

    parts: list[str]
    sys: str
    proc: str
    timeout_s: float
    prove_container: bool
    firewall: bool


# --- the facts --------------------------------------------------------------------------------------


class Space(TypedDict):
    """Free bytes and free inodes of a file system."""

    free: int
    inodes: int


class ClockFacts(TypedDict):
    """The box's unix time (s), and the controller's before and after (None: the box is the controller itself)."""

    time: float
    synchronised: bool | None
    controller: list[float] | None


class EnvironmentFacts(TypedDict):
    """The engine's Python environment (process runtime), and its package versions by normalised name."""

    made: bool
    python: bool
    error: str
    image: str
    versions: dict[str, str]


class LogFacts(TypedDict):
    """By program, the size limit of its log as supervisord writes it; and the bytes of all logs."""

    bounds: dict[str, str]
    bytes: int


class LogConfig(TypedDict):
    """A container's log driver and its options, in Docker's names."""

    Type: str
    Config: dict[str, str] | None


class ContainerFacts(TypedDict):
    """A container that Drafthouse created for an engine; ``arm`` is "baseline" or "speculative"."""

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
    """The engine's image on the box: the id (digest) that Docker gives it."""

    id: str


class InsideFacts(TypedDict, total=False):
    """Output of nvidia-smi in a running container; empty if no container runs."""

    container: str
    output: str


class ProofFacts(TypedDict, total=False):
    """The number of GPUs in a new test container, or the problem that it had."""

    gpus: int
    problem: ProblemWords


class DockerFacts(TypedDict, total=False):
    """Docker's facts. ``error`` is why Docker does not respond; only ``root`` (its data folder, '') is set then."""

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
    """Weights on disk and their verification note: ``files`` counts verified files, ``asked`` is the revision."""

    there: bool
    link: str
    files: int
    changed: list[str]
    complete: bool
    repo: str
    asked: str
    commit: str


class FamilyFacts(TypedDict):
    """Rules of IPv4 or IPv6: those in force (iptables-save), and Drafthouse's own as confirmed."""

    saved: str
    error: str
    kept: list[str]


class FirewallFacts(TypedDict, total=False):
    """The firewall, by IP version. ``not_here`` is why it was not read; no other key is set then."""

    not_here: str
    families: dict[str, FamilyFacts]
    pending: bool
    enabled: bool


class DeadlineFacts(TypedDict):
    """The watch over a rental's deadline; ``left_s`` is None if it has not counted since boot."""

    watched: bool
    left_s: float | None
    last: list[str]


class ServedFacts(TypedDict):
    """A server (an arm of any profile) on the box; ``since``: start in unix seconds; ``why``: why it does not run."""

    arm: str
    profile: str
    port: int | None
    status: str
    running: bool
    since: float | None
    why: str


class KeyFacts(TypedDict):
    """The problem of the API key's file; None if there is none."""

    problem: ProblemWords | None


class Answered(TypedDict):
    """HTTP status of an answer (None: no answer), and its error text."""

    status: int | None
    error: str


class AnsweredModels(Answered):
    """An answer to /v1/models, with the names of the models."""

    models: list[str]


class Chat(Answered):
    """An answer to a chat request; draft tokens and tokens per iteration are None where the answer reports none."""

    tokens: int
    seconds: float
    draft_n: int | None
    per_iteration: float | None


class OpenPath(TypedDict):
    """A path that answers without the API key; ``gives`` is the catalogue's effect of the path, '' if not listed."""

    path: str
    gives: str
    status: int


class PathFacts(TypedDict):
    """The number of paths requested without the API key, the open ones, and the error that ended the requests."""

    asked: int
    open: list[OpenPath]
    error: str


class AskedFacts(TypedDict):
    """The engine's answers; ``before`` and ``after`` are the draft counters around the chat requests, as text."""

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
    """The gateway's problem, open paths, and certificate end (unix seconds); empty if no gateway is set."""

    problem: ProblemWords | None
    not_after: float | None
    tls_error: str
    paths: PathFacts | None


class MonitoringFacts(TypedDict, total=False):
    """The problem of the monitoring, and the number of evaluated rules; empty if no monitoring is set."""

    problem: ProblemWords | None
    rules: int


class WatchdogFacts(TypedDict, total=False):
    """The watchdog: ``written`` is its last state in unix seconds (None: never); empty if no watchdog is set."""

    runs: bool
    written: float | None


Door = TypedDict("Door", {"address": str, "port": int, "is": int})
"""Address and port for another machine to connect to; ``is`` is the box's port that they map to."""


class Knocked(Door):
    """A door after the attempt: whether it answered, and the other machine's address as the box sees it."""

    source: str
    answers: bool


_From = TypedDict("_From", {"from": str}, total=False)


class OutsideFacts(_From):
    """Connection attempts of another machine (``from``); ``why`` is why there were none."""

    doors: list[Knocked]
    why: str
    problem: NotRequired[ProblemWords | None]


class DoctorFacts(TypedDict, total=False):
    """The facts of the requested parts of a box. ``unread``: problems by part that could not be read."""

    unread: dict[str, ProblemWords]
    clock: ClockFacts
    outside: OutsideFacts
    box: BoxFacts
    driver: DriverFacts
    environment: EnvironmentFacts
    unattended_upgrades: bool
    # NVIDIA's lines in the kernel's log since boot, the newest last; None without permission to read them.
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
    # By known issue, the text of the engine's log that matches its signature.
    log_signs: dict[str, str]
    key: KeyFacts
    asked: AskedFacts
    gateway: GatewayFacts
    monitoring: MonitoringFacts
    watchdog: WatchdogFacts
    addresses: list[str]
    client: str
