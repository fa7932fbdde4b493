"""Types of `report.json`, the comparison of two arms; docs/report.schema.json is made from them (`schema.py`).

An arm is a server: the baseline, or the one with speculation. Times are in ms, speeds in tokens/s, rates and shares are
fractions, memory is in bytes. A speed-up above 1 means that speculation is faster. Values that were not measured are
None or empty. A pair in ``Annotated`` is a JSON Schema keyword and its value. Older reports may lack keys: use ``get``.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from ..analysis.verdict_types import ArmCost, CostRow, Judgement, Outputs, Saving
from ..bench.result_types import ACCEPTANCE_SOURCES
from ..bench.stats import Estimated, Gain
from ..bench.sweep.ladder_types import LevelChange, Spread
from ..profiles.published_schema import PublishedFigure
from ..profiles.resolved_types import ExpectedSpeed, ResolvedProfile

Arm = Literal["baseline", "speculative"]
ARMS: tuple[Arm, Arm] = ("baseline", "speculative")

Count = Annotated[int, ("minimum", 0)]
CountFromOne = Annotated[int, ("minimum", 1)]
Positive = Annotated[float, ("exclusiveMinimum", 0)]
Share = Annotated[float, ("minimum", 0), ("maximum", 1)]
# The allowed values of fields that other packages type as plain str.
BrokenWord = Annotated[str, ("enum", ("failed", "cut_off", "empty", "no_usage"))]
KindWord = Annotated[str, ("enum", ("pays", "does not pay", "cannot say"))]
LevelWord = Annotated[str, ("enum", ("pays", "costs", "unclear"))]
GateWord = Annotated[str, ("enum", ("passed", "failed", "not measured", "no baseline"))]
AcceptanceSource = Annotated[str, ("enum", tuple(ACCEPTANCE_SOURCES))]
LoopWord = Annotated[str, ("enum", ("closed", "open"))]
#: The value of a table cell.
Leaf = str | float | bool | None


class FailedRequest(TypedDict):
    """A request without a complete answer."""

    prompt_id: str | None
    round: int | None
    http_status: int | None  # None: no response
    error: str | None  # why the answer is not complete


class Failure(TypedDict):
    """Requests of an arm without a complete answer, by kind of failure; ``examples`` are the first ones."""

    arm: Arm
    status: BrokenWord
    words: str  # the status as a phrase
    count: CountFromOne
    of: CountFromOne  # number of all requests of the arm
    examples: list[FailedRequest]


ArticleMetric = Literal["Response Tok/s", "Time To First Token (s)", "Prompt Tok/s"]


class ArticleRow(TypedDict):
    """A row as the articles have it: the median over the requests of each arm, and the ratio of the two."""

    metric: ArticleMetric
    unit: str
    normal: float | None  # the baseline
    speculative: float | None
    speedup: float | None
    note: str  # what the metric means, and its pitfalls


class Articles(TypedDict):
    """Three rows computed as the articles' tool does, over the articles' suite or (suite: null) over all requests."""

    suite: str | None
    requests: dict[Arm, Count]  # number of complete answers
    source: str  # the articles' tool
    note: str
    rows: list[ArticleRow]


Figure = Literal["median", "mean", "whole run"]


class OtherToolRow(TypedDict):
    """A column of an older tool, and the error that it is known for."""

    tool: str
    name: str  # of the column
    unit: str
    of: Figure  # the statistic over the requests
    baseline: float | None
    speculative: float | None
    error: str  # in what way the tool's formula is wrong


class OtherTools(TypedDict):
    """The columns of older tools, computed from these requests as those tools do, with their known errors."""

    note: str
    rows: list[OtherToolRow]


class LoadKind(TypedDict):
    """The load up to which speculation pays on a kind; an end of the interval outside the load sweep is null."""

    kind: str
    declared: bool  # True if the verdict covers it
    word: KindWord | None  # null: not computed, as in all keys below
    pays_from: float | None  # null also: it pays at the lowest level already, or at none
    pays_until: float | None  # null also: speculation pays at no level, or up to the highest one
    reaches_top: bool  # True if it pays up to the highest level
    interval: Annotated[list[float | None], ("minItems", 2), ("maxItems", 2)] | None  # of pays_until
    beyond: LevelChange | None  # the first higher level at which speculation costs
    sentence: str | None
    reasons: list[str]  # why nothing more is claimed


class LoadSpeeds(TypedDict):
    """Speeds at a load level; goodput is in requests/s within the latency limits."""

    output_throughput: float | None  # tokens/s of all requests together
    per_user_tok_s: float | None  # tokens/s of one request
    request_throughput: float | None  # requests/s
    goodput: float | None


class LoadLatencies(TypedDict):
    """Latencies at a load level in ms: of each percentile the median over the rounds."""

    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread


class LoadPower(TypedDict):
    """Mean power in W, and energy per output token in J: of the whole GPU, and above its idle power."""

    mean_w: float | None
    joules_per_token: float | None
    joules_per_token_above_idle: float | None


class LoadedArm(LoadSpeeds, LoadLatencies, LoadPower):
    """An arm at a load level, as the median over its rounds."""

    status: Literal["ok", "polluted", "broken", "incomplete"]
    steps: CountFromOne  # measured
    kept: Count  # undisturbed: these enter the numbers
    ended_by: list[str]
    seconds: Annotated[float, ("minimum", 0)]
    completed: Count
    failed: Count
    acceptance_rate: Share | None
    acceptance_length: float | None


class LoadRow(TypedDict):
    """A kind at a load level: both arms, the crossover's word for the level, and what ended the steps."""

    kind: str
    level: Positive
    speedup: Gain | None
    word: LevelWord | None  # null: not computed, or not claimed
    baseline: LoadedArm | None  # null: not measured at the level
    speculative: LoadedArm | None
    ended: str


class Load(TypedDict):
    """The load levels that were measured, in ``unit``."""

    load: LoopWord
    unit: str
    levels: list[Positive]
    limits: dict[str, float] | None
    rounds: int | None
    kinds: list[LoadKind]
    rows: list[LoadRow]
    troubles: list[str]
    remarks: list[str]
    # In reports of earlier versions only: a suggestion to switch speculation by batch size.
    schedule: NotRequired[object]


class Acceptance(TypedDict):
    """Acceptance of the draft tokens: the rate, the mean tokens per step, and the rates by position in the draft.

    ``repeats``: a quarter or more of the answers repeat themselves, which makes them easy to draft.
    """

    rate: Share | None
    length: float | None  # mean tokens per step: 1 + accepted tokens over drafts
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    by_position: list[float]  # fractions of the drafts; empty if the engine did not report them
    repeats: NotRequired[bool]


class PublishedBeside(PublishedFigure):
    """A published figure and the acceptance length measured here, on the same data set or else over all prompts."""

    here: float | None  # the length measured here
    same_prompts: bool  # False: ``here`` is over all prompts
    well_below: bool  # True points to the setup, see `data/published.py`


class AcceptanceBySource(TypedDict):
    """Acceptance overall and by group of requests, its source, and figures that others published for the target."""

    source: AcceptanceSource | None
    overall: Acceptance
    groups: dict[str, Acceptance]
    published: NotRequired[list[PublishedBeside]]


class Measure(TypedDict):
    """A measure of both arms, as medians over prompts, and its speed-up."""

    baseline: Estimated | None
    speculative: Estimated | None
    speedup: Gain | None


class Measures(TypedDict):
    """The measures of a kind of prompt."""

    tok_s: Measure
    tpot_ms: Measure
    ttft_ms: Measure
    ttfat_ms: Measure
    e2el_ms: Measure


class KindRow(Measures):
    """A kind of prompt of the experiment; ``declared``: whether the verdict covers it."""

    group: str  # the kind at one temperature
    kind: str | None
    temperature: float | None
    concurrency: int | None
    declared: bool
    prompts: Count
    requests: dict[Arm, Count]
    output_tokens: dict[Arm, Count]
    speedup: Gain | None  # null: too few prompts in both arms
    control: Gain | None  # the baseline against itself
    outputs: Outputs  # how many answers are equal
    acceptance: Acceptance


class Distributions(TypedDict):
    """The values of all requests, sorted, by measure and then by arm."""

    tpot_ms: dict[Arm, list[Annotated[float, ("minimum", 0)]]]
    ttft_ms: dict[Arm, list[Annotated[float, ("minimum", 0)]]]


class GateRow(TypedDict):
    """A check of the outputs: its word, the result of each arm, the rule, and the names of the first failures."""

    name: str
    title: str
    word: GateWord
    said: str  # the result in words
    rule: str  # when the gate passes
    baseline: str | None
    speculative: str | None
    examples: dict[Arm, list[str]]


class Totals(TypedDict):
    """Totals over all requests of an arm, in seconds, tokens and tokens/s."""

    requests: int
    duration: float | None
    completed: int | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    output_throughput: float | None


class SetupRow(TypedDict):
    """A line of the set-up: a name and its value."""

    what: str
    which: str


class CommandFile(TypedDict):
    """A rendered file."""

    path: str
    content: str


class Commands(TypedDict):
    """The rendered files of both arms, and their difference in the format of diff -u."""

    baseline: list[CommandFile]
    speculative: list[CommandFile]
    diff: str


class SideBySide(TypedDict):
    """A fact with its value in each arm."""

    what: str
    baseline: Leaf
    speculative: Leaf


class Moments(TypedDict, total=False):
    """A fact of the machine: before and after the arm, or a single value while the arm ran."""

    before: Leaf
    after: Leaf
    value: Leaf


class MachineRow(TypedDict):
    """A fact of the machine in both arms."""

    what: str
    baseline: Moments
    speculative: Moments


class PromptHashes(TypedDict, total=False):
    """The resolved profile that was measured, with the rendered files.

    ``prompts``: a short hash of each prompt's request (messages, output length, tools, answer format, further fields),
    by kind and then by id; absent in older reports. The text of the prompts is not kept.
    """

    prompts: dict[str, dict[str, Annotated[str, ("pattern", "^[0-9a-f]{12}$")]]]


class KeptProfile(ResolvedProfile, PromptHashes):
    """The part of a resolved profile that a report keeps; ``key`` is a hash of profile and machine."""

    key: NotRequired[str]
    image_digest: NotRequired[str | None]
    # State at the time of the run; never in a report.
    box: NotRequired[object]
    lease: NotRequired[object]


class Verdict(Judgement):
    """The verdict; ``load`` is the sentence on the load up to which speculation pays, or null if none is claimed."""

    load: NotRequired[str | None]


class Cost(TypedDict):
    """Energy, money, memory and share of the bandwidth limit: computed, shown, and why values are missing."""

    arms: dict[str, ArmCost]
    rows: list[CostRow]
    why: list[str]
    saving: NotRequired[Saving | None]


class JudgedFiles(TypedDict):
    """Facts of a report on other people's files.

    By arm, the file formats (``forms``) and the ``runs`` of the verdict; how requests were paired (``paired_by``), the
    sources of times per token (``clocks``), the verdict that single runs would give if further runs agreed
    (``if_quiet``), and the figures that the files' ``author`` gives.
    """

    forms: dict[str, list[str]]
    runs: dict[str, list[str]]
    paired_by: str
    clocks: list[str]
    if_quiet: str | None
    author: list[str]


class Report(TypedDict):
    """The comparison of two arms of one resolved profile.

    Times are in milliseconds, speeds in tokens per second, rates and shares are fractions, memory is in bytes.
    Speed-ups are above 1 where speculation is faster. Parts that were not measured are null or empty. ``marks``: what a
    reader must know before the verdict (synthetic, unpinned), each with its reason. ``key``: hash of the resolved
    profile and the machine. ``date``: start of the later arm (YYYYMMDD-HHMMSS in UTC). ``stock``: speed-up of each arm
    over the engine started without the profile's settings. A later version may add properties below the first level;
    a change of meaning changes the number after the slash in ``schema``.
    """

    schema: Literal["drafthouse.report/1"]
    profile: str
    title: str
    article: str | None
    marks: dict[str, str]
    key: str | None
    host: str
    date: str
    verdict: Verdict
    failures: list[Failure]
    articles: Articles
    other_tools: OtherTools | None
    load: Load | None
    contexts: NotRequired[Load | None]
    kinds: list[KindRow]
    acceptance: AcceptanceBySource
    stock: dict[str, Gain | None] | None
    distributions: Distributions
    gates: list[GateRow]
    cost: Cost | None
    totals: dict[Arm, Totals]
    expectation: ExpectedSpeed | None
    setup: list[SetupRow]
    commands: Commands
    versions: list[SideBySide]
    engine_changes: list[SideBySide]
    machine: list[MachineRow]
    warnings: list[str]
    not_measured: list[str]
    files: NotRequired[JudgedFiles]
    resolved: NotRequired[Annotated[KeptProfile, PromptHashes]]
