"""Schema of `speculative_config` in TensorRT-LLM's YAML, for the PyTorch backend: decoding types and their keys.

`trtllm_schema` lists the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.schema import Anything, Value
from .trtllm_keys import (
    FLAG,
    LAST_12,
    LAST_13,
    MAYBE_COUNT,
    MAYBE_FLAG,
    MAYBE_NUMBER,
    MAYBE_POSITIVE,
    MAYBE_TEXT,
    MAYBE_WHOLE,
    MOE_BACKENDS,
    NEXT,
    NEXT_14,
    POSITIVE,
    SCHEDULE,
    SHARE,
    STABLE,
    TEXT,
    WHOLE,
    WHOLES,
    Key,
    Keys,
    new,
    words,
)

# Keys of every decoding type (`DecodingBaseConfig`).
SPECULATION: Mapping[str, Key] = {
    "decoding_type": Key(Anything(), null=True),  # see `_checked_type` of `trtllm_config`
    # Most types of the engine accept 0 too, which disables drafting.
    "max_draft_len": POSITIVE,
    "max_total_draft_tokens": MAYBE_POSITIVE,
    # The reference of 1.4.0rc1 has only speculative_model.
    "speculative_model_dir": Key(Value(str), null=True, until=LAST_13, instead="write 'speculative_model'"),
    "speculative_model": Key(
        Value(str), null=True, since=STABLE, instead="write 'speculative_model_dir', as it is called there"
    ),
    "max_concurrency": MAYBE_COUNT,
    "draft_len_schedule": Key(Anything(), null=True, since=SCHEDULE),  # see `_check_schedule` of `trtllm_config`
    "load_format": MAYBE_TEXT,
    "acceptance_window": Key(Value(int, low=0), null=True, until=LAST_13),
    "acceptance_length_threshold": Key(Value(float, low=0), null=True, until=LAST_13),
    # In the reference of 1.3.0rc27 these two replace the two above.
    "acceptance_rate_window_size": new(MAYBE_COUNT),
    "acceptance_rate_threshold": Key(SHARE, null=True, since=NEXT),
    "allow_advanced_sampling": new(FLAG),
    "use_rejection_sampling": new(FLAG),
    "advanced_sampling_mode": Key(words("full", "no_topk", "no_topp", "no_topk_no_topp"), since=NEXT),
    "enable_penalty": new(FLAG),
    "moe_backend": Key(MOE_BACKENDS, null=True, since=NEXT_14),  # for the draft model
    "spec_dec_variant": new(MAYBE_POSITIVE, NEXT_14),
}
# `SAEnhancerConfig`: a suffix automaton in addition to the drafter.
_SA_BESIDE = Key(Keys({"threshold": POSITIVE, "enable_global_pool": FLAG}), null=True, since=NEXT)
_EAGLE: Mapping[str, Key] = {
    "eagle_choices": Key(Anything(), null=True, until=LAST_13),  # a list of lists, or its text
    "greedy_sampling": new(MAYBE_FLAG, since=None, until=LAST_13),
    "posterior_threshold": new(MAYBE_NUMBER, since=None, until=LAST_13),
    "use_dynamic_tree": MAYBE_FLAG,
    "dynamic_tree_max_topK": MAYBE_POSITIVE,
    "num_eagle_layers": MAYBE_POSITIVE,
    "max_non_leaves_per_layer": MAYBE_POSITIVE,
    "eagle3_one_model": new(MAYBE_FLAG, since=None, until=LAST_13),
    "eagle3_layers_to_capture": Key(WHOLES, null=True),
    "eagle3_model_arch": Key(words("llama3", "mistral_large3"), since=STABLE),
}
_MTP: Mapping[str, Key] = {
    # Two names of the number of draft tokens. A version reads one and ignores the other, at most with a warning.
    # PR 12341 changed the name: 1.3.0rc14 was run with the old one (InferenceX PR 1487); it is deprecated in 1.3.0rc16.
    "num_nextn_predict_layers": Key(Value(int, low=1), until="1.3.0rc14", instead="write 'max_draft_len'"),
    "max_draft_len": Key(Value(int, low=1), since="1.3.0rc15", instead="write 'num_nextn_predict_layers'"),
    "use_relaxed_acceptance_for_thinking": FLAG,
    "relaxed_topk": POSITIVE,
    "relaxed_delta": Key(Value(float, low=0)),
    "use_mtp_vanilla": FLAG,
    "mtp_eagle_one_model": new(FLAG, since=None, until=LAST_13),
    "use_dynamic_tree": new(FLAG),
    "dynamic_tree_max_topK": new(MAYBE_POSITIVE),
    "sa_config": _SA_BESIDE,
    "begin_thinking_phase_token": new(WHOLE, STABLE),
    "end_thinking_phase_token": new(WHOLE, STABLE),
    "BEGIN_THINKING_PHASE_TOKEN": Key(Value(int), until="1.2.0rc99"),
    "END_THINKING_PHASE_TOKEN": Key(Value(int), until="1.2.0rc99"),
}
_NGRAM: Mapping[str, Key] = {
    "max_matching_ngram_size": POSITIVE,
    "is_keep_all": FLAG,
    "is_use_oldest": FLAG,
    "is_public_pool": FLAG,
}
_PARD: Mapping[str, Key] = {"mask_token_id": MAYBE_WHOLE, "sa_config": _SA_BESIDE}
_SA: Mapping[str, Key] = {
    "max_matching_ngram_size": WHOLE,  # the default is -1: no limit
    "enable_global_pool": FLAG,
    "global_pool_size": MAYBE_POSITIVE,
}
_DFLASH: Mapping[str, Key] = {
    "mask_token_id": MAYBE_WHOLE,
    "target_layer_ids": Key(WHOLES, null=True),
    "attention_backend": Key(words("VANILLA", "TRTLLM", FA4={"since": "1.3.0rc27"})),
    "context_recompute_tail": new(MAYBE_COUNT, NEXT_14),
    "skip_ctx_buffer_budget_check": new(FLAG, NEXT_14),
}
_DSPARK: Mapping[str, Key] = {
    "mask_token_id": MAYBE_WHOLE,
    "target_layer_ids": Key(WHOLES, null=True),
    "block_size": MAYBE_POSITIVE,
    "markov_rank": MAYBE_WHOLE,
    "markov_head_type": Key(words("vanilla", "gated", "rnn"), null=True),
    "attention_backend": Key(words("VANILLA", "TRTLLM", AUTO={"since": NEXT_14}, CUTEDSL={"since": NEXT_14})),
}
_SAVE_STATE: Mapping[str, Key] = {
    "output_directory": TEXT,
    "write_interval": POSITIVE,
    "file_prefix": TEXT,
    "eagle3_layers_to_capture": Key(WHOLES, null=True),
}


@dataclass(frozen=True)
class DecodingType:
    """A decoding type, a value of the key `decoding_type`."""

    keys: Mapping[str, Key] = field(default_factory=dict)  # its keys besides `SPECULATION`
    needs: tuple[str, ...] = ()  # keys that it must have
    since: str | None = None  # the first version that has its name; None: the oldest
    until: str | None = None  # the last one; None: all later ones
    refused: str = ""  # why a YAML file for the PyTorch backend can never have this type; '' if it can
    instead: str = ""  # the advice for other versions

    @property
    def span(self) -> dict[str, str | None]:
        """The versions that have this name, as `versions.supports` takes them."""
        return {"since": self.since, "until": self.until}


#: The key with the folder of the draft model or the head.
MODEL = "speculative_model_dir"
_NEEDS_PYTHON = "its drafter is a Python object, which a file cannot hold"
_ENGINE_ONLY = "the PyTorch backend does not have it, only the TensorRT engines (`supports_backend`)"

# Versions up to 1.2 have the names of `from_dict`; since 1.3 the names are those of the classes, of which two differ.
# On the PyTorch backend, `Eagle` means EAGLE-3 in all versions. That name is deprecated (PR 10124), and the reference
# of 1.4.0rc1 has only `Eagle3`.
DECODING_TYPES: Mapping[str, DecodingType] = {
    "Eagle": DecodingType(_EAGLE, ("max_draft_len", MODEL), until=LAST_13, instead="write 'Eagle3'"),
    "Eagle3": DecodingType(
        {**_EAGLE, "sa_config": _SA_BESIDE}, ("max_draft_len", MODEL), since=NEXT, instead="write 'Eagle'"
    ),
    "MTP": DecodingType(_MTP),
    "NGram": DecodingType(_NGRAM, ("max_draft_len",)),
    "DraftTarget": DecodingType({}, ("max_draft_len", MODEL), until=LAST_12, instead="write 'Draft_Target'"),
    "Draft_Target": DecodingType({}, ("max_draft_len", MODEL), since=NEXT, instead="write 'DraftTarget'"),
    "PARD": DecodingType(_PARD, ("max_draft_len", MODEL), since="1.3.0rc7"),  # PR 11438, in that candidate's notes
    # PR 12794 of 2026-04; the oldest known run is with 1.3.0rc20 (PR 15666).
    "DFlash": DecodingType(_DFLASH, (MODEL,), since="1.3.0rc20"),
    # A file of 2026-08-09 has it (PR 17455); 1.3.0rc25 is the first release candidate after that day.
    "SA": DecodingType(_SA, since="1.3.0rc25"),
    "DSpark": DecodingType(_DSPARK, (MODEL,), since="1.3.0rc27"),
    "SaveState": DecodingType(_SAVE_STATE, ("output_directory",)),
    "AUTO": DecodingType(),
    "UserProvided": DecodingType(refused=_NEEDS_PYTHON),
    "User_Provided": DecodingType(refused=_NEEDS_PYTHON),
    "Medusa": DecodingType(refused=_ENGINE_ONLY),
    "Lookahead": DecodingType(refused=_ENGINE_ONLY),
}
# Types that cannot run with the overlap scheduler (`SpeculativeDecodingMode.support_overlap_scheduler`): they draft on
# the host between two steps. AUTO chooses n-gram lookup. SA drafts on the GPU, and can run with it.
NO_OVERLAP = ("NGram", "AUTO")
