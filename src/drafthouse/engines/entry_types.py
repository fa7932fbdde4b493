"""An engine's entry in the catalogue, as types; `profiles/schemas.py` checks the files by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, final

from ..core.forms import (
    FOLDER,
    NAME,
    NUMBER,
    OPTION,
    ROUTE,
    VARIABLE,
    VERSION,
    Count,
    File,
    Name,
    Variables,
    Version,
)
from .install_types import EngineRelease, Image, ImageName, Install, MethodPackages, Nightly

if TYPE_CHECKING:
    from typing import NotRequired

ServerPath = Annotated[str, {"form": ROUTE}]
#: Configurations that are not as transformers has them: speculators (vllm-project/speculators).
Layout = Literal["speculators"]

#: Options of a profile by the names they have there; an engine's entry says how each is given.
Options = dict[str, Any]
#: What a method drafts with: another model, a head of its own, the text so far, or a head inside the target.
DraftKind = Literal["model", "head", "lookup", "builtin"]
#: Settings in an engine's own words, as its configuration file or a command has them.
Settings = dict[str, Any]


class Metrics(TypedDict):
    """The engine's counters: their dialect, their path, and whether the key guards them.

    ``ask``: the field of a request with which it tells of drafting in the answer; older versions ignore it.
    """

    dialect: str
    path: NotRequired[ServerPath]
    key: bool
    ask: NotRequired[Name]


class VersionRange(TypedDict):
    """Versions from ``since`` up to, and without, ``until``."""

    since: Version
    until: Version


_Except = TypedDict("_Except", {"except": VersionRange}, total=False)


class Versioned(_Except, total=False):
    """What some versions have: since one, until another, except a range of them."""

    since: Version
    until: Version


class Guard(Versioned):
    """A prefix of paths that the key guards, by version."""


class Route(Versioned):
    """A path of the server, and what it gives to who asks."""

    gives: Literal["work", "control", "tells", "memory", "nothing"]
    guarded: NotRequired[bool]


class OpenPaths(TypedDict):
    """What the server answers without a key."""

    ask: Literal["GET", "PATCH"]
    lists: NotRequired[str]
    guards: NotRequired[dict[str, Guard]]
    routes: dict[str, Route]


class Scores(Versioned):
    """How an engine scores a given text, up to so many tokens."""

    by: Literal["prompt_logprobs"]
    tokens: Count


class Proof(TypedDict):
    """What of an engine was run for real, and what was not."""

    proven: str
    missing: NotRequired[str]


class CudaNeed(Versioned):
    """The CUDA and the driver that versions need."""

    cuda: str
    driver: str


class PluginFlags(TypedDict):
    """Flags of a plugin's own: those that take no value, and those that take one."""

    none: list[str]
    one: list[str]


class Plugin(TypedDict):
    """A plugin that fits exactly one version of its engine."""

    package: Name
    versions: Annotated[dict[str, Version], {"names": VERSION}]
    flags: NotRequired[PluginFlags]
    reason: str


class ContainerWishes(TypedDict):
    """What a container of the engine needs."""

    ipc: NotRequired[Name]
    environment: NotRequired[Variables]
    ulimits: NotRequired[Annotated[dict[str, int], {"names": VARIABLE}]]
    cache: NotRequired[Annotated[str, {"form": FOLDER}]]


class ConfigDefault(Versioned):
    """A key of the engine's YAML that is always there."""

    value: Annotated[Any, {"null": True}]


class EngineConfig(TypedDict):
    """The engine's YAML: its flag, and a file for each arm."""

    flag: str
    files: dict[str, File]
    template: File
    always: NotRequired[dict[str, ConfigDefault]]


class GpuEnvironment(TypedDict):
    """Variables for some GPUs, or for some weights on them: without a list, for all; both lists must fit."""

    compute_capability: NotRequired[list[Annotated[str, {"form": NUMBER}]]]
    quantization: NotRequired[list[Name]]
    environment: Variables


class Launch(TypedDict):
    """How the server is started.

    ``key_inside``: the flag of an engine that takes its key as a flag alone, which every process list would show: its
    template hands the key over inside of the process.
    """

    command: list[str]
    target: NotRequired[str]
    name: NotRequired[str]
    host: str
    port: str
    key_file: NotRequired[str]
    key_environment: NotRequired[Annotated[str, {"form": VARIABLE}]]
    key_inside: NotRequired[str]
    config: NotRequired[EngineConfig]
    always: NotRequired[list[list[str]]]
    environment: NotRequired[Variables]
    environment_by_kind: NotRequired[dict[str, Variables]]
    environment_by_gpu: NotRequired[list[GpuEnvironment]]


_As = TypedDict("_As", {"as": str})


class Spelling(_As, Versioned):
    """The word for something in some versions."""


class OptionChoice(Versioned):
    """A value that some versions know, or spell otherwise."""

    spelled: NotRequired[list[Spelling]]


class RefusedOn(TypedDict):
    """Values that a compute capability does not run."""

    values: list[str]
    reason: str


_Is = TypedDict("_Is", {"is": Literal["fit", "model"]})


class Meaning(_Is, Versioned):
    """What a word in the place of a number of tokens is: as many as fit into the memory, or the model's own."""


@final
class Option(Versioned):
    """An option of profiles in the words of an engine.

    ``unless_said``: what every arm is given where the profile says nothing, because the engine's own default is another
    one with speculation.
    """

    flag: NotRequired[str]
    yaml: NotRequired[str]
    environment: NotRequired[Annotated[str, {"form": VARIABLE}]]
    type: Literal["int", "float", "str", "bool", "schedule", "tokens"]
    means: NotRequired[dict[str, Meaning]]
    unless_said: NotRequired[float]
    warning: NotRequired[str]
    choices: NotRequired[dict[str, OptionChoice]]
    spelled: NotRequired[list[Spelling]]
    server_only: NotRequired[bool]
    refused_on: NotRequired[dict[str, RefusedOn]]


class Reserved(TypedDict, total=False):
    """Flags and variables, as patterns, that are for what ``by`` names alone; or that go with a ``warning``."""

    flags: list[str]
    environment: list[str]
    by: str
    warning: str


class OptionLimit(TypedDict):
    """The most that an option may be, and why."""

    most: int
    reason: str


class SpeculationForm(TypedDict):
    """How the settings of speculation are given; ``at_most``: what options may be beside any method."""

    form: Literal["flags", "json", "yaml"]
    flag: NotRequired[str]
    key: NotRequired[str]
    at_most: NotRequired[Annotated[dict[str, OptionLimit], {"names": OPTION}]]


class DraftMatch(TypedDict):
    """What of draft and target must match."""

    tokenizer: NotRequired[bool]
    vocab_difference: NotRequired[Annotated[int, {"low": 0}]]


class MethodRequires(TypedDict):
    """What a method needs in both arms, and why."""

    serve: NotRequired[Options]
    environment: NotRequired[Variables]
    reason: str


@final
class MethodOption(Versioned):
    """An option of a method. ``lossy``: words of it that buy the speed with other answers, and how."""

    name: str
    type: Literal["int", "float", "str", "bool", "schedule"]
    choices: NotRequired[dict[str, OptionChoice]]
    lossy: NotRequired[dict[str, str]]
    spelled: NotRequired[list[Spelling]]
    reason: NotRequired[str]


class Method(Versioned, MethodPackages):
    """A method of speculation, as an engine has it.

    ``or_head``: instead of the head inside the target it takes one of its own too (a profile that names a draft means
    that). ``head``: the kind of its heads, where the method has another name. ``whole_passes``: beyond the tokens that
    a head predicts in one pass, K must be a multiple of them. ``one_pass``: all tokens of a draft come out of one pass.
    ``always``: settings that it is always given; ``follows``: settings that are K and so much more (a step verifies the
    drafted tokens and one).
    """

    draft: DraftKind
    or_head: NotRequired[bool]
    head: NotRequired[Name]
    whole_passes: NotRequired[bool]
    one_pass: NotRequired[bool]
    value: NotRequired[str]
    reason: NotRequired[str]
    match: NotRequired[DraftMatch]
    usual_tokens: NotRequired[Count]
    all_heads: NotRequired[bool]
    requires: NotRequired[MethodRequires]
    names: dict[str, str]
    spelled: NotRequired[dict[str, list[Spelling]]]
    always: NotRequired[Settings]
    follows: NotRequired[dict[str, int]]
    options: NotRequired[dict[str, MethodOption]]


class DraftStep(TypedDict):
    """What a pass of a draft costs beside the bytes that it reads: ms, and a share of a step of the target.

    ``by_capability``: for one user, all that a drafted token costs, verifying it too, as a share of such a step
    (median, least, most), by a card's compute capability or the digits before its point.
    """

    ms: NotRequired[Annotated[float, {"low": 0}]]
    share: NotRequired[Annotated[float, {"low": 0}]]
    by_capability: NotRequired[dict[str, list[float]]]


class EngineEntry(TypedDict):
    """An engine of the catalogue: `profiles/catalog/engines/<name>.yml`."""

    name: str
    family: NotRequired[str]
    template: File
    offline_template: NotRequired[File]
    formats: list[str]
    unread_layouts: NotRequired[list[Layout]]
    health: ServerPath
    ready_timeout_s: Count
    metrics: Metrics
    open_paths: OpenPaths
    scores: NotRequired[Scores]
    proof: NotRequired[Proof]
    overhead_mib: Count
    draft_step: NotRequired[DraftStep]
    kv_bytes_per_value: Count
    kv_type_option: NotRequired[str]
    kv_bytes_by_type: NotRequired[Annotated[dict[str, Annotated[float, {"low": 0.1}]], {"names": NAME}]]
    reserves: Literal["needed", "share", "share_of_free"]
    default_version: Version
    releases: NotRequired[list[Version]]
    versions: Annotated[dict[str, EngineRelease], {"names": VERSION}]
    install: dict[str, Install]
    image: NotRequired[Image]
    rental_image: NotRequired[ImageName]
    cuda: NotRequired[list[CudaNeed]]
    shared_memory_mib: NotRequired[Count]
    nightly: NotRequired[Nightly]
    plugin: NotRequired[Plugin]
    container: NotRequired[ContainerWishes]
    launch: Launch
    options: Annotated[dict[str, Option], {"names": OPTION}]
    flag_style: NotRequired[Literal["-", "_"]]
    reserved: NotRequired[list[Reserved]]
    context_option: str
    sequences_option: str
    sequences_default: NotRequired[Count]
    context_is_shared: bool
    share_option: NotRequired[str]
    share_default: NotRequired[Annotated[float, {"low": 0, "high": 1}]]
    devices_option: NotRequired[str]
    layer_split: NotRequired[bool]  # takes all devices unasked, some layers each: their memory adds up, not their speed
    copies_option: NotRequired[str]
    speculation: SpeculationForm
    methods: Annotated[dict[str, Method], {"names": NAME}]


class CatalogEngine(EngineEntry):
    """An engine with its name in the catalogue."""

    id: str


class CatalogMethod(Method):
    """A method with its name in the catalogue."""

    id: str
