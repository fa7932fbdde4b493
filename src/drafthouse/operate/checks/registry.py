"""The list of all checks, and the functions that run them: preflight before a deployment, `make doctor` after it.

A check compares the resolved profile with facts about the box. In preflight these are the facts of `host/box_facts.py`
alone; the doctor has more, which `operate/doctor/collect.py` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ...core.errors import Problem, did_you_mean, one_problem
from . import addons, box, gpu, known_issues, ports, runtime, server
from .conditions import always, has_gpu, model_in_system_memory, needs_gpu_in_docker, runs_as_process, runs_in_docker
from .finding import FAIL, Finding, of_problem
from .firewall import firewall
from .weights import weights

if TYPE_CHECKING:
    from drafthouse.host.box_types import BoxFacts
    from drafthouse.operate.checks.finding import CheckFunction
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

#: The parts of the doctor, in the order of its output. Facts are read, and can be unreadable, part by part.
PARTS = ("gpu", "runtime", "weights", "box", "server", "outside")
#: Id of the finding that replaces all checks of a part whose facts cannot be read.
UNREAD = "unread"


@dataclass(frozen=True)
class Check:
    """A check: its id, its name in the doctor's output, and the function that runs at each of three times.

    ``before`` runs in preflight, before anything changes on the box. ``prepared`` runs after the host phase installed
    missing packages. A failure of either stops the run with error ``code``. ``after`` runs in the doctor and
    gets only the facts that ``reads`` names. None: the check does not run at that time.
    """

    part: str  # one of `PARTS`
    id: str
    name: str
    before: CheckFunction | None = None
    prepared: CheckFunction | None = None
    after: CheckFunction | None = None
    reads: tuple[str, ...] = ()  # keys of `DoctorFacts`
    applies: Callable[[Run], bool] = always  # False: the check is left out, at all three times
    code: str = ""  # '' for a check that only the doctor runs


CHECKS = (
    Check("box", "system", "system", before=box.system, code="unsupported-system"),
    Check("box", "root", "root", before=box.root, code="root-required"),
    Check("box", "python-version", "Python", before=box.python_version, code="python-unusable"),
    Check("box", "python-venv", "virtual environments", before=box.python_venv, code="python-unusable"),
    Check("gpu", "gpu", "GPU", before=gpu.gpu_or_driver_to_come, prepared=gpu.gpu, after=gpu.gpu_of_driver,
          reads=("box", "driver"), code="gpu-unfit"),
    Check("gpu", "driver-version", "driver", after=gpu.driver_version, reads=("driver",), applies=has_gpu),
    Check("gpu", "driver-library", "driver and library", after=gpu.driver_library, reads=("driver",), applies=has_gpu),
    Check("gpu", "cuda-libraries", "CUDA libraries", after=gpu.cuda_libraries, reads=("driver", "environment"),
          applies=has_gpu),
    Check("gpu", "driver-held", "updates held", after=gpu.driver_held, reads=("driver", "unattended_upgrades"),
          applies=has_gpu),
    Check("gpu", "peer-access", "GPUs together", after=gpu.peer_access, reads=("box",), applies=has_gpu),
    Check("gpu", "kernel-log", "kernel's log", after=gpu.kernel_log, reads=("kernel_log",), applies=has_gpu),
    Check("box", "memory", "memory", before=box.memory, applies=model_in_system_memory, code="memory-too-small"),
    Check("box", "shared-memory", "shared memory", before=box.shared_memory, applies=runs_as_process,
          code="memory-too-small"),
    Check("runtime", "docker", "Docker", before=runtime.docker_or_to_come, after=runtime.docker_answers,
          reads=("docker",), applies=runs_in_docker, code="no-docker"),
    Check("runtime", "nvidia-toolkit", "NVIDIA toolkit", after=runtime.nvidia_toolkit, reads=("docker",),
          applies=needs_gpu_in_docker),
    Check("runtime", "cdi", "CDI", after=runtime.cdi, reads=("docker", "driver"), applies=needs_gpu_in_docker),
    Check("runtime", "container-gpu", "GPU in the container", after=runtime.container_gpu, reads=("docker", "box"),
          applies=needs_gpu_in_docker),
    Check("runtime", "new-container", "a new container", after=runtime.new_container, reads=("docker",),
          applies=needs_gpu_in_docker),
    Check("runtime", "image", "image", after=runtime.image, reads=("docker",), applies=runs_in_docker),
    Check("runtime", "glibc", "C library", before=runtime.glibc, applies=runs_as_process, code="unsupported-system"),
    Check("runtime", "engine-program", "engine's own program", before=runtime.engine_program, applies=runs_as_process,
          code="program-missing"),
    Check("runtime", "engine-environment", "engine's environment", after=runtime.engine_environment,
          reads=("environment",), applies=runs_as_process),
    Check("runtime", "log-rotation", "log rotation", after=runtime.log_rotation, reads=("docker", "logs")),
    Check("weights", "weights", "weights", after=weights, reads=("weights",)),
    Check("box", "folder-writable", "folders", before=box.writable, code="file-unwritable"),
    Check("box", "disk-space", "disk", before=box.room_for_a_run, after=box.room_to_go_on, reads=("disk",),
          code="disk-full"),
    Check("box", "clock", "clock", after=box.clock, reads=("clock",)),
    Check("box", "deadline", "deadline", after=box.deadline, reads=("deadline",)),
    Check("box", "firewall", "firewall", after=firewall, reads=("firewall",)),
    Check("box", "port-free", "ports from inside", before=ports.free, after=ports.inside, reads=("box", "listening"),
          code="port-taken"),
    Check("server", "known-issues", "known issues", before=known_issues.not_run_into, after=known_issues.in_log,
          reads=("measured", "log_signs"), code="known-issue"),
    Check("server", "served", "served", after=server.served, reads=("measured", "served")),
    Check("server", "as-served", "as it was served", after=server.as_served, reads=("measured", "drift")),
    Check("server", "api-key", "API key", after=server.api_key, reads=("key",)),
    Check("server", "key-required", "key required", after=server.key_required, reads=("measured", "served", "asked")),
    Check("server", "open-paths", "open paths", before=server.not_opened, after=server.open_paths,
          reads=("measured", "served", "asked"), code="server-exposed"),
    Check("server", "engine-answers", "engine answers", after=server.engine_answers,
          reads=("measured", "served", "asked", "key", "clock")),
    Check("server", "speculation", "speculation", after=server.speculation, reads=("measured", "served", "asked")),
    Check("server", "gateway", "gateway", before=ports.gateway_mapped, after=addons.gateway,
          reads=("measured", "gateway"), code="port-not-mapped"),
    Check("server", "certificate", "certificate", after=addons.certificate, reads=("measured", "gateway", "clock")),
    Check("server", "monitoring", "monitoring", after=addons.monitoring, reads=("measured", "served", "monitoring")),
    Check("server", "watchdog", "watchdog", after=addons.watchdog, reads=("measured", "watchdog", "clock")),
    Check("outside", "ports-outside", "ports from outside", after=ports.outside, reads=("outside",)),
)  # fmt: skip


def preflight_problems(resolved: Run, box: BoxFacts, *, prepared: bool = False) -> list[Problem]:
    """The problems that prevent ``resolved`` from running on ``box`` (facts of `box_facts.read_box`); [] for none.

    Only failed findings are problems; warnings are left out. ``prepared``: run the checks for the time after the host
    phase, instead of those before it.
    """
    problems = []
    for check in CHECKS:
        function = check.prepared if prepared else check.before
        for finding in _run_check(check, function, resolved, {"box": box}):
            if finding.status == FAIL:
                problems.append(Problem(check.code, finding.found, finding.needed, finding.do, box["hostname"]))
    return problems


def diagnose(resolved: Run, facts: DoctorFacts, parts: Sequence[str] = ()) -> list[Finding]:
    """The findings of the doctor's checks of ``parts`` (empty: of all parts), in the order of `PARTS` and `CHECKS`.

    A part whose facts could not be read gives one failed finding with the reason. Raises DrafthouseError for an
    unknown part.
    """
    check_parts(parts)
    findings: list[Finding] = []
    for part in PARTS:
        if parts and part not in parts:
            continue
        if part in facts["unread"]:
            findings.append(replace(of_problem(facts["unread"][part]), id=UNREAD, name=part))
            continue
        for check in CHECKS:
            if check.part == part:
                facts_to_read = {name: fact for name, fact in facts.items() if name in check.reads}
                findings += _run_check(check, check.after, resolved, cast("DoctorFacts", facts_to_read))
    return findings


def _run_check(check: Check, function: CheckFunction | None, resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """The findings of a check's ``function`` with the check's id and name; [] without a function, or if it is left out.

    A function may name its finding itself; that name stays.
    """
    if not function or not check.applies(resolved):
        return []
    result = function(resolved, facts) or []
    if isinstance(result, Finding):
        result = [result]
    return [replace(finding, id=check.id, name=finding.name or check.name) for finding in result]


def check_parts(parts: Iterable[str]) -> None:
    """Raise DrafthouseError if ``parts`` contains an unknown name."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        found = f"the part {', '.join(unknown)}"
        needed = f"parts of the doctor: {', '.join(PARTS)}"
        do = did_you_mean(unknown[0], PARTS)
        raise one_problem("invalid-option", found, needed, do, "doctor_parts")
