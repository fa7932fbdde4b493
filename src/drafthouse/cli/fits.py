"""Show on which GPUs a model fits, with which context, and the speed that their memory allows.

Examples:
  drafthouse fits gpt-oss-120b
  drafthouse fits Qwen/Qwen3-14B --gpu 24GB --context 32k

MODEL is an entry of the catalogue, or a repository of the Hub, which is read (a few MB) and not added. Memory is the
plan's arithmetic: weights, KV cache and the engine's own share. The limit is that of reading the weights once a token.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from ..core.errors import did_you_mean, one_problem
from ..core.exit_codes import DONE
from ..core.table import table, terminal_columns
from ..models.fits import (
    Fitting,
    cards_in,
    engine_for,
    expected_there,
    fitting,
    hardware_named,
    kv_gb,
    memory_of,
    published,
)
from ..profiles.catalog import Catalog
from ..profiles.memory_fit import GB
from ..profiles.model_names import find_model, model_named
from ..profiles.token_counts import tokens_in
from ..profiles.workspace import catalog_for
from .model import read_entry
from .parser import Parser, parser_of, print_json

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import HardwareEntry, ModelEntry
    from drafthouse.profiles.profile_types import Profile


def options() -> Parser:
    """The argument parser of `drafthouse fits`."""
    parser = parser_of(__doc__, "fits")
    parser.add_argument("model", metavar="MODEL", help="an entry of the catalogue, org/name, or org/name:file.gguf")
    parser.add_argument(
        "--gpu",
        help="hardware of the catalogue (rtx6000, 2x3090), or a card's memory (24GB, 2x24GB); default: all of it",
    )
    parser.add_argument(
        "--context",
        type=context,
        default=8192,
        metavar="TOKENS",
        help="tokens of a sequence: 32000, 32k (the same), 32K (32768) (default 8192)",
    )
    parser.add_argument("--engine", help="plan with this engine (default: the one most profiles of the format use)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    return parser


def context(text: str) -> int:
    """The number of tokens in an argument such as 32k or 40960; argparse shows the error."""
    tokens = tokens_in(text)
    if not tokens:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens, such as 32k")
    return tokens


def main(argv: Sequence[str] | None = None) -> int:
    """Print how the model fits on each card, as a table or as JSON."""
    args = options().parse_args(argv)
    catalog = catalog_for()  # the catalogue and the profiles
    model = model_of(args.model, catalog)
    engine = engine_for(catalog, model, args.engine)
    if args.context > model["context"]:
        raise one_problem(
            "context-too-long",
            f"{args.context} tokens",
            f"at most {model['context']}, the model's context length",
            "choose a shorter context",
            "--context",
        )
    cards = cards_for(args.gpu, catalog)
    rows = [fitting(model, engine, key, card, args.context) for key, card in cards.items()]
    if args.json:
        about_model = {"model": model["name"], "engine": engine["name"], "context": args.context}
        print_json("fits", {**about_model, "rows": list(map(asdict, rows))})
        return DONE
    bound = f"{model.get('bound', '')} ".lstrip()  # config.json was understood in part
    needs = (
        f"{model['name']}: {model['weight_bytes'] / GB:.1f} GB of weights,"
        f" {bound}{kv_gb(model, engine, args.context):.2f} GB of KV cache for {args.context:,} tokens"
        f" ({engine['name']})"
    )
    print(textwrap.fill(needs, terminal_columns()) + "\n")
    head = ["hardware", "memory", "fits", "longest context", "at most"]
    best = None  # the profile of the column "speculating"; without a bandwidth nothing can be expected
    if any(card["bandwidth_gb_s"] for card in cards.values()):
        best = _best_measured(model, catalog)
    if best:
        head.append("speculating")
    gain = partial(_gain_cell, best, catalog=catalog, context_tokens=args.context)
    print(table(head, [_cells(row, args.context) + gain(row, cards[row.hardware]) for row in rows]))
    if best:
        print("\n" + textwrap.fill(_gain_text(best), terminal_columns()))
    return DONE


def _gain_text(best: Profile) -> str:
    """The explanation of the column "speculating"."""
    speculation = best["speculation"]
    expect = best["expect"]
    draft = f" with {speculation['draft']}" if "draft" in speculation else ""
    return (
        f"speculating: what {speculation['method']}{draft}, K={speculation['num_speculative_tokens']}, is expected"
        f" to gain for one user, at an acceptance of {expect['acceptance']:.2f}: {expect['source']}"
    )


def _best_measured(model: ModelEntry, catalog: Catalog) -> Profile | None:
    """The model's profile with the highest published acceptance rate; None where none is published."""
    profiles: list[Profile] = []
    for key, entry in catalog.models.items():
        if entry is model:
            profiles += published(catalog, key)
    return max(profiles, key=lambda profile: profile["expect"]["acceptance"], default=None)


def _gain_cell(
    best: Profile | None, row: Fitting, card: HardwareEntry, *, catalog: Catalog, context_tokens: int
) -> list[str]:
    """The cell of the column "speculating", in a list; [] without that column, which ``best`` None means."""
    if best is None:
        return []
    if row.longest < context_tokens or not card["bandwidth_gb_s"]:
        return ["-"]
    expected = expected_there(catalog, best, {"id": row.hardware, **card}, context_tokens)
    if expected is None:
        return ["no room"]
    return [f"{expected['low']:.1f} to {expected['high']:.1f}x"]


def _cells(row: Fitting, context_tokens: int) -> list[str]:
    """The other cells of a row, as text."""
    fits = "no"
    if row.longest >= context_tokens:
        fits = "yes"
    elif row.smaller:
        fits = f"no; {' or '.join(row.smaller)} would"
    limit = longest = "-"
    if row.longest:
        longest = f"{row.longest:,}"
    if row.limit and row.longest:
        limit = f"{row.limit:.0f} tok/s"
    return [f"{row.hardware} ({row.name})", row.sold, fits, longest, limit]


def model_of(word: str, catalog: Catalog) -> ModelEntry:
    """The catalogue entry named ``word``; for a Hub repository without an entry, one made from its files."""
    if find_model(word, catalog.models) is None and "/" in word:
        return read_entry(word, catalog).entry
    return catalog.models[model_named(word, catalog, "MODEL")]


def cards_for(gpu: str | None, catalog: Catalog) -> dict[str, HardwareEntry]:
    """The hardware that --gpu names, by name, in the first case that fits.

    1. None: every GPU of the catalogue.
    2. A GPU of the catalogue, or several of one (2x3090).
    3. A memory, or several cards of one (2x24GB): a card of which nothing else is known, with the bandwidth 0.

    Raises DrafthouseError for any other word.
    """
    gpus = {key: card for key, card in catalog.hardware.items() if card["kind"] == "gpu"}
    if gpu is None:
        return gpus
    if (named := hardware_named(gpu, gpus)) in gpus:
        return {named: gpus[named]}
    devices, one_card = cards_in(gpu)
    if (named := hardware_named(one_card, gpus)) in gpus:
        return {gpu: {**gpus[named], "devices": devices, "name": f"{devices} x {gpus[named]['name']}"}}
    memory = memory_of(one_card)
    if memory is None:
        needed = "a GPU of the catalogue, a memory such as 24GB, or several of them: 2x24GB"
        raise one_problem("unknown-value", f"'{gpu}'", needed, did_you_mean(gpu, gpus), "--gpu")
    card: HardwareEntry = {
        "name": "a card of that memory" if devices == 1 else f"{devices} cards of that memory",
        "kind": "gpu",
        "inventory": "workstation",
        "devices": devices,
        "memory_mib": memory,
        "sold_gb": round(float(re.sub("[^0-9.]", "", one_card))),
        "bandwidth_gb_s": 0,
    }
    return {gpu: card}
