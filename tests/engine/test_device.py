"""Tiers: every capability and build forced, no torch asked."""

from dataclasses import replace
from pathlib import Path

import pytest

from playhead.engine.device import (
    WEIGHTS,
    Found,
    Gpu,
    Tier,
    assumed,
    carries,
    choose_device,
    gpu_tier,
    probe,
    profile_tier,
    weight_bytes,
)
from playhead.engine.errors import ConfigError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.models.config import read_config
from playhead.engine.profile import WEIGHTS as KNOWN
from playhead.engine.profile import Profile
from playhead.worker.bench.checkpoint import shape_config

GIB = 1 << 30
NEW = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
OLD = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


def found(*capabilities: tuple[int, int], archs: tuple[str, ...] = NEW, gib: int = 80) -> Found:
    gpus = [Gpu(i, f"card {i}", c, gib * GIB, gib * GIB) for i, c in enumerate(capabilities)]
    return Found("2.11", tuple(gpus), archs)


def test_heads_that_fit_no_triton_kernel_run_as_torch_launches() -> None:
    embedded = read_config(EMBEDDED_VOICE)
    tier = choose_device("auto", embedded, found((9, 0)))
    assert (tier.name, tier.dtype, tier.triton, tier.graphs) == ("full", "float32", False, True)
    assert "heads of 40 values" in tier.why
    assert choose_device("auto", shape_config("1.7b-customvoice"), found((9, 0))).triton


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


CARDS = {"full": (8, 9), "twins": (7, 5), "cpu": (6, 1)}


@pytest.mark.parametrize("tier_name", CARDS)
@pytest.mark.parametrize("weights", [w for w in KNOWN if w != "auto"])
def test_a_tier_runs_its_own_precisions_and_names_them_for_any_other(
    tier_name: str, weights: str
) -> None:
    here = found(CARDS[tier_name], archs=OLD)
    if weights not in WEIGHTS[tier_name]:
        with pytest.raises(ConfigError, match=f"weights {weights}: .*{WEIGHTS[tier_name][0]}"):
            choose_device("auto", None, here, weights)
        return
    tier = choose_device("auto", None, here, weights)
    assert tier.name == tier_name
    dtypes = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    assert tier.dtype == dtypes.get(weights, "bfloat16")
    assert tier.quantized == (weights if weights in ("int8", "fp8", "int4") else None)
    assert tier.triton == (tier_name == "full" and weights != "fp32")


def test_auto_weights_are_the_first_a_tier_names() -> None:
    for name, card in CARDS.items():
        here = found(card, archs=OLD)
        assert choose_device("auto", None, here) == choose_device(
            "auto", None, here, WEIGHTS[name][0]
        )


def test_a_profile_may_assume_a_lesser_card_and_turn_graphs_off() -> None:
    config, here = shape_config("1.7b-customvoice"), found((9, 0))
    full, old = (
        profile_tier(Profile(device="cuda", capability=c), config, here) for c in (0.0, 7.5)
    )
    assert (full.name, old.name, old.dtype, old.triton) == ("full", "twins", "float16", False)
    assert full.graphs and old.graphs and "7.5" in old.why
    off = profile_tier(Profile(device="cuda", graphs=False), config, here)
    assert not off.graphs and off.triton and "graphs are off" in off.why
    assert profile_tier(Profile(), config, here).name == "cpu"
    assert profile_tier(Profile(device="cuda"), config, here, "cpu").name == "cpu"
    with pytest.raises(ConfigError, match=r"card 0 has 7\.5; .*not more"):
        assumed(found((7, 5)), 8.0)
    with pytest.raises(ConfigError, match="tier twins"):
        profile_tier(Profile(device="cuda", capability=7.5, weights="int8"), config, here)


def test_a_gpu_the_profile_asks_for_is_missed_before_a_weight_is_read(tmp_path: Path) -> None:
    """The runner is refused by the config alone: the folder holds no weights."""
    if probe().gpus:
        pytest.skip("there is a GPU")
    from playhead.engine.backend import device_runner
    from playhead.engine.models.loader import load_model

    model = load_model(EMBEDDED_VOICE)
    model.folder = tmp_path
    for profile, word in (
        (Profile(device="cuda"), "device cuda"),
        (Profile(weights="int8"), "weights int8: tier cpu"),
    ):
        with pytest.raises(ConfigError, match=word):
            device_runner(model, profile)


def test_fewer_bits_fit_a_smaller_card() -> None:
    config = shape_config("1.7b-customvoice")
    sizes = [weight_bytes(config, w) for w in ("fp32", "bf16", "int8", "int4")]
    assert sizes == sorted(sizes, reverse=True) and weight_bytes(config) == sizes[1]
    assert choose_device("cuda", config, found((8, 0), gib=3), "int8").quantized == "int8"
    with pytest.raises(ConfigError, match="weights take"):
        choose_device("cuda", config, found((8, 0), gib=3))


def test_the_real_probe_gives_a_tier_here() -> None:
    here = probe()
    assert here.torch
    tier = choose_device("auto", None, here)
    assert isinstance(tier, Tier) and (tier.name == "cpu") == (not here.gpus)
    if here.gpus:
        assert not isinstance(gpu_tier(here.gpus[0], here.arch_list, None), str)
    assert choose_device("auto", None, replace(here, gpus=())).name == "cpu"
