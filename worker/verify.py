"""`playhead verify`: is this checkpoint whole, is it the one it claims to be, does it speak?

One table, one line a check. Shapes cannot tell a swapped tensor from the right one, so that is
told by hashes: the Hub's own for files in its cache, a list beside the checkpoint for any folder.
A check without the means for it is `skip` with the reason, never `pass`.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from playhead.engine.errors import PlayheadError
from playhead.engine.models.published import (
    PUBLISHED,
    PUBLISHED_SPEECH_TOKENIZER,
    SHORT_NAMES,
)
from playhead.engine.profile import Profile, load_profile

if TYPE_CHECKING:
    from playhead.engine.models.loader import Model

Outcome = Literal["pass", "fail", "skip"]
SENTENCES = Path(__file__).with_name("verify_sentences.yaml")
REFERENCE_SCRIPT = Path(__file__).with_name("verify_reference.py")
REFERENCE_FRAMES = 24
REFERENCE_LIMIT_S = 1800
DESCRIPTION_OF_A_VOICE = "a calm woman of about forty, close to the microphone"
_SHOWN = 5
"""Findings printed of a check; their number is always told."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    check: str
    outcome: Outcome
    told: str


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command; the token comes from the environment alone."""
    parser.description = (
        "Check a checkpoint: files, tensors, hashes, speech in every language it knows, and its "
        "codes against the reference package where that is installed."
    )
    parser.add_argument(
        "model",
        nargs="?",
        help="folder, hub name or short name; default is the embedded English voice",
    )
    parser.add_argument("--revision", help="of a hub name")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the hash list of a folder that you trust now; later runs compare with it",
    )
    parser.add_argument("--no-speech", action="store_true", help="look at files alone")
    parser.add_argument("--voice", help="speak with this voice; base checkpoints need one")
    parser.add_argument(
        "--profile",
        default=env.get("PLAYHEAD_PROFILE") or "cpu",
        help="speak on the device and with the weights of this profile: a built-in name or a .yaml "
        "file; default cpu [PLAYHEAD_PROFILE]",
    )
    parser.add_argument(
        "--language",
        action="append",
        default=[],
        help="check this language alone; may be repeated",
    )
    parser.add_argument(
        "--sentences", type=int, default=10, help="of each language, at most 10; default 10"
    )
    parser.add_argument(
        "--reference-python",
        metavar="PATH",
        help="Python of an environment with qwen-tts, to compare codes one by one",
    )
    parser.set_defaults(token=env.get("HF_TOKEN") or None, log_level="WARNING")


def run(args: argparse.Namespace) -> int:
    """Print the table; return 0 when nothing failed, else 1.

    Raises ConfigError, before a file is read, for a profile that is wrong or can't run here.
    """
    from playhead.engine.device import profile_tier

    profile = load_profile(args.profile)
    if not args.no_speech:
        profile_tier(profile)
    lines: list[Line] = []
    for line in _lines(args, profile):
        print(f"{line.outcome:4}  {line.check:20}  {line.told}", flush=True)
        lines.append(line)
    failed = sum(line.outcome == "fail" for line in lines)
    skipped = sum(line.outcome == "skip" for line in lines)
    print(f"{'FAIL' if failed else 'PASS'}  {failed} failed, {skipped} skipped of {len(lines)}")
    return 1 if failed else 0


def _lines(args: argparse.Namespace, profile: Profile) -> Iterator[Line]:
    from playhead.engine.library import EMBEDDED_VOICE  # torch: slow to import
    from playhead.engine.models.loader import load_model, locate_checkpoint

    name = SHORT_NAMES.get((args.model or "").lower(), args.model)
    folder = EMBEDDED_VOICE if name is None else None
    try:
        folder = folder or locate_checkpoint(name, args.revision, token=args.token)
        yield from _file_lines(folder, name)
        if args.record:
            yield _recorded(folder)
        yield _hash_line(folder)
        model = load_model(folder)
    except PlayheadError as error:
        yield Line("loading", "fail", str(error))
        return
    yield _finite_line(model)
    yield _reference_line(model, args.reference_python)
    if args.no_speech:
        yield Line("speech", "skip", "--no-speech")
        return
    from playhead.worker.verify_speech import speech_lines

    stored = yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    known = args.language or [x for x in stored if x in (model.config.languages or ("english",))]
    chosen = {language: stored.get(language, [])[: args.sentences] for language in known}
    instruct = DESCRIPTION_OF_A_VOICE if model.config.kind == "voice_design" else None
    for check, passed, told in speech_lines(model, chosen, profile, args.voice, instruct):
        yield Line(check, "skip" if passed is None else "pass" if passed else "fail", told)


def _judged(check: str, findings: list[str], fine: str) -> Line:
    if not findings:
        return Line(check, "pass", fine)
    more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    return Line(check, "fail", f"{len(findings)}: " + "; ".join(findings[:_SHOWN]) + more)


def _file_lines(folder: Path, name: str | None) -> Iterator[Line]:
    from playhead.engine.models.census import checkpoint_findings, held
    from playhead.engine.models.config import read_config

    config = read_config(folder)
    voices = f"{len(config.voices)} voices, {len(config.languages)} languages"
    yield Line("config", "pass", f"{config.kind}, {config.size_label}, {voices}")
    main, speech = held(folder)
    told = f"{main[0]} + {speech[0]} tensors, {main[1]} + {speech[1]} values"
    yield _judged("tensors", checkpoint_findings(folder, config), told)
    if name is None or name not in PUBLISHED:
        yield Line("published census", "skip", "not one of the published checkpoints by name")
        return
    wanted = (PUBLISHED[name], PUBLISHED_SPEECH_TOKENIZER)
    same = (main, speech) == wanted
    findings = [] if same else [f"found {(main, speech)}, the published one holds {wanted}"]
    yield _judged("published census", findings, "as many as the published one")


def _recorded(folder: Path) -> Line:
    from playhead.engine.models.hashes import write_hashes

    return Line("record", "pass", f"wrote {write_hashes(folder)}")


def _hash_line(folder: Path) -> Line:
    from playhead.engine.models import hashes

    from_hub, listed = hashes.hub_files(folder), hashes.has_list(folder)
    if not from_hub and not listed:
        return Line(
            "hashes", "skip", "nothing to compare with: a swapped tensor would not be noticed; "
            "playhead download notes hashes, --record those of a folder you trust",
        )  # fmt: skip
    findings = [
        f"{path} is not the file of the Hub: its SHA-256 differs"
        for path in hashes.hub_damaged(folder)
    ]
    findings += hashes.list_findings(folder) if listed else []
    sources = ["the Hub's"] * bool(from_hub) + ["the list beside it"] * listed
    return _judged("hashes", findings, f"equal to {' and '.join(sources)}")


def _finite_line(model: "Model") -> Line:
    parts: dict[str, Callable[[], Mapping[str, object]]] = {
        "main": model.main_weights,
        "codec": model.codec_weights,
    }
    bad = [
        f"{part}: {name} holds values that are no numbers"
        for part, read in parts.items()
        for name, tensor in read().items()
        if not bool(tensor.isfinite().all())  # type: ignore[attr-defined]
    ]
    return _judged("values", bad, "all are numbers")


def _reference_line(model: "Model", python: str | None) -> Line:
    check = "reference codes"
    if python is None and importlib.util.find_spec("qwen_tts") is None:
        return Line(check, "skip", "qwen-tts is not installed; --reference-python names its Python")
    if model.instruct_ids("x") is None:
        return Line(check, "skip", "the reference package cannot read this checkpoint's text")
    with tempfile.TemporaryDirectory() as temporary:
        try:
            wanted, ours = _both_codes(model, python or sys.executable, Path(temporary))
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            told = getattr(error, "stderr", "") or str(error)
            return Line(check, "fail", f"the reference did not run: {told.strip()[-300:]}")
    if wanted == ours:
        return Line(check, "pass", f"{len(ours)} frames of 16 codes are equal, greedy, fp32")
    equal = next(
        (i for i, pair in enumerate(zip(wanted, ours, strict=False)) if pair[0] != pair[1]),
        min(len(wanted), len(ours)),
    )
    return Line(check, "fail", f"codes differ from frame {equal} on ({len(wanted)} frames)")


def _both_codes(
    model: "Model", python: str, folder: Path
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the reference's and our greedy codes of one sentence."""
    import numpy as np
    import torch

    from playhead.engine.models.cloning import make_clone
    from playhead.engine.models.greedy import greedy_codes
    from playhead.engine.models.loader import load_model
    from playhead.engine.models.prompt import build_prompt

    model = load_model(model.folder, dtype=torch.float32)
    config, text = model.config, "hello there, this is a test"
    design = DESCRIPTION_OF_A_VOICE if config.kind == "voice_design" else None
    clone, samples = None, ""
    if config.kind == "base":
        wave = np.random.RandomState(0).uniform(-0.3, 0.3, 72_000).astype(np.float32)
        wave *= np.abs(np.sin(np.arange(72_000) / 2_000)).astype(np.float32)
        clone, samples = make_clone(model, wave), str(folder / "wave.npy")
        np.save(samples, wave)
    voice = config.voices[0] if config.voices else None
    case = {"text": text, "language": "auto", "voice": voice, "instruct": design}
    case_file = folder / "case.json"
    case_file.write_text(json.dumps(case | {"samples": samples, "num_frames": REFERENCE_FRAMES}))
    command = [python, str(REFERENCE_SCRIPT), str(model.folder), str(case_file)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=REFERENCE_LIMIT_S
    )
    wanted: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    body = model.text_ids(text)
    prompt = build_prompt(
        model, voice=voice, language="auto", instruct=design, text_mode="streaming", clone=clone
    )
    ours = greedy_codes(model, prompt, (*body, config.tts_eos_id), REFERENCE_FRAMES)
    return wanted, ours.tolist()
