"""Types of the doctor's order to a box (what to read for a profile) and of the facts that the box returns.

The controller makes the order (`expected.order_of`) and an Ansible module on the box reads the facts (`collect.read`).
"""

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
    """What is expected of the monitoring programs on the box (`expected.monitoring_of`)."""

    prometheus: str  # its URL; '' if the profile has no monitoring
    grafana: str  # its URL; '' if it is not used
    jobs: list[str]  # Prometheus's scrape jobs
    ports: Ports  # by program
    open_ports: list[int]  # those of these ports that other machines may reach


class DoctorOrder(TypedDict):
    """The data of a profile that the box needs (`expected.order_of`)."""

    profile: str  # its name
    gpu: bool  # its hardware is a GPU
    site: Site
    ports: list[int]  # of the engine's arms
    engine: ResolvedEngine
    weights: dict[str, str]  # path by id
    open_paths: ResolvedOpenPaths
    # By known issue, the regular expression that matches the line in the engine's log.
    signatures: dict[str, str]
    gateway: Gateway | None
    certificate: str  # path of the gateway's self-signed certificate; '' for one of a public authority
    monitoring: WantedMonitoring
    served_name: str  # the model's name in requests
    key_file: str  # path of the API key on the box
    chats: list[RequestFields]  # bodies of the chat requests


class Options(TypedDict):
    """Arguments of the Ansible module that reads the facts; ``sys`` and ``proc`` are the paths of /sys and /proc."""

    parts: list[str]  # of `registry.PARTS`; empty: all
    sys: str
    proc: str
    timeout_s: float  # of a chat request
    prove_container: bool  # run a test container
    firewall: bool  # False: the role's variable firewall_state is absent


# --- the facts --------------------------------------------------------------------------------------


class Space(TypedDict):
    """Free bytes and free inodes of a file system."""

    free: int
    inodes: int


class ClockFacts(TypedDict):
    """The box's clock, and the controller's."""

    time: float  # the box's unix time (s)
    synchronised: bool | None  # according to systemd; None: it does not say
    controller: list[float] | None  # its unix times before and after; None: the box is the controller itself


class EnvironmentFacts(TypedDict):
    """The engine's Python environment (process runtime); all empty or False if there is none."""

    made: bool  # completely, as its stamp proves
    python: bool  # its interpreter starts
    error: str  # why it does not start
    image: str  # the image's engine that is used instead of an installed one, as text; '' if none is
    versions: dict[str, str]  # by package, whose name is normalised (PEP 503)


class LogFacts(TypedDict):
    """The logs of the programs that supervisord starts."""

    bounds: dict[str, str]  # by program, the size limit of its log as supervisord writes it (20MB)
    bytes: int  # of all logs together


class LogConfig(TypedDict):
    """A container's log driver and its options, in Docker's names."""

    Type: str
    Config: dict[str, str] | None


class ContainerFacts(TypedDict):
    """A container that Drafthouse created for an engine."""

    name: str
    arm: str  # "baseline" or "speculative"
    profile: str  # '' if its files do not tell
    port: int | None  # None: unknown
    running: bool
    status: str  # Docker's word: running, exited, paused, ...
    image: str  # the name that it was created from
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
    """Docker's facts. If it does not respond, only ``error`` and an empty ``root`` are set."""

    error: str  # why it does not respond; '' if it does
    root: str  # the folder of its images and containers
    version: str
    runtimes: list[str]  # names, such as runc and nvidia
    image: ImageFacts | None  # None: the engine's image is not on the box
    containers: list[ContainerFacts]
    toolkit: str  # version of NVIDIA's container toolkit; '' if it is not installed
    cdi: dict[str, str]  # by path of a CDI file for NVIDIA GPUs, the driver version that it names
    inside: InsideFacts
    proof: ProofFacts  # no key: no test container was requested


class WeightFacts(TypedDict):
    """Weights on disk, and what their verification note says; without a note its fields are empty, 0 or False."""

    there: bool  # something is at their path
    link: str  # where a link leads; '' if the path is none
    files: int  # number of verified files
    changed: list[str]  # those of them that are missing or differ now, by name
    complete: bool  # the download was finished
    repo: str  # '' for weights from elsewhere than a hub, as the next two
    asked: str  # the requested revision
    commit: str


class FamilyFacts(TypedDict):
    """Rules of IPv4 or IPv6."""

    saved: str  # the output of iptables-save: the rules in force
    error: str  # why iptables-save failed; '' if it did not
    kept: list[str]  # Drafthouse's own rules, as the role confirmed them


class FirewallFacts(TypedDict, total=False):
    """The firewall, by IP version. ``not_here`` is why it was not read; no other key is set then."""

    not_here: str
    families: dict[str, FamilyFacts]  # by IP version, "4" and "6"
    pending: bool  # rules are on trial
    enabled: bool  # the units that restore the rules at boot are enabled, or there is no systemd


class DeadlineFacts(TypedDict):
    """The watch over a rental's deadline; ``left_s`` is None if it has not counted since boot."""

    watched: bool  # the watch runs
    left_s: float | None  # negative after the deadline
    last: list[str]  # the last entries of its journal


class ServedFacts(TypedDict):
    """A server (an arm of any profile) on the box."""

    arm: str
    profile: str
    port: int | None  # None: unknown
    status: str  # Docker's word, as in `ContainerFacts`; '' in the process runtime
    running: bool
    since: float | None  # its start in unix seconds; None: unknown
    why: str  # why it does not run


class KeyFacts(TypedDict):
    """The problem of the API key's file; None if there is none."""

    problem: ProblemWords | None


class HttpAnswer(TypedDict):
    """HTTP status of an answer (None: no answer), and its error text."""

    status: int | None
    error: str


class ModelsAnswer(HttpAnswer):
    """An answer to /v1/models, with the names of the models."""

    models: list[str]


class ChatAnswer(HttpAnswer):
    """An answer to a chat request; draft tokens and tokens per iteration are None where the answer reports none."""

    tokens: int  # generated; 0 without a proper answer
    seconds: float  # from the request to the whole answer
    draft_n: int | None  # draft tokens, in llama.cpp's name
    per_iteration: float | None  # mean of the tokens per step of the engine, in TensorRT-LLM's answers


class OpenPath(TypedDict):
    """A path that answers without the API key."""

    path: str
    gives: str  # the catalogue's word for what it gives away; '' if the catalogue does not have the path
    status: int  # of HTTP


class PathFacts(TypedDict):
    """The paths requested without the API key."""

    asked: int  # number of answered requests
    open: list[OpenPath]
    error: str  # that ended the requests before the last path; '' if none did


class EngineAnswers(TypedDict):
    """The engine's answers; those to requests that were not sent are copies of ``health``, or empty."""

    health: HttpAnswer
    without_key: HttpAnswer  # to a chat request without the API key
    with_key: ModelsAnswer  # to the request for the list of models
    chats: list[ChatAnswer]  # empty: none was requested
    before: str  # the draft counters before the chat requests, as text
    after: str  # those after the last one
    counters_error: str  # why the counters could not be read; '' if they could
    speculates: bool | None  # whether the engine's slots speculate; None: it has no such list, or it does not say
    paths: PathFacts | None  # None: not healthy, so none was requested


class GatewayFacts(TypedDict, total=False):
    """What the gateway answered; empty if no gateway is set."""

    problem: ProblemWords | None  # None: it accepts the key and answers
    not_after: float | None  # the end of its certificate in unix seconds; None: it could not be read
    tls_error: str  # why
    paths: PathFacts | None  # None if it has a problem


class MonitoringFacts(TypedDict, total=False):
    """The problem of the monitoring, and the number of evaluated rules; empty if no monitoring is set."""

    problem: ProblemWords | None
    rules: int


class WatchdogFacts(TypedDict, total=False):
    """The watchdog; empty if none is set."""

    runs: bool
    written: float | None  # when it last saved its state, in unix seconds; None: never


Door = TypedDict("Door", {"address": str, "port": int, "is": int})
"""Address and port for another machine to connect to; ``is`` is the box's port that they map to."""


class Knocked(Door):
    """A door after the attempt."""

    source: str  # the other machine's address on that route; '' if it has none
    answers: bool  # it accepted a connection


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
    unattended_upgrades: bool  # the package is installed
    # NVIDIA's lines in the kernel's log since boot, the newest last; None without permission to read them.
    kernel_log: list[str] | None
    docker: DockerFacts
    logs: LogFacts
    weights: dict[str, WeightFacts]  # by id
    disk: dict[str, Space]  # by path
    firewall: FirewallFacts
    deadline: DeadlineFacts | None  # None: the box has no deadline
    listening: dict[str, list[str]]  # by port, the addresses on which a program listens
    measured: bool  # a measurement or change is in progress; then of the part `server` only ``key`` is read
    served: list[ServedFacts]
    drift: str  # how the running server differs from the one in the box's history; '' if it does not
    # By known issue, the text of the engine's log that matches its signature.
    log_signs: dict[str, str]
    key: KeyFacts
    asked: EngineAnswers
    gateway: GatewayFacts
    monitoring: MonitoringFacts
    watchdog: WatchdogFacts
    addresses: list[str]  # the box's global IPv6 addresses
    client: str  # the controller's address, as sshd on the box sees it; '' without SSH
