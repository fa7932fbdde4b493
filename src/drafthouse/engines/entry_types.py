"""Types of an engine's entry in the catalogue; `profiles/schemas.py` checks the YAML files against them.

docs/add-an-engine.md explains the keys. An arm is one of the compared servers: baseline or speculative. K is the
number of draft tokens per step.
"""

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
#: A model's config.json that is not in the format of transformers: speculators (vllm-project/speculators).
Layout = Literal["speculators"]
#: Options with a profile's names for them; an engine's entry maps each to a flag, a variable or a key.
Options = dict[str, Any]
#: What drafts: another model, a separate head, a lookup in the text so far, or a head inside the target.
DraftKind = Literal["model", "head", "lookup", "builtin"]
#: Settings with the engine's names for them, as in its configuration file or its command.
Settings = dict[str, Any]


class Metrics(TypedDict):
    """The engine's counters."""

    dialect: str  # the engine that has the same counters, mostly this one itself
    path: NotRequired[ServerPath]
    key: bool  # True if the path needs the API key
    ask: NotRequired[Name]  # the field of a request that asks for the draft counts in the answer


class VersionRange(TypedDict):
    """The versions from ``since`` up to ``until``, which is not one of them."""

    since: Version
    until: Version


_Except = TypedDict("_Except", {"except": VersionRange}, total=False)


class Versioned(_Except, total=False):
    """Something that only some versions have: from ``since`` to ``until``, both included, without a range."""

    since: Version
    until: Version


class Guard(Versioned):
    """The versions in which the paths with a certain prefix need the API key."""


class Route(Versioned):
    """A path of the server, and what a request to it gives: docs/add-an-engine.md lists the words."""

    gives: Literal["work", "control", "tells", "memory", "nothing"]
    guarded: NotRequired[bool]  # it needs the API key, whatever its prefix


class OpenPaths(TypedDict):
    """The paths that the server answers without the API key."""

    ask: Literal["GET", "PATCH"]  # the method with which the doctor requests them
    lists: NotRequired[str]  # the path where a running server lists its routes
    guards: NotRequired[dict[str, Guard]]  # by prefix of paths
    routes: dict[str, Route]


class Scores(Versioned):
    """The parameter with which an engine returns the log probabilities of a given text of at most ``tokens``."""

    by: Literal["prompt_logprobs"]
    tokens: Count


class Proof(TypedDict):
    """What the tests prove about an engine, and what they do not."""

    proven: str
    missing: NotRequired[str]  # what the tests do not prove


class CudaNeed(Versioned):
    """The CUDA version that some versions need."""

    cuda: str  # of the packages and the image
    driver: str  # the oldest NVIDIA driver for it


class PluginFlags(TypedDict):
    """The flags that a plugin adds: those that take no value, and those that take one."""

    none: list[str]
    one: list[str]


class Plugin(TypedDict):
    """A plugin that fits exactly one version of its engine."""

    package: Name
    versions: Annotated[dict[str, Version], {"names": VERSION}]  # version of the engine -> version of the plugin
    flags: NotRequired[PluginFlags]
    reason: str


class ContainerWishes(TypedDict):
    """The settings that a container of the engine needs."""

    ipc: NotRequired[Name]  # Docker's IPC mode
    environment: NotRequired[Variables]
    ulimits: NotRequired[Annotated[dict[str, int], {"names": VARIABLE}]]
    cache: NotRequired[Annotated[str, {"form": FOLDER}]]  # a folder of compiled kernels, which is kept on the box


class ConfigDefault(Versioned):
    """The value of a key that every configuration file of the engine has."""

    value: Annotated[Any, {"null": True}]


class EngineConfig(TypedDict):
    """The engine's YAML configuration file, and the flag that names it."""

    flag: str
    files: dict[str, File]  # file name by arm
    template: File
    always: NotRequired[dict[str, ConfigDefault]]  # by key


class GpuEnvironment(TypedDict):
    """Environment variables for some GPUs and some quantizations of the weights; a missing list means all."""

    compute_capability: NotRequired[list[Annotated[str, {"form": NUMBER}]]]
    quantization: NotRequired[list[Name]]
    environment: Variables


class LauncherFlag(Versioned):
    """A flag that the launcher always sets, by version; without ``value`` it takes none."""

    value: NotRequired[str]


class Launch(TypedDict):
    """The command of the server, and its flags for the model, its name, the address and the API key.

    ``key_inside``: the key's flag of an engine that takes the key in no other way. A process list would show the flag,
    so the template passes the key inside the process.
    """

    command: list[str]  # the words before the flags
    target: NotRequired[str]  # the flag for the model; without it, the model is a positional argument
    name: NotRequired[str]  # the flag for the served model's name
    host: str  # the flag for the address
    port: str  # the flag for the port
    key_file: NotRequired[str]  # the flag for a file with the API key
    key_environment: NotRequired[Annotated[str, {"form": VARIABLE}]]  # the variable with the API key
    key_inside: NotRequired[str]
    config: NotRequired[EngineConfig]  # of an engine that reads a YAML file
    always: NotRequired[dict[str, LauncherFlag]]  # by flag
    environment: NotRequired[Variables]  # of every arm
    environment_by_kind: NotRequired[dict[str, Variables]]  # by kind of hardware: gpu or cpu
    environment_by_gpu: NotRequired[list[GpuEnvironment]]


_As = TypedDict("_As", {"as": str})


class Spelling(_As, Versioned):
    """The name of an option, a value or a setting in some versions."""


class OptionChoice(Versioned):
    """A value of an option: the versions that have it, and its other names."""

    spelled: NotRequired[list[Spelling]]


class RefusedOn(TypedDict):
    """Values of an option that a GPU's compute capability does not support."""

    values: list[str]
    reason: str


_Is = TypedDict("_Is", {"is": Literal["fit", "model"]})


class Meaning(_Is, Versioned):
    """The meaning of a word instead of a number of tokens: as many as fit into memory, or the model's maximum."""


@final
class Option(Versioned):
    """An option of a profile: the engine's flag, configuration key or environment variable for it.

    ``unless_said``: the value for both arms if the profile sets none, for an option whose default in the engine
    differs with and without speculation.
    """

    flag: NotRequired[str]
    yaml: NotRequired[str]  # the key of the configuration file
    environment: NotRequired[Annotated[str, {"form": VARIABLE}]]
    type: Literal["int", "float", "str", "bool", "schedule", "tokens"]
    means: NotRequired[dict[str, Meaning]]  # by word
    unless_said: NotRequired[float]
    warning: NotRequired[str]  # for the user of the option
    choices: NotRequired[dict[str, OptionChoice]]  # by value
    spelled: NotRequired[list[Spelling]]  # other names of the flag
    server_only: NotRequired[bool]  # the engine's Python API does not have it
    refused_on: NotRequired[dict[str, RefusedOn]]  # by compute capability


class Reserved(TypedDict, total=False):
    """Patterns of flags and variables that a profile may not set, because ``by`` does, or only with a ``warning``."""

    flags: list[str]
    environment: list[str]
    by: str
    warning: str


class OptionLimit(TypedDict):
    """The maximum of an option, and the reason."""

    most: int
    reason: str


class SpeculationForm(TypedDict):
    """How the engine takes its speculation settings."""

    form: Literal["flags", "json", "yaml"]
    joins: NotRequired[str]  # the separator between methods, for an engine that can run several together
    always: NotRequired[dict[str, LauncherFlag]]  # of the speculative arm with any method
    flag: NotRequired[str]  # of the form "json"
    key: NotRequired[str]  # of the form "yaml"
    at_most: NotRequired[Annotated[dict[str, OptionLimit], {"names": OPTION}]]  # with any method, by option
    # By setting, or setting=value: how it lets answers differ from the target's. Flags without --speculative-, with _.
    lossy: NotRequired[dict[str, str]]


class DraftMatch(TypedDict):
    """What must match in a draft and its target."""

    tokenizer: NotRequired[bool]  # True: both must split text in the same way
    vocab_difference: NotRequired[
        Annotated[int, {"low": 0}]
    ]  # entries by which the vocabularies may differ; 0 if missing


class MethodRequires(TypedDict):
    """What both arms get because a method needs it."""

    serve: NotRequired[Options]
    environment: NotRequired[Variables]
    reason: str  # for the user


@final
class MethodOption(Versioned):
    """An option of a method."""

    name: str  # in the engine
    type: Literal["int", "float", "str", "bool", "schedule"]
    choices: NotRequired[dict[str, OptionChoice]]
    spelled: NotRequired[list[Spelling]]
    reason: NotRequired[str]


class Method(Versioned, MethodPackages):
    """A speculation method of an engine.

    ``whole_passes``: if K is above the number of tokens that a head predicts in one pass, it must be a multiple of it.
    """

    draft: DraftKind
    or_head: NotRequired[bool]  # a draft that the profile names replaces the head inside the target
    head: NotRequired[Name]  # the kind of its heads, if that is not the method's name
    whole_passes: NotRequired[bool]
    one_pass: NotRequired[bool]  # one pass of the draft gives all draft tokens
    trained: NotRequired[bool]  # a draft model must have been trained for it: its head_method
    value: NotRequired[str]  # the engine's name, if it is not the catalogue's
    reason: NotRequired[str]  # why some versions do not have it
    match: NotRequired[DraftMatch]
    usual_tokens: NotRequired[Count]  # K for a pasted command that sets none
    all_heads: NotRequired[bool]  # K must be the draft's number of heads
    requires: NotRequired[MethodRequires]
    names: dict[str, str]  # a profile's name of a setting -> the engine's
    spelled: NotRequired[dict[str, list[Spelling]]]  # by a profile's name
    always: NotRequired[Settings]  # settings with a constant value
    follows: NotRequired[dict[str, int]]  # settings that are K plus a constant (a step verifies K + 1 tokens)
    options: NotRequired[dict[str, MethodOption]]  # by a profile's name


class DraftStep(TypedDict):
    """The time of a draft's pass besides reading its weights: ``ms`` plus ``share``.

    ``by_capability``: the whole cost of a draft token for one user, its verification included, as a share of the
    target's step (median, minimum, maximum); by a GPU's compute capability, or its major number.
    """

    ms: NotRequired[Annotated[float, {"low": 0}]]
    share: NotRequired[Annotated[float, {"low": 0}]]  # of the time of the target's step
    by_capability: NotRequired[dict[str, list[float]]]


class EngineEntry(TypedDict):
    """The file `profiles/catalog/engines/<name>.yml`."""

    name: str  # for people
    family: NotRequired[str]  # the engine of `like`
    template: File  # of the start script
    offline_template: NotRequired[File]  # of a script that uses the engine's Python API
    formats: list[str]  # of weights: gguf, safetensors
    unread_layouts: NotRequired[list[Layout]]  # that the engine does not load
    health: ServerPath  # answers 200 once the server is ready
    ready_timeout_s: Count  # seconds that a start may take
    metrics: Metrics
    open_paths: OpenPaths
    scores: NotRequired[Scores]  # missing: it cannot score a given text
    proof: NotRequired[Proof]
    overhead_mib: Count  # memory besides weights and KV cache
    draft_step: NotRequired[DraftStep]
    kv_bytes_per_value: Count  # of the KV cache
    kv_type_option: NotRequired[str]  # the option that sets the KV cache's type
    # By type of the KV cache, the bytes of a value.
    kv_bytes_by_type: NotRequired[Annotated[dict[str, Annotated[float, {"low": 0.1}]], {"names": NAME}]]
    # GPU memory that it takes at its start: what it needs, a share of all, or a share of what the weights leave.
    reserves: Literal["needed", "share", "share_of_free"]
    default_version: Version  # of a profile that names none
    releases: NotRequired[list[Version]]  # all versions that a profile may name
    versions: Annotated[dict[str, EngineRelease], {"names": VERSION}]  # the supported ones
    install: dict[str, Install]  # by kind of hardware: gpu or cpu
    image: NotRequired[Image]  # for GPUs
    rental_image: NotRequired[ImageName]  # for a rented box, if `image` has no Python
    cuda: NotRequired[list[CudaNeed]]  # the first that has the version counts
    shared_memory_mib: NotRequired[Count]  # the size of /dev/shm
    nightly: NotRequired[Nightly]
    plugin: NotRequired[Plugin]
    container: NotRequired[ContainerWishes]
    launch: Launch
    options: Annotated[dict[str, Option], {"names": OPTION}]  # by a profile's name
    flag_style: NotRequired[Literal["-", "_"]]  # between the words of a flag
    reserved: NotRequired[list[Reserved]]
    # Names of options that the memory plan reads, and the engine's defaults for them.
    context_option: str  # tokens of a context
    sequences_option: str  # requests at once
    sequences_default: NotRequired[Count]
    context_is_shared: bool  # False: each sequence has its own
    share_option: NotRequired[str]  # fraction of the GPU memory that ``reserves`` is about
    share_default: NotRequired[Annotated[float, {"low": 0, "high": 1}]]
    devices_option: NotRequired[str]  # GPUs over which the model is split
    layer_split: NotRequired[bool]  # it puts some layers on each GPU by itself: the memory adds up, not the speed
    copies_option: NotRequired[str]  # data parallel replicas
    speculation: SpeculationForm
    methods: Annotated[dict[str, Method], {"names": NAME}]


class CatalogEngine(EngineEntry):
    """An engine's entry with its name in the catalogue (``id``)."""

    id: str


class CatalogMethod(Method):
    """A method with its name in the catalogue (``id``)."""

    id: str
