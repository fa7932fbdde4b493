"""Energy: what NVIDIA's library counts (one made here), the CPU's counter, and the sums."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench import instruments
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.nvml import Nvml, Unreadable, open_nvml
from drafthouse.bench.power import Meter, PowerStepReader, Reading, Tally, open_meter, power_of, spent
from drafthouse.bench.results import assemble
from drafthouse.bench.step import measure_step
from tests.fakes.clock_server import clock_server

pytestmark = pytest.mark.processes

Open = Callable[..., Meter]
NO_GPU = Nvml(why="no GPU here")


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    meters: list[Meter] = []

    def make(nvml: Nvml | None = None) -> Meter:
        meters.append(open_meter(nvml or open_nvml(), tmp_path))
        return meters[-1]

    yield make
    for meter in meters:
        meter.close()


def watts(meter: Meter, seconds: float = 0.25) -> float:
    for _ in range(20):
        moments = [time.monotonic()]
        before = meter.read()
        moments.append(time.monotonic())
        time.sleep(seconds)
        moments.append(time.monotonic())
        after = meter.read()
        moments.append(time.monotonic())
        began, read, slept, ended = moments
        if read - began + ended - slept < 0.002:  # a busy machine took its time between a counter and the clock
            break
    span = spent(meter, before, after)
    assert span is not None
    assert slept - read <= span["seconds"] + 1e-6 <= ended - began + 2e-6
    return float(span["energy_j"] / span["seconds"])


# --- sources ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("driver")
def test_the_counters_of_the_gpus_are_read(opened: Open) -> None:
    meter = opened()
    assert meter.source == "NVML's energy counter"
    assert meter.facts()["devices"] == ["NVIDIA Fake 1", "NVIDIA Fake 2"]
    assert watts(meter) == pytest.approx(300, rel=0.01)
    for _ in range(8):  # as in `watts`
        meter.measure_idle(0.1)
        if meter.idle_w == pytest.approx(300, rel=0.02):
            break
    assert meter.idle_w == pytest.approx(300, rel=0.02)
    one = opened(open_nvml(["1"]))
    assert one.facts()["devices"] == ["NVIDIA Fake 2"]
    assert watts(one) == pytest.approx(200, rel=0.01)


@pytest.mark.usefixtures("driver")
def test_power_is_added_up_where_there_is_no_counter(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "no-counter")
    meter = opened()
    assert meter.source == "NVML's power, added up"
    assert watts(meter) == pytest.approx(300, rel=0.02)


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("state", "gpus", "why"),
    [
        ("no-driver", "2", "NVML: Driver Not Loaded"),
        ("no-power", "2", "nvmlDeviceGetPowerUsage of GPU 0: Not Supported"),
        ("", "0", "the NVIDIA driver does not show the GPUs of this run"),
    ],
)
def test_what_a_gpu_does_not_tell_is_said(
    opened: Open, monkeypatch: pytest.MonkeyPatch, state: str, gpus: str, why: str
) -> None:
    monkeypatch.setenv("FAKE_NVML", state)
    monkeypatch.setenv("FAKE_GPUS", gpus)
    meter = opened()
    assert meter.source is None
    assert meter.why is not None and why in meter.why
    assert meter.read() is None


@pytest.mark.usefixtures("driver")
def test_a_counter_that_stands_still_is_none(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "still")
    meter = opened()
    meter.measure_idle(0.05)
    assert (meter.source, meter.idle_w) == (None, None)
    assert meter.why == "NVML's energy counter does not move"


@pytest.mark.usefixtures("driver")
def test_a_gpu_that_is_lost_meanwhile_raises_nothing(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "half-way")
    meter = opened()
    tally = Tally(meter)
    for _ in range(3):
        with tally:
            time.sleep(0.01)
    assert tally.total() is None
    power = power_of([tally.total()], meter.facts())
    assert power["energy_j"] is power["mean_w"] is None
    assert power["why"] == "nvmlDeviceGetTotalEnergyConsumption of GPU 0: GPU is lost"


def rapl(root: Path, *microjoules: int, span: int = 1_000_000) -> None:
    for number, count in enumerate(microjoules):
        folder = root / "sys/class/powercap" / f"intel-rapl:{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "energy_uj").write_text(f"{count}\n")
        (folder / "name").write_text(f"package-{number}\n")
        (folder / "max_energy_range_uj").write_text(f"{span}\n")


def test_the_cpus_counter_begins_anew_at_its_range(tmp_path: Path, opened: Open) -> None:
    rapl(tmp_path, 100_000, 900_000)
    meter = opened(NO_GPU)
    assert meter.facts()["devices"] == ["package-0", "package-1"]
    before = meter.read()
    rapl(tmp_path, 600_000, 100_000)
    span = spent(meter, before, meter.read())
    assert span is not None
    assert span["energy_j"] == pytest.approx(0.5 + 0.2)


def test_a_counter_that_this_user_may_not_read(tmp_path: Path, opened: Open) -> None:
    rapl(tmp_path, 1)
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("")
    assert "only root may read" in str(opened(NO_GPU).why)


def test_a_machine_without_any_source_says_all_the_reasons(opened: Open) -> None:
    meter = opened(NO_GPU)
    meter.measure_idle(60)  # does not sleep
    assert meter.why == "no GPU here; no energy counter of the CPU (/sys/class/powercap)"
    power = power_of([None], meter.facts())
    assert power["why"] == meter.why
    assert {name for name, value in power.items() if value is None} == {
        "source", "seconds", "energy_j", "mean_w", "idle_w", "energy_above_idle_j", "j_per_output_token",
    }  # fmt: skip


# --- sums ---------------------------------------------------------------------------------------------


class Steady:
    """A device of one power, by the clock of the machine."""

    name, devices = "steady", ("one",)

    def __init__(self, power_w: float) -> None:
        self.power_w = power_w
        self.zero_s = time.monotonic()

    def joules(self) -> tuple[float, ...]:
        return ((time.monotonic() - self.zero_s) * self.power_w,)

    def close(self) -> None:
        pass


class SteadyMeter(Meter):
    """A meter on it, which takes no time between the counter and the clock."""

    def __init__(self, power_w: float) -> None:
        super().__init__(Steady(power_w))
        self.power_w = power_w

    def read(self) -> Reading:
        now = time.monotonic()
        return Reading(now, (now * self.power_w,))


class Scripted(Steady):
    """Readings that are said before."""

    def __init__(self, *joules: float) -> None:
        super().__init__(0)
        self.left = list(joules)

    def joules(self) -> tuple[float, ...]:
        if not self.left:
            raise Unreadable("the script is over")
        return (self.left.pop(0),)


def test_an_arm_pays_for_its_own_turns_alone() -> None:
    meter = Meter(Scripted(0, 10, 10, 40, 40, 45))
    one, other = Tally(meter), Tally(meter)
    for tally in (one, other, one):
        with tally:
            time.sleep(0.001)
    first, second = one.total(), other.total()
    assert first is not None and second is not None
    assert (first["energy_j"], second["energy_j"]) == (15, 30)
    assert first["idle_j"] is None


def test_a_driver_that_was_loaded_anew_gives_no_number() -> None:
    meter = Meter(None)
    assert spent(meter, Reading(1, (100.0,)), Reading(2, (3.0,))) is None
    assert spent(meter, None, Reading(2, (3.0,))) is None
    assert spent(meter, Reading(1, (1.0,)), Reading(1, (1.0,))) is None


def test_watts_joules_and_what_is_above_idle() -> None:
    facts: Any = {"source": "x", "why": None, "devices": ["a", "b"], "idle_w": 70.0}
    power = power_of(
        [
            {"seconds": 10.0, "energy_j": 4000.0, "idle_j": 700.0},
            {"seconds": 30.0, "energy_j": 8000.0, "idle_j": 2700.0},
        ],
        facts,
        output_tokens=2400,
    )
    assert power == {
        "source": "x", "why": None, "devices": ["a", "b"], "gpus": 2, "seconds": 40.0, "energy_j": 12000.0,
        "mean_w": 300.0, "idle_w": 85.0, "energy_above_idle_j": 8600.0, "j_per_output_token": 5.0,
    }  # fmt: skip


def test_half_a_sum_is_no_sum() -> None:
    facts: Any = {"source": "x", "why": None, "devices": ["a"], "idle_w": 70.0}
    power = power_of([{"seconds": 10.0, "energy_j": 4000.0, "idle_j": 700.0}, None], facts)
    assert (power["energy_j"], power["mean_w"]) == (None, None)
    assert power["why"] == "some readings are missing"
    without_idle = power_of([{"seconds": 10.0, "energy_j": 4000.0, "idle_j": None}], facts | {"idle_w": None})
    assert (without_idle["energy_j"], without_idle["energy_above_idle_j"]) == (4000.0, None)


# --- while a step is measured -----------------------------------------------------------------------------


def suite(prompts: int) -> Any:
    texts = [{"id": f"p{n}", "messages": [{"role": "user", "content": f"Say {n}"}]} for n in range(prompts)]
    return {"name": "s", "description": "s", "kinds": {"k": {"output_tokens": 30, "prompts": texts}}}


@pytest.mark.parametrize(("concurrency", "rounds"), [(1, 2), (4, 1)])
async def test_each_arm_has_its_energy_in_the_result(
    monkeypatch: pytest.MonkeyPatch, concurrency: int, rounds: int
) -> None:
    meter = SteadyMeter(50.0)
    monkeypatch.setattr(instruments, "open_meter", lambda nvml: meter)
    monkeypatch.setattr(meter, "measure_idle", lambda: setattr(meter, "idle_w", 20.0))
    with clock_server(ttft_ms=20, interval_ms=5, tokens=30) as one, clock_server(ttft_ms=20, tokens=30) as two:
        endpoints = [Endpoint("baseline", one.base_url, "clock"), Endpoint("speculative", two.base_url, "clock")]
        options = StepOptions(concurrency=concurrency, rounds=rounds, warmups=1)
        began = time.monotonic()
        step = await measure_step(endpoints, [suite(8)], options)
        took = time.monotonic() - began
    seconds = 0.0
    for arm in ("baseline", "speculative"):
        result = assemble([step], arm)
        power: Any = result["power"]
        assert power["mean_w"] == pytest.approx(50, rel=0.001)
        assert power["idle_w"] == pytest.approx(20, rel=0.001)
        assert power["energy_above_idle_j"] == pytest.approx(power["energy_j"] * 0.6, rel=0.001)
        # The time of its own requests (and of connecting): the other arm's turns lie between them.
        assert power["seconds"] > 0.6 * result["duration"]
        seconds += power["seconds"]
        assert power["j_per_output_token"] == pytest.approx(power["energy_j"] / (8 * 30 * rounds))
        assert result["groups"]["k"]["power"] == power
    assert seconds < took


async def test_without_a_meter_a_result_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "open_meter", lambda nvml: Meter(None, "no device of any kind"))
    with clock_server(ttft_ms=5, interval_ms=2, tokens=30) as server:
        step: Any = await measure_step([Endpoint("single", server.base_url, "clock")], [suite(2)], StepOptions())
    power = assemble([step], "single")["power"]
    assert (power["energy_j"], power["why"]) == (None, "no device of any kind")
    # A step that was kept by an older version has nothing of it.
    for old in (step["arms"]["single"], step):
        old.pop("power", None)
        old.pop("power_meter", None)
    assert assemble([step], "single")["power"]["why"] == "nothing was read"


async def test_beside_a_step_of_the_ladder() -> None:
    beside = PowerStepReader(SteadyMeter(80.0))
    nobody: Any = None
    began = time.monotonic()
    await beside.begin(nobody, nobody)
    time.sleep(0.05)
    await beside.end(nobody, nobody)
    took = time.monotonic() - began
    time.sleep(0.2)  # the step is looked through: that is no time of the step
    requests: list[Any] = [{"output_tokens": 30, "chunks": 30}, {"output_tokens": None, "chunks": 0}]
    power = beside.report(requests, 0)["power"]
    assert power["mean_w"] == pytest.approx(80, rel=0.001)
    assert 0.05 <= (power["seconds"] or 0) + 1e-6 <= took + 2e-6
    assert power["energy_above_idle_j"] is None
    assert power["output_tokens"] == 30
    # Of what was broken off or given up nobody knows the tokens.
    broken_off: Any = {"output_tokens": None, "chunks": 4}
    assert beside.report([*requests, broken_off], 0)["power"]["output_tokens"] is None
    assert beside.report(requests, 1)["power"]["output_tokens"] is None
    nothing = PowerStepReader(Meter(None, "no GPU"))
    await nothing.begin(nobody, nobody)
    await nothing.end(nobody, nobody)
    assert nothing.report([], 0)["power"]["why"] == "no GPU"


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("address", "gpus", "why"),
    [
        ("http://localhost:8000", 2, None),
        ("http://[::1]:8000", 2, None),
        ("http://192.0.2.1:8000", 0, "the server runs on another machine"),
        ("http://no-such-name.invalid", 0, "the server runs on another machine"),
    ],
)
def test_a_server_elsewhere_uses_nothing_of_this_machine(address: str, gpus: int, why: str | None) -> None:
    with instruments.instruments([Endpoint("single", address, "m")]) as held:
        assert (len(held.nvml.gpus), held.meter.why) == (gpus, why)
        assert (held.meter.read() is None) == (why is not None)
