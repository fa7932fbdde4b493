"""Translate an arm's command into values of vLLM's production-stack Helm chart, which builds the command itself.

The chart (https://github.com/vllm-project/production-stack, helm/values.yaml) can only start `vllm serve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import one_problem
from .order import Order

_ON, _OFF, _TENSOR_PARALLEL = "--enable-prefix-caching", "--no-enable-prefix-caching", "--tensor-parallel-size"


@dataclass(frozen=True)
class Chart:
    """Values of the chart. ``devices`` is the tensor parallel size, or 0 for a model on one GPU."""

    model: str
    repository: str
    tag: str
    prefix_caching: bool
    devices: int
    arguments: list[str]
    note: str


def chart_of(order: Order) -> Chart:
    """The chart's values for an order. Raises DrafthouseError if the engine is not vLLM."""
    if order.command != ["vllm", "serve"]:
        found = f"{order.profile['engine']['name']}: the chart starts `vllm serve` and nothing else"
        needed, do = "a profile of vLLM", "export to kubernetes"
        raise one_problem("export-unsupported", found, needed, do, order.profile["profile"])
    (model,), *flags = order.flags
    names = {flag[0] for flag in flags}
    devices = 0
    arguments = list[str]()
    for flag in flags:
        if flag[0] == _TENSOR_PARALLEL:
            devices = int(flag[1])
        elif flag[0] not in ("--host", "--port", _ON, _OFF):
            arguments += flag
    folder, slash, last = order.image.rpartition("/")
    name, _, tag = last.partition(":")
    note = ""
    if _ON not in names and _OFF not in names:
        note = "Prefix caching: the arm keeps vLLM's default, which is on."
    return Chart(model, f"{folder}{slash}{name}", tag, _OFF not in names, devices, arguments, note)
