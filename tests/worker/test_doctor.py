"""`playhead doctor`: what it finds here, and what it says of machines that are only assumed."""

import argparse
import socket
from pathlib import Path

import pytest

from playhead.engine.device import Found, Gpu
from playhead.engine.errors import ConfigError
from playhead.worker.cli import main
from playhead.worker.doctor import (
    Check,
    add_arguments,
    examine,
    forced,
    memory_plan,
    port_check,
    run,
)

ARCHS = ("sm_75", "sm_80", "sm_90")
H200 = Gpu(0, "card", (9, 0), 140 << 30, 139 << 30)


def checks(*flags: str, found: Found | None = None) -> dict[str, Check]:
    parser = argparse.ArgumentParser()
    add_arguments(parser, {})
    args = parser.parse_args([*flags, "--port", "0"])
    here = found or Found("2.11", (H200,), ARCHS)
    return {check.name: check for check in examine(args, forced(here, args.capability))}


@pytest.mark.slow
def test_here_everything_needed_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--port", "0"]) == 0
    told = capsys.readouterr().out
    assert told.endswith("ready\n") and "MISSING" not in told
    assert "cpu on cpu" in told and "embedded English voice" in told


@pytest.mark.slow
def test_a_missing_part_is_named_with_what_to_do_and_the_code_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["doctor", "--port", str(port)]) == 1
    told = capsys.readouterr().out
    assert f"MISSING port {port}" in told and "--port" in told
    assert told.endswith(f"not ready: port {port}\n")


@pytest.mark.parametrize(
    ("capability", "good", "words"),
    [("9.0", True, "full on cuda:0, float32"), ("7.5", True, "twins on cuda:0, float16"),
     ("7.0", False, "nothing for sm_70"), ("5.2", False, "below 7.0")],
)  # fmt: skip
def test_tier_can_be_forced(capability: str, good: bool, words: str) -> None:
    tier = checks("--device", "cuda", "--capability", capability)["tier"]
    assert tier.good == good and words in tier.found


def test_a_capability_may_be_assumed_where_there_is_no_gpu() -> None:
    here = forced(Found("2.11", (), ARCHS), "8.0")
    assert [gpu.capability for gpu in here.gpus] == [(8, 0)]
    assert checks("--device", "auto", found=Found("2.11", (), ARCHS))["tier"].good
    for wrong in ("8", "x.y", "8.0.1"):
        with pytest.raises(ConfigError, match=r"7\.5"):
            forced(here, wrong)


@pytest.mark.parametrize(
    ("flags", "word"),
    [(["--model", "/nowhere"], "no folder"), (["--model", str(Path(__file__).parent)], "config")],
)
def test_a_wrong_model_is_a_missing_part(flags: list[str], word: str) -> None:
    model = checks(*flags)["model"]
    assert not model.good and word in model.found


@pytest.mark.slow
def test_memory_is_planned_from_model_and_profile_without_any(tmp_path: Path) -> None:
    small, large = tmp_path / "small.yaml", tmp_path / "large.yaml"
    small.write_text("extends: ttfa\nmax_streams: 16\nmax_rows: 8\n")
    large.write_text("extends: ttfa\nmax_streams: 4000\nmax_rows: 8\n")
    fits = checks("--model", "tiny", "--profile", str(small))["memory"]
    assert fits.good and "139.00 GiB free on card" in fits.found, fits
    over = checks("--model", "1.7b", "--profile", str(large))["memory"]
    assert not over.good and "4000" in over.advice


@pytest.mark.slow
def test_the_tier_and_memory_of_the_profiles_precision_are_told(tmp_path: Path) -> None:
    few = "extends: consumer\nmax_streams: 8\nmax_rows: 8\n"
    for weights, told, gib in (("auto", "bfloat16:", 3.6), ("int8", "int8 and bfloat16:", 2.2)):
        profile = tmp_path / f"{weights}.yaml"
        profile.write_text(f"{few}weights: {weights}\n")
        found_here = checks("--model", "1.7b", "--profile", str(profile))
        assert told in found_here["tier"].found, found_here["tier"]
        planned = found_here["memory"].found.partition("talker and predictor ")[2]
        assert float(planned.partition(",")[0]) == pytest.approx(gib, abs=0.1)
    old = checks("--profile", str(tmp_path / "int8.yaml"), "--capability", "7.5")["tier"]
    assert not old.good and "runs fp16, fp32" in old.found


@pytest.mark.slow
def test_the_consumer_profile_fits_a_card_of_24_gb() -> None:
    card = Gpu(0, "card", (8, 9), 24 << 30, 23 << 30)
    memory = checks("--model", "1.7b", "--profile", "consumer",
                    found=Found("2.11", (card,), ("sm_80",)))["memory"]  # fmt: skip
    assert memory.good and float(memory.found.partition(" GiB")[0]) < 12, memory


@pytest.mark.slow
def test_planned_memory_of_the_published_size_is_what_its_shapes_say() -> None:
    """59 MB of keys and values a segment of 512 frames (peers' count), weights of 1.9 G values."""
    from playhead.engine.device import choose_device
    from playhead.engine.profile import Profile
    from playhead.worker.bench.checkpoint import shape_config

    config = shape_config()
    tier = choose_device("cuda", config, Found("2.11", (H200,), ARCHS))
    few, more = (
        memory_plan(config, Profile(max_streams=n, max_rows=8, segment_frames=512), tier)
        for n in (16, 32)
    )
    kv_few, kv_more = (
        sum(size for name, size in plan.items() if "keys and values" in name)
        for plan in (few, more)
    )
    segment = 2 * 28 * 8 * 128 * 2 * (512 + 32)
    assert kv_more - kv_few == 16 * segment
    weights = sum(size for name, size in few.items() if name.startswith("weights"))
    assert 3.5e9 < weights < 4.5e9


def test_cpu_memory_is_that_of_the_runner_that_is_built() -> None:
    from playhead.engine.device import choose_device
    from playhead.engine.eager_runner import eager_runner
    from playhead.engine.library import EMBEDDED_VOICE
    from playhead.engine.models.loader import load_model
    from playhead.engine.profile import load_profile

    model, profile = load_model(EMBEDDED_VOICE), load_profile("cpu")
    plan = memory_plan(model.config, profile, choose_device("cpu"))
    runner = eager_runner(model, profile)
    assert plan["talker keys and values"] == runner._cache.store.nbytes
    state = runner._codec_state
    assert plan["codec state"] == state.kv.nbytes + sum(past.nbytes for past in state.pasts)


def test_a_free_port_is_free_and_a_taken_one_is_not() -> None:
    assert port_check("127.0.0.1", 0).good
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not port_check("127.0.0.1", taken.getsockname()[1]).good
    assert not port_check("192.0.2.1", 0).good


def test_run_returns_one_when_torch_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, {})
    assert run(parser.parse_args(["--port", "0"]), Found("")) == 1
    assert "pip install 'playhead[engine]'" in capsys.readouterr().out


def test_a_gpu_that_the_profile_leaves_alone_is_told() -> None:
    told = checks("--profile", "cpu")["unused gpu"]
    assert not told.needed and "--profile ttfa" in told.advice
    assert "unused gpu" not in checks("--profile", "cpu", found=Found("2.11", (), ARCHS))
