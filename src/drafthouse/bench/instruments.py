"""What is read of this machine beside a measurement: the GPUs that the run uses, and the energy that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .gpu_samples import GpuSampler, GpusBeside
from .machine_state import read_cpu
from .nvml import Nvml, open_nvml
from .own_processes import own_pids, served_here
from .power import Meter, PowerBeside, open_meter

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint


@dataclass(frozen=True)
class Instruments:
    """Driver, meter and sampler, all of the same GPUs."""

    nvml: Nvml
    meter: Meter
    sampler: GpuSampler


@contextmanager
def instruments(endpoints: Sequence[Endpoint], gpus: Sequence[str] = ()) -> Iterator[Instruments]:
    """Hold what reads the GPUs that these servers use; ``gpus`` chooses them, as words of `drafthouse_gpus`.

    What this machine does is not read where all of them run on others.
    """
    if here := served_here(endpoints):
        nvml = open_nvml(gpus, own_pids(here, read_cpu()))
    else:
        nvml = Nvml(why="the server runs on another machine")
    meter = open_meter(nvml) if here else Meter(None, nvml.why)
    with closing(nvml), closing(meter), closing(GpuSampler(nvml)) as sampler:
        yield Instruments(nvml, meter, sampler)


@contextmanager
def beside_ladder(
    endpoints: Sequence[Endpoint], gpus: Sequence[str] = ()
) -> Iterator[tuple[Callable[[], PowerBeside | GpusBeside], ...]]:
    """Hold what is read beside every step of a ladder. Without a load now, for the idle power (seconds)."""
    with instruments(endpoints, gpus) as held:
        held.meter.measure_idle()
        yield partial(PowerBeside, held.meter), partial(GpusBeside, held.sampler)
