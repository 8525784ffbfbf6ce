"""Profiles: built in, from a file, on top of each other, and every way of getting one wrong."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from playhead.engine.errors import ConfigError
from playhead.engine.profile import PROFILE_FOLDER, Profile, load_profile, names, sha256
from playhead.worker.cli import main
from playhead.worker.config_command import described

BUILT_IN = ("balanced", "consumer", "cpu", "deterministic", "large", "throughput", "ttfa")


def write(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_built_in_profiles_are_these_and_each_differs_from_the_others() -> None:
    assert names() == BUILT_IN
    assert all(load_profile(name).name == name for name in BUILT_IN)
    assert len({sha256(load_profile(name)) for name in BUILT_IN}) == len(BUILT_IN)
    assert [n for n in BUILT_IN if load_profile(n).device == "cpu"] == ["cpu"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_value_has_its_reason(name: str) -> None:
    for line in (PROFILE_FOLDER / f"{name}.yaml").read_text().splitlines():
        key = line.partition(":")[0]
        if line and not line.startswith("#") and key not in ("extends", "device"):
            assert " # " in line, f"{name}: {key} says not why"


def test_gpu_profiles_keep_what_they_are_for() -> None:
    ttfa, balanced, throughput = map(load_profile, ("ttfa", "balanced", "throughput"))
    assert ttfa.busy_limit < balanced.busy_limit < throughput.busy_limit
    assert ttfa.target_s < balanced.target_s < throughput.target_s
    assert ttfa.max_rows < balanced.max_rows
    assert balanced.max_streams == 1024 and balanced.max_rows == 256


def test_file_overlays_the_defaults(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, "max_rows: 3\ntarget_s: 2\n"))
    assert (profile.name, profile.max_rows, profile.target_s) == ("mine", 3, 2.0)
    assert profile.low_s == Profile().low_s


def test_file_extends_a_built_in_and_a_file_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    write(tmp_path, "extends: throughput\nmax_rows: 128\ntarget_s: 1.5\n", "base.yaml")
    profile = load_profile(write(folder, "extends: ../base.yaml\nmax_rows: 64\n"))
    throughput = load_profile("throughput")
    assert (profile.name, profile.max_rows, profile.target_s) == ("mine", 64, 1.5)
    assert (profile.flat_rows, profile.device) == (throughput.flat_rows, "cuda")


def test_bases_that_go_in_a_circle_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    write(tmp_path, "extends: c.yaml\n", "b.yaml")
    write(tmp_path, "extends: a.yaml\n", "c.yaml")
    with pytest.raises(ConfigError, match=r"circle: a\.yaml -> b\.yaml -> c\.yaml -> a\.yaml"):
        load_profile(str(tmp_path / "a.yaml"))
    with pytest.raises(ConfigError, match="circle"):
        load_profile(write(tmp_path, "extends: mine.yaml\n"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_rowz: 3", "did you mean max_rows?"),
        ("extend: cpu", "did you mean extends?"),
        ("weight: int8", "did you mean weights?"),
        ("weights: int9", "did you mean int8?"),
        ("weights: bfloat16", "did you mean bf16?"),
        ("weights: 8", "expected str"),
        ("weights: q4_k", "allowed: auto, bf16"),
        ("graphs: maybe", "expected bool"),
        ("capability: 6.1", "allowed are 7.0 to 9.9"),
        ("extends: turbo", "built in are balanced, consumer, cpu"),
        ("extends: nowhere.yaml", "nowhere.yaml"),
        ("extends: 3", "expected a name"),
        ("3: 3", "unknown key"),
        ("max_rows: three", "expected int"),
        ("max_rows: 0", "at least 1"),
        ("max_rows: true", "expected int"),
        ("max_rows: [1]", "expected int"),
        ("frame_batches: []", "frame_batches"),
        ("frame_batches: [16, 8]", "rising sizes"),
        ("frame_batches: [12, 16]", "multiple of 8"),
        ("max_rows: 64\nframe_batches: [8, 32]", "must hold max_rows"),
        ("chunk_frames: [2, 4]", "rise from 1"),
        ("target_s: 9.0", "allowed is up to"),
        ("low_s: 3.0", "guard_s <= low_s < target_s"),
        ("low_s: .nan", "guard_s <= low_s < target_s"),
        ("busy_limit: 1.5", "busy_limit"),
        ("first_audio_budget_s: -1", "first_audio_budget_s"),
        ("max_text_chars: 0", "max_text_chars"),
        ("device: tpu", "allowed: cpu, cuda"),
        ("max_rows: 1\nmax_rows: 2", "twice"),
        ("name: &a x\ndevice: *a", "aliases"),
        ("- a list", "expected keys and values"),
        ("a: [", "mine.yaml"),
        ("x: !!python/object:os.system {}", "mine.yaml"),
        ("# " + "x" * 70_000, "no profile is"),
    ],
)
def test_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        load_profile(write(tmp_path, text))


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=", ".join(BUILT_IN)):
        load_profile("turbo")


def test_digest_tells_every_resolved_value_apart(tmp_path: Path) -> None:
    cpu = load_profile("cpu")
    alike = load_profile(write(tmp_path, "extends: cpu\nname: cpu\n"))
    assert sha256(alike) == sha256(cpu)
    other = load_profile(write(tmp_path, "extends: cpu\nname: cpu\nmax_rows: 7\n"))
    assert sha256(other) != sha256(cpu)


def test_config_show_prints_what_loads_back_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in BUILT_IN:
        assert main(["config", "show", name]) == 0
        shown = capsys.readouterr().out
        assert shown == described(load_profile(name))
        assert sha256(load_profile(name)) in shown.splitlines()[0]
        assert set(yaml.safe_load(shown)) == {field.name for field in fields(Profile)}
        assert load_profile(write(tmp_path, shown)) == load_profile(name)


def test_config_check_ends_with_two_when_a_profile_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "cpu", write(tmp_path, "max_rows: 3")]) == 0
    assert capsys.readouterr().out.count("right, sha256") == 2
    assert main(["config", "check", write(tmp_path, "max_rowz: 3")]) == 2
    assert "did you mean max_rows" in capsys.readouterr().err
