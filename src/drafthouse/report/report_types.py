"""What `report.json` holds, as types; docs/report.schema.json is made from them (`schema.py`).

Times are in ms, speeds in tokens/s, rates and shares are fractions, memory is in bytes; speed-ups are above 1 where
speculation is faster. What was not measured is None or empty. A pair in ``Annotated`` is a word of JSON Schema. Reports
of earlier versions may hold less: who reads one from a file asks with ``get``.
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
Some = Annotated[int, ("minimum", 1)]
Positive = Annotated[float, ("exclusiveMinimum", 0)]
Share = Annotated[float, ("minimum", 0), ("maximum", 1)]
# Words that the rooms below hold as any text.
BrokenWord = Annotated[str, ("enum", ("failed", "cut_off", "empty", "no_usage"))]
KindWord = Annotated[str, ("enum", ("pays", "does not pay", "cannot say"))]
LevelWord = Annotated[str, ("enum", ("pays", "costs", "unclear"))]
GateWord = Annotated[str, ("enum", ("passed", "failed", "not measured", "no baseline"))]
AcceptanceSource = Annotated[str, ("enum", tuple(ACCEPTANCE_SOURCES))]
LoopWord = Annotated[str, ("enum", ("closed", "open"))]
Leaf = str | float | bool | None
"""What stands in a cell of a table."""


class FailedRequest(TypedDict):
    """A request that gave no whole answer."""

    prompt_id: str | None
    round: int | None
    http_status: int | None
    error: str | None


class Failure(TypedDict):
    """What did not give a whole answer: an arm and a sort, with the first ones by name."""

    arm: Arm
    status: BrokenWord
    words: str
    count: Some
    of: Some
    examples: list[FailedRequest]


ArticleMetric = Literal["Response Tok/s", "Time To First Token (s)", "Prompt Tok/s"]


class ArticleRow(TypedDict):
    """A row as the articles have it: the median over the requests of each arm, and one over the other."""

    metric: ArticleMetric
    unit: str
    normal: float | None
    speculative: float | None
    speedup: float | None
    note: str


class Articles(TypedDict):
    """Three rows computed as the articles' tool does, over their own suite or (suite: null) over all requests."""

    suite: str | None
    requests: dict[Arm, Count]
    source: str
    note: str
    rows: list[ArticleRow]


Figure = Literal["median", "mean", "whole run"]


class OtherToolRow(TypedDict):
    """A column of an older tool, and the error it is known for."""

    tool: str
    name: str
    unit: str
    of: Figure
    baseline: float | None
    speculative: float | None
    error: str


class OtherTools(TypedDict):
    """The columns of older tools, computed from our requests as they compute them, with their known errors."""

    note: str
    rows: list[OtherToolRow]


class LoadKind(TypedDict):
    """Until which load speculation pays on one kind; an end of the interval is null where it is outside the ladder."""

    kind: str
    declared: bool
    word: KindWord | None
    pays_from: float | None
    pays_until: float | None
    reaches_top: bool
    interval: Annotated[list[float | None], ("minItems", 2), ("maxItems", 2)] | None
    beyond: LevelChange | None
    sentence: str | None
    reasons: list[str]


class LoadSpeeds(TypedDict):
    """Speeds at a level; goodput is in requests/s within the limits."""

    output_throughput: float | None
    per_user_tok_s: float | None
    request_throughput: float | None
    goodput: float | None


class LoadLatencies(TypedDict):
    """Latencies at a level in ms, the median over the rounds of each percentile."""

    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread


class LoadPower(TypedDict):
    """Mean power in W and the energy of an output token in J: of the whole GPU, and above its idling."""

    mean_w: float | None
    joules_per_token: float | None
    joules_per_token_above_idle: float | None


class LoadedArm(LoadSpeeds, LoadLatencies, LoadPower):
    """One arm at one level, the median over its rounds."""

    status: Literal["ok", "polluted", "broken", "incomplete"]
    steps: Some
    kept: Count
    ended_by: list[str]
    seconds: Annotated[float, ("minimum", 0)]
    completed: Count
    failed: Count
    acceptance_rate: Share | None
    acceptance_length: float | None


class LoadRow(TypedDict):
    """A kind at a level: both arms, what the crossover says, and what ended the steps."""

    kind: str
    level: Positive
    speedup: Gain | None
    word: LevelWord | None
    baseline: LoadedArm | None
    speculative: LoadedArm | None
    ended: str


class Load(TypedDict):
    """The loads that were tried; levels are in ``unit``."""

    load: LoopWord
    unit: str
    levels: list[Positive]
    limits: dict[str, float] | None
    rounds: int | None
    kinds: list[LoadKind]
    rows: list[LoadRow]
    troubles: list[str]
    remarks: list[str]
    # Of reports of earlier versions: a suggestion to switch speculation by batch size.
    schedule: NotRequired[object]


class Acceptance(TypedDict):
    """What was accepted of the drafts: the rate, the tokens a step, and the rates by position in the draft.

    ``repeats``: a quarter or more of the answers repeat themselves, which drafts easily.
    """

    rate: Share | None
    length: float | None
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None
    by_position: list[float]
    repeats: NotRequired[bool]


class PublishedBeside(PublishedFigure):
    """What others published, and the acceptance length here: on the same data set, or else over all prompts."""

    here: float | None
    same_prompts: bool
    well_below: bool


class AcceptanceBySource(TypedDict):
    """What was accepted of the drafts in all and by group, who told it, and what others published of the target."""

    source: AcceptanceSource | None
    overall: Acceptance
    groups: dict[str, Acceptance]
    published: NotRequired[list[PublishedBeside]]


class Measure(TypedDict):
    """A measure of both arms, medians over prompts, and its speed-up."""

    baseline: Estimated | None
    speculative: Estimated | None
    speedup: Gain | None


class Measures(TypedDict):
    """What is measured of a kind."""

    tok_s: Measure
    tpot_ms: Measure
    ttft_ms: Measure
    ttfat_ms: Measure
    e2el_ms: Measure


class KindRow(Measures):
    """A kind of prompt of the experiment; ``declared``: whether the verdict is about it."""

    group: str
    kind: str | None
    temperature: float | None
    concurrency: int | None
    declared: bool
    prompts: Count
    requests: dict[Arm, Count]
    output_tokens: dict[Arm, Count]
    speedup: Gain | None
    control: Gain | None
    outputs: Outputs
    acceptance: Acceptance


class Distributions(TypedDict):
    """Every request's value in order, by measure and arm."""

    tpot_ms: dict[Arm, list[Annotated[float, ("minimum", 0)]]]
    ttft_ms: dict[Arm, list[Annotated[float, ("minimum", 0)]]]


class GateRow(TypedDict):
    """Whether the output is still right: what each arm did, the rule, and the first failures by name."""

    name: str
    title: str
    word: GateWord
    said: str
    rule: str
    baseline: str | None
    speculative: str | None
    examples: dict[Arm, list[str]]


class Totals(TypedDict):
    """All of an arm's requests: seconds, tokens, tokens/s."""

    requests: int
    duration: float | None
    completed: int | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    output_throughput: float | None


class SetupRow(TypedDict):
    """A line of what was compared."""

    what: str
    which: str


class CommandFile(TypedDict):
    """A rendered file."""

    path: str
    content: str


class Commands(TypedDict):
    """The rendered files of both arms, and what differs between them as diff -u shows it."""

    baseline: list[CommandFile]
    speculative: list[CommandFile]
    diff: str


class SideBySide(TypedDict):
    """A fact of both arms."""

    what: str
    baseline: Leaf
    speculative: Leaf


class Moments(TypedDict, total=False):
    """A fact of the machine: before and after the arm, or one value while it ran."""

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

    ``prompts``: a short hash of what each prompt asks for (messages, output length, tools, form of the answer, further
    fields), by kind and id; absent in older reports. The text itself is not kept.
    """

    prompts: dict[str, dict[str, Annotated[str, ("pattern", "^[0-9a-f]{12}$")]]]


class KeptProfile(ResolvedProfile, PromptHashes):
    """What a report keeps of a resolved profile; the digest is that of the image, the key that of profile and box."""

    key: NotRequired[str]
    image_digest: NotRequired[str | None]
    # Of the moment, and not kept.
    box: NotRequired[object]
    lease: NotRequired[object]


class Verdict(Judgement):
    """The verdict, and until which load it pays in words; null where that is not claimed."""

    load: NotRequired[str | None]


class Cost(TypedDict):
    """Energy, money, memory and the share of the bandwidth limit: as computed, as shown, and why some is not known."""

    arms: dict[str, ArmCost]
    rows: list[CostRow]
    why: list[str]
    saving: NotRequired[Saving | None]


class JudgedFiles(TypedDict):
    """What a report on other people's files says of them.

    By arm the ``forms`` they were read as and the ``runs`` of the verdict; by what requests were ``paired_by``, the
    ``clocks`` that times per token were read off, the word ``if_quiet`` had single runs agreed with further ones, and
    what the files' ``author`` says.
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
    Speed-ups are above 1 where speculation is faster. Parts that were not measured are null or empty. ``marks`` is what
    a reader must know before the word itself (synthetic, unpinned), with its reason, ``key`` the hash of the resolved
    profile and the box, ``date`` when the later arm began (YYYYMMDD-HHMMSS in UTC), ``stock`` both arms against the
    engine as it is started without our settings. A later version may add properties to the parts below the first
    level; a change of meaning takes another number behind the slash.
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
