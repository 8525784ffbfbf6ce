"""Tiers: every capability and build forced, no torch asked."""

from dataclasses import replace

import pytest

from playhead.engine.device import Found, Gpu, Tier, carries, choose_device, gpu_tier, probe
from playhead.engine.errors import ConfigError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.models.config import read_config
from playhead.worker.bench.checkpoint import shape_config

GIB = 1 << 30
NEW = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def found(*capabilities: tuple[int, int], archs: tuple[str, ...] = NEW, gib: int = 80) -> Found:
    gpus = [Gpu(i, f"card {i}", c, gib * GIB, gib * GIB) for i, c in enumerate(capabilities)]
    return Found("2.11", tuple(gpus), archs)


@pytest.mark.parametrize(
    ("capability", "archs", "name", "dtype", "triton"),
    [
        ((9, 0), NEW, "full", "bfloat16", True),
        ((8, 0), NEW, "full", "bfloat16", True),
        ((8, 9), NEW, "full", "bfloat16", True),
        ((12, 0), NEW, "full", "bfloat16", True),
        ((7, 5), NEW, "twins", "float16", False),
        ((7, 5), OLD, "twins", "float16", False),
        ((7, 2), OLD, "twins", "float16", False),
        ((7, 0), OLD, "twins", "float16", False),
    ],
)
def test_tier_follows_capability(
    capability: tuple[int, int], archs: tuple[str, ...], name: str, dtype: str, triton: bool
) -> None:
    for wanted in ("auto", "cuda", "cuda:0"):
        tier = choose_device(wanted, None, found(capability, archs=archs))
        assert (tier.name, tier.dtype, tier.triton, tier.graphs) == (name, dtype, triton, True)
        assert tier.device == "cuda:0"


@pytest.mark.parametrize(
    ("capability", "archs", "word"),
    [((7, 0), NEW, "carries"), ((6, 1), OLD, "below"), ((13, 0), NEW, "carries"),
     ((9, 0), (), "no GPU code"), ((9, 0), ("sm_90a",), None)],
)  # fmt: skip
def test_what_a_build_does_not_carry_is_refused_by_name_and_left_alone_by_auto(
    capability: tuple[int, int], archs: tuple[str, ...], word: str | None
) -> None:
    here = found(capability, archs=archs)
    if word is None:
        assert choose_device("cuda", None, here).name == "full"
        return
    with pytest.raises(ConfigError, match=word):
        choose_device("cuda", None, here)
    tier = choose_device("auto", None, here)
    assert tier.name == "cpu" and word in tier.why


def test_machine_code_stays_in_its_major_and_intermediate_code_goes_on() -> None:
    assert carries(("sm_80",), (8, 6)) and not carries(("sm_86",), (8, 0))
    assert not carries(("sm_80",), (9, 0)) and carries(("compute_80",), (9, 0))
    assert not carries(("compute_90",), (8, 0))
    assert not carries(("sm_90a",), (9, 2)) and not carries(("gfx90a", "x"), (9, 0))


def test_auto_takes_the_best_of_several_and_a_number_is_obeyed() -> None:
    here = found((7, 5), (9, 0), (6, 0))
    assert choose_device("auto", None, here).device == "cuda:1"
    assert choose_device("cuda", None, here) == choose_device("cuda:0", None, here)
    assert choose_device("cuda:0", None, here).name == "twins"
    with pytest.raises(ConfigError, match="3 CUDA devices"):
        choose_device("cuda:7", None, here)


@pytest.mark.parametrize(
    ("here", "word"),
    [
        (Found(""), "not installed"),
        (Found("2.11"), "without CUDA"),
        (Found("2.11", (), NEW), "sees no CUDA device"),
        (Found("2.11", (), NEW, trouble="driver too old"), "driver too old"),
    ],
)
def test_without_a_gpu_auto_is_the_cpu_and_cuda_says_what_is_missing(
    here: Found, word: str
) -> None:
    tier = choose_device("auto", None, here)
    assert (tier.name, tier.device, tier.dtype) == ("cpu", "cpu", "float32") and word in tier.why
    with pytest.raises(ConfigError, match=word):
        choose_device("cuda", None, here)
    assert choose_device("cpu", None, here).name == "cpu"


@pytest.mark.parametrize("wanted", ["gpu", "cuda:", "cuda:x", "CPU", ""])
def test_an_unknown_device_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigError, match="allowed are auto"):
        choose_device(wanted, None, found((9, 0)))


def test_a_model_that_does_not_fit_goes_elsewhere() -> None:
    large, small = shape_config("1.7b-customvoice"), read_config(EMBEDDED_VOICE)
    here = found((8, 0), gib=2)
    assert choose_device("auto", small, here).name == "full"
    assert choose_device("auto", large, here).name == "cpu"
    with pytest.raises(ConfigError, match=r"weights take 3\.\d GiB"):
        choose_device("cuda", large, here)
    assert choose_device("cuda", large, found((8, 0), gib=8)).name == "full"


def test_the_real_probe_gives_a_tier_here() -> None:
    here = probe()
    assert here.torch
    tier = choose_device("auto", None, here)
    assert isinstance(tier, Tier) and (tier.name == "cpu") == (not here.gpus)
    if here.gpus:
        assert not isinstance(gpu_tier(here.gpus[0], here.arch_list, None), str)
    assert choose_device("auto", None, replace(here, gpus=())).name == "cpu"
