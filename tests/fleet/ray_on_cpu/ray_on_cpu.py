"""A test's shim: vLLM's platform for CPU, on which Ray may place workers; stock vLLM refuses Ray there.

Ray's GPU is then a number that `ray start --num-gpus` says. Placement, actors, collectives and speculation stay vLLM's
own. A platform plugin of vLLM, which finds it by the entry point beside this file.
"""

import socket
from typing import Any

from vllm.platforms.cpu import CpuPlatform


class RayOnCpu(CpuPlatform):  # type: ignore[misc] # vLLM is not installed here
    """The platform."""

    ray_device_key = "GPU"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """The stock one, whose shared memory goes by the host's name too: Ray's workers share none otherwise."""
        from vllm.distributed.device_communicators import cpu_communicator

        shared: Any = cpu_communicator._CPUSHMDistributed
        if not hasattr(shared, "stock_name"):
            shared.stock_name = shared.make_group_name
            shared.make_group_name = staticmethod(lambda one: socket.gethostname() + shared.stock_name(one))
        return str(super().get_device_communicator_cls())


def register() -> str:
    """Where the platform is, as vLLM asks its plugins."""
    return "ray_on_cpu.RayOnCpu"
