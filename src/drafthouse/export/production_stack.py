"""Translate an arm's command into values of vLLM's production-stack Helm chart, which builds the command itself.

The chart (https://github.com/vllm-project/production-stack, helm/values.yaml) can only start `vllm serve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import one_problem
from .order import Order

# Flags of vLLM for which the chart has values.
_CACHING_ON = "--enable-prefix-caching"
_CACHING_OFF = "--no-enable-prefix-caching"
_TENSOR_PARALLEL = "--tensor-parallel-size"


@dataclass(frozen=True)
class Chart:
    """Values of the chart."""

    model: str  # vLLM's positional argument
    repository: str  # of the image
    tag: str  # of the image
    prefix_caching: bool
    devices: int  # the tensor parallel size; 0 for a model on one GPU
    arguments: list[str]  # of vLLM, without those for which the chart has values
    note: str  # sentence of a comment; '' for none


def chart_of(order: Order) -> Chart:
    """The chart's values for an order. Raises DrafthouseError if the engine is not vLLM."""
    if order.command != ["vllm", "serve"]:
        found = f"{order.profile['engine']['name']}: the chart starts `vllm serve` and nothing else"
        do = "export to kubernetes"
        raise one_problem("export-unsupported", found, "a profile of vLLM", do, order.profile["profile"])
    (model,), *flags = order.flags
    names = {flag[0] for flag in flags}
    devices = 0
    arguments = list[str]()
    for flag in flags:
        if flag[0] == _TENSOR_PARALLEL:
            devices = int(flag[1])
        elif flag[0] not in ("--host", "--port", _CACHING_ON, _CACHING_OFF):
            arguments += flag
    # The registry before the last slash may have a port, whose colon begins no tag.
    folder, slash, last = order.image.rpartition("/")
    name, _, tag = last.partition(":")
    note = ""
    if _CACHING_ON not in names and _CACHING_OFF not in names:
        note = "Prefix caching: the arm keeps vLLM's default, which is on."
    return Chart(
        model=model,
        repository=f"{folder}{slash}{name}",
        tag=tag,
        prefix_caching=_CACHING_OFF not in names,
        devices=devices,
        arguments=arguments,
        note=note,
    )
