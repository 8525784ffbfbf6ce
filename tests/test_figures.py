"""Tables of measured figures in README and docs are those of the committed result files."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from playhead.worker.bench.family import MEMBERS, named

ROOT = Path(__file__).resolve().parent.parent
Name = Callable[[str, str], str]
"""From a row's and a column's head to the name of the figure there."""
FAMILY = {
    "first audio, ms": "first_audio_ms", "file of 15 s, s": "wall_s_15s",
    "weights read in, s": "cold_weights_s", "start, s": "cold_start_s",
    "weights, GiB": "weights_gib", "graphs, GiB": "graphs_gib", "peak, GiB": "peak_gib",
    "error": "logit_error", "same best code": "logit_same_best",
}  # fmt: skip
CLONES = {
    "vector: new": "clone_new_first_audio_ms", "made in": "clone_new_made_ms",
    "stored": "clone_cached_first_audio_ms",
    "in context: new": "clone_new_in_context_first_audio_ms",
    "in context: made in": "clone_new_in_context_made_ms",
    "in context: stored": "clone_cached_in_context_first_audio_ms",
    "a named speaker of that size": "first_audio_ms",
}  # fmt: skip
GPUS = {
    "planned": "planned", "refused": "refused", "with a gap": "underruns",
    "audio s/s": "audio_s_per_s", "most live": "most_live", "GPU 0 busy": "gpu0_busy_share",
    "GPU 1 busy": "gpu1_busy_share", "p50, ms": "first_pcm_p50_ms", "p95, ms": "first_pcm_p95_ms",
}  # fmt: skip


def member_figure(columns: dict[str, str]) -> Name:
    """Return the namer of a table with a member of the family in each row."""

    def name(row: str, column: str) -> str:
        member = row.split("`")[1]
        if column == "a named speaker of that size":
            member = member.removesuffix("_base")
        known = {each.name: each for each in MEMBERS}
        return next(iter(named(known[member], {columns[column]: 0.0})))

    return name


def gpus_figure(row: str, column: str) -> str:
    return f"{GPUS[column]}_{'1x' if row.startswith('one') else '2x'}_160rps"


def part_figure(row: str, column: str) -> str:
    which = "sd" if row == "standard deviation" else row
    return f"{column.replace(' ', '_')}_{which}_ms"


def rate_figure(row: str, column: str) -> str:
    return f"{'silent1_' if 'silent' in row else ''}first_pcm_p95_ms_{column}rps"


LATE = {
    "audible gaps": "gaps", "stretched ms": "stretched_ms", "concealed ms": "concealed_ms",
    "receiver's target ms": "target_ms", "sender to ear ms": "ear_latency_ms",
    "words of 118 heard otherwise": "words_changed",
}  # fmt: skip


def late_figure(row: str, column: str) -> str:
    what, pump = row.split(", ")
    late = {"never": "0ms", "never, again": "again"}.get(column, column.replace(" ", ""))
    return f"{LATE[what]}_{late}_stalls_{pump}"


TABLES: dict[str, tuple[str, str, str, Name]] = {
    "precisions": ("docs/profiles.md", "member", "family-h200", member_figure(FAMILY)),
    "processor": ("docs/profiles.md", "on a CPU", "family-cpu", member_figure(FAMILY)),
    "clones": ("docs/voices.md", "model", "family-h200", member_figure(CLONES)),
    "parts": ("docs/benchmarks.md", "one H200, 1.7B, ms", "first-audio-h200", part_figure),
    "gpus": (
        "docs/benchmarks.md", "`ttfa`, 160 requests of 5 s a second", "serve-2xh200", gpus_figure,
    ),
    "late": (
        "docs/benchmarks.md", "engine late, 18 times in two speeches", "pumps-cpu", late_figure,
    ),
    "callers": ("README.md", "requests a second", "serve-h200", rate_figure),
}  # fmt: skip


def cells(text: str, head: str) -> list[tuple[str, str, str]]:
    """Return (row, column, cell) of the filled cells of the table that begins with `head`."""
    table = text[text.index(f"| {head} |") :].split("\n\n")[0].splitlines()
    top, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [
        (row[0], column, cell)
        for row in rows
        for column, cell in zip(top[1:], row[1:], strict=True)
        if cell
    ]


def as_written(value: float, cell: str) -> str:
    """Return a figure with the unit and the decimals of a cell."""
    number = re.sub(r"[^\d.]", "", cell)
    decimals = len(number.partition(".")[2])
    return f"{value * (100 if cell.endswith('%') else 1):.{decimals}f}"


@pytest.mark.parametrize("table", TABLES)
def test_a_table_tells_what_was_measured(table: str) -> None:
    page, head, file, name = TABLES[table]
    measured = json.loads((ROOT / f"tests/bench/results/{file}.json").read_text())["figures"]
    told = cells((ROOT / page).read_text(), head)
    assert len(told) >= 9
    wrong = [
        f"{name(row, column)}: {measured[name(row, column)]}, the page says {cell}"
        for row, column, cell in told
        if as_written(measured[name(row, column)], cell) != re.sub(r"[^\d.]", "", cell)
    ]
    assert not wrong


PROSE = (
    ("README.md", "family-h200", "first audio {first_audio_ms_1b7_customvoice:.1f} ms (1.7B), "
     "{first_audio_ms_0b6_customvoice:.1f} ms (0.6B), {clone_cached_first_audio_ms:.1f} ms with a "
     "stored clone, {clone_new_first_audio_ms:.1f} ms from a recording"),
    ("docs/voices.md", "family-h200", "after {design_new_first_audio_ms_1b7_voicedesign:.1f} ms "
     "with a new one, after {first_audio_ms_1b7_voicedesign:.1f} with one that was heard"),
    ("docs/voices.md", "family-h200", "The process took {voice_process_gib_1b7_base:.1f} GiB"),
    ("docs/profiles.md", "family-h200", "held {peak_gib_1b7_twins:.1f} GiB at 1.7B"),
    ("docs/profiles.md", "family-h200", "an empty compiler's cache took {first_start_s_1b7:.0f} s"),
    ("docs/profiles.md", "numerics-h200", "keeps {same_argmax_share:.1%} of the best codes"),
    ("docs/profiles.md", "family-cpu", "2 s of speech took {wall_s_25_frames_0b6:.1f} s"),
    ("docs/benchmarks.md", "serve-2xh200", "The ratio, {throughput_ratio_2x:.2f}, is"),
    ("docs/benchmarks.md", "pumps-cpu", "heard {gaps_80ms_stalls_queued_chromium:.0f} gaps of 8 "
     "stalls of 80 ms queued and {gaps_80ms_stalls_withheld_chromium:.0f} withheld"),
    ("docs/benchmarks.md", "pumps-cpu", "it heard {gaps_80ms_freezes_queued_chromium:.0f}, "
     "{gaps_100ms_freezes_queued_chromium:.0f} and {gaps_200ms_freezes_queued_chromium:.0f} queued "
     "and {gaps_80ms_freezes_withheld_chromium:.0f}, "
     "{gaps_100ms_freezes_withheld_chromium:.0f} and "
     "{gaps_200ms_freezes_withheld_chromium:.0f} withheld"),
    ("docs/benchmarks.md", "device-fault-h200", "{fault_streams:.0f} streams, {fault_errors:.0f} "
     "errors, the last after {fault_told_s:.2f} s; exit code {fault_exit_code:.0f}; ready again "
     "after {fault_ready_again_s:.1f} s"),
    ("docs/simulator.md", "simulate-none", "| with the margin | {p95_ms_90pct_margin:.1f} ms |"),
    ("docs/simulator.md", "simulate-none", "| without it | {p95_ms_90pct_no_margin:.1f} ms |"),
    ("docs/simulator.md", "simulate-none", "where {admitted_rps_overload:.0f} requests/s were let"),
    ("docs/deployment.md", "service-cpu", "had another one after {redispatch_s:.2f} s, the caller "
     "of a killed node heard a sentence through the other node after "
     "{node_lost_heard_again_s:.2f} s"),
)  # fmt: skip


@pytest.mark.parametrize(("page", "file", "told"), PROSE, ids=[page for page, _, _ in PROSE])
def test_a_sentence_tells_what_was_measured(page: str, file: str, told: str) -> None:
    measured = json.loads((ROOT / f"tests/bench/results/{file}.json").read_text())["figures"]
    wanted = told.format(**measured).replace("%", " %")
    assert wanted in " ".join((ROOT / page).read_text().split())
