"""Open the instruments that read this machine during a measurement: NVML for the GPUs, a power meter, a sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .gpu_samples import GpuSampler, GpuStepReader
from .machine_state import read_cpu
from .nvml import Nvml, open_nvml
from .own_processes import local_endpoints, own_pids
from .power import Meter, PowerStepReader, open_meter

if TYPE_CHECKING:
    from drafthouse.bench.client import Endpoint


@dataclass(frozen=True)
class Instruments:
    """The NVML session, the energy meter and the sampler of clocks and temperatures, all for the same GPUs."""

    nvml: Nvml
    meter: Meter
    sampler: GpuSampler


@contextmanager
def instruments(endpoints: Sequence[Endpoint], gpus: Sequence[str] = ()) -> Iterator[Instruments]:
    """Open instruments for the GPUs that these servers use, and close them at the end of the ``with`` block.

    ``gpus`` selects the GPUs by words of `drafthouse_gpus`; if it is empty, `open_nvml` finds them. If all servers run
    on other machines, the instruments read nothing.
    """
    if local := local_endpoints(endpoints):
        nvml = open_nvml(gpus, own_pids(local, read_cpu()))
    else:
        nvml = Nvml(why="the server runs on another machine")
    meter = open_meter(nvml) if local else Meter(source=None, why=nvml.why)
    with closing(nvml), closing(meter), closing(GpuSampler(nvml)) as sampler:
        yield Instruments(nvml, meter, sampler)


@contextmanager
def ladder_readers(
    endpoints: Sequence[Endpoint], gpus: Sequence[str] = ()
) -> Iterator[tuple[Callable[[], PowerStepReader | GpuStepReader], ...]]:
    """Measure the idle power (a few seconds without load), then yield the factories of readers.

    Each factory makes a new reader for every step of a load sweep. Parameters are those of `instruments`.
    """
    with instruments(endpoints, gpus) as opened:
        opened.meter.measure_idle()
        yield partial(PowerStepReader, opened.meter), partial(GpuStepReader, opened.sampler)
