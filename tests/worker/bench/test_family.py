"""`playhead bench family`: names, members, and two tiny members measured in their processes."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest

from playhead.engine.errors import EngineFailure
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.family import (
    MEMBERS,
    ON_A_CPU,
    ON_A_GPU,
    Member,
    first_start,
    named,
    tables,
    told_by_process,
)
from playhead.worker.bench.uploads import reference
from playhead.worker.cli import main

PLAIN = {"first_audio_ms": 1.0, "wall_s_15s": 2.0, "cold_start_s": 3.0, "peak_gib": 4.0,
         "clone_new_first_audio_ms": 5.0, "clone_cached_first_audio_ms": 6.0}  # fmt: skip
ASKED_FOR = {
    "first_audio_ms_1b7_customvoice", "first_audio_ms_0b6_customvoice", "wall_s_15s_1b7",
    "clone_new_first_audio_ms", "clone_cached_first_audio_ms", "cold_start_s_1b7", "peak_gib_1b7",
    "peak_gib_1b7_int8", "peak_gib_1b7_int4", "first_audio_ms_fp16_nographs",
}  # fmt: skip


def test_every_figure_of_the_family_has_its_name_and_no_other_member_has_it() -> None:
    names = [name for member in MEMBERS for name in named(member, PLAIN)]
    assert len(names) == len(set(names)) and set(names) >= ASKED_FOR


def test_defaults_are_published_sizes_on_a_gpu_and_what_a_cpu_runs() -> None:
    known = {member.name: member for member in MEMBERS}
    assert set(ON_A_CPU) <= known.keys() and {"1b7", "0b6", "1b7_int8"} <= set(ON_A_GPU)
    assert not {"tiny", "embedded"} & set(ON_A_GPU)
    kept = {(known[name].shape, known[name].weights) for name in ON_A_GPU}
    assert kept >= {("1.7b", weights) for weights in ("auto", "fp32", "fp16", "int8", "int4")}
    assert kept >= {(shape, "auto") for shape in ("0.6b", "1.7b-base", "0.6b-base")}
    assert all(known[name].weights == "auto" and known[name].graphs for name in ON_A_CPU)


def test_a_start_that_compiled_kernels_is_told_under_names_of_its_own() -> None:
    cold = {"cold_start_s": 90.0, "cold_captures_s": 80.0, "weights_gib": 3.0}
    assert first_start(cold) == {"first_start_s": 90.0, "first_captures_s": 80.0}


def test_tables_hold_every_member_that_was_measured_and_nothing_else() -> None:
    known = {member.name: member for member in MEMBERS}
    told = named(known["1b7"], {"text_ms": 0.25, "first_audio_ms": 6.5, "cold_start_s": 12.0})
    told |= named(known["1b7_base"], {"clone_new_first_audio_ms": 51.4, "cold_start_s": 11.0})
    first, _, row, gap, clones, _, cloned, _, start, *starts = tables(told).splitlines()[1:]
    assert first == "| first audio, ms; an utterance of 15 s, s | text | end to end |"
    assert row == "| 1b7 | 0.25 | 6.5 |" and not gap
    assert clones == "| clones and designed voices, first audio, ms | new |"
    assert cloned == "| 1b7_base | 51.4 |" and start == "| start, s | cold |"
    assert starts[1:] == ["| 1b7 | 12 |", "| 1b7_base | 11 |"]
    assert tables({"other_ms_x": 1.0}) == ""


@pytest.mark.parametrize("flags", [["--members", "1b7,2b7"], ["--requests", "-1"],
                                   ["--frames", "0"]])  # fmt: skip
def test_a_wrong_member_or_count_is_refused(flags: list[str], tmp_path: Path) -> None:
    assert main(["bench", "family", "--device", "cpu", "--out", str(tmp_path), *flags]) == 2
    assert not list(tmp_path.iterdir())


def test_a_reference_passes_the_checks_of_a_recording_without_a_warning() -> None:
    from playhead.engine.reference_audio import read_reference

    read = read_reference(reference(120.0))
    assert read.duration_s == pytest.approx(3.0) and not read.warnings


@pytest.mark.slow
def test_tiny_members_are_measured_to_the_last_figure(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--checkpoints", str(tmp_path / "weights"), "--out", str(tmp_path), "--requests", "1"]
    members, before = "tiny,tiny_base,tiny_voicedesign", voices_kept()
    code = main(["bench", "family", "--device", "cpu", "--members", members, "--frames", "12",
                 *flags])  # fmt: skip
    record = json.loads((tmp_path / "family-cpu.json").read_text())
    told = record["figures"]
    assert code == 0 and all(math.isfinite(v) and v >= 0 for v in told.values()), told
    parts = {"imports", "census", "tokenizer", "weights"}
    assert told["cold_start_s_tiny"] == pytest.approx(
        sum(told[f"cold_{part}_s_tiny"] for part in parts)
    )
    speech = "text_ms acoustic_ms codec_ms first_audio_ms first_audio_full_ms wall_s_12_frames"
    wanted = {f"{name}_{member}" for name in (*speech.split(), "peak_gib")
              for member in members.split(",")}  # fmt: skip
    wanted |= {f"clone_{which}{kind}_first_audio_ms_tiny_base" for which in ("new", "cached")
               for kind in ("", "_in_context")}  # fmt: skip
    wanted |= {f"clone_new{kind}_made_ms_tiny_base" for kind in ("", "_in_context")}
    wanted |= {f"clone_{what}_ms_tiny_base" for what in
               ("new_http_made", "new_http_first_audio", "cached_http_first_audio")}  # fmt: skip
    wanted |= {"design_new_first_audio_ms_tiny_voicedesign"}
    assert told["clone_vector_error_tiny_base"] < 1e-5 and told["clone_same_codes_tiny_base"] == 1
    assert wanted <= told.keys() and "wall_s_15s_tiny" not in told
    for kind in ("", "_in_context"):
        new, made = (f"clone_new{kind}_{what}_ms_tiny_base" for what in ("first_audio", "made"))
        assert 0 < told[made] < told[new], "making the voice is part of the wait"
    over_http = (told[f"clone_new_http_{what}_ms_tiny_base"] for what in ("made", "first_audio"))
    assert 0 < next(over_http) < next(over_http)
    assert told["wall_audio_s_tiny"] > 0.7
    assert "| tiny_base | " in capfd.readouterr().out, "tables come last"
    assert voices_kept() <= before


def voices_kept() -> set[str]:
    return {voice.name for voice in VoiceStore().voices(LOCAL_OWNER)}


@pytest.mark.slow
def test_a_member_that_breaks_or_hangs_is_told_and_what_it_told_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, float] = {}
    member = asdict(Member("broken", "")) | {"device": "cpu", "profile": "cpu", "requests": 1}
    job = member | {"folder": str(tmp_path), "frames": 12, "cold_only": False}
    with pytest.raises(EngineFailure, match="a part of it failed"):
        told_by_process(job, 120.0, told.update)
    assert "CheckpointError" in capfd.readouterr().err and not told
    with pytest.raises(EngineFailure, match="longer than"):
        told_by_process(job, 0.2, told.update)
    folder = str(checkpoint("tiny", tmp_path / "weights"))
    tiny = job | {"folder": folder, "requests": 0}  # no median of none: parts and speech break
    with pytest.raises(EngineFailure, match="a part of it failed"):
        told_by_process(tiny, 120.0, told.update)
    assert capfd.readouterr().err.count("Traceback") == 2
    assert {"cold_start_s", "peak_gib"} <= told.keys() and "codec_ms" not in told
    told.clear()
    told_by_process(tiny | {"cold_only": True}, 120.0, told.update)
    assert "cold_start_s" in told and "peak_gib" not in told
