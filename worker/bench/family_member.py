"""One member of the family, measured in this process alone: a job as JSON comes in, figures go out.

`python -m playhead.worker.bench.family_member` is started by family.py. Imports of the engine are
inside, because they are part of the cold start.
"""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from playhead.engine.errors import EngineFailure, UnknownVoice
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_RATE_HZ
from playhead.worker.bench.family import COMPILED, FRAMES_15_S, STREAMS, TEXT
from playhead.worker.bench.uploads import REFERENCE_S, reference

if TYPE_CHECKING:
    from playhead.engine.messages import Submit
    from playhead.engine.models.loader import Model
    from playhead.engine.profile import Profile
    from playhead.engine.runner import Runner
    from playhead.engine.voice_store import VoiceStore

ROWS = 64
LONG_TEXT = "This is a longer text that is spoken to its end and written into one file. " * 4
DESCRIPTION = "a calm woman of about forty, close to the microphone, who takes her time"
SLOT, TEXT_ID = 1, 5
PART_TRIALS = 20
GIB = float(1 << 30)


class Member:
    """Measures one checkpoint at one precision; every figure is told by its plain name."""

    def __init__(self, job: dict[str, Any]) -> None:
        """Read the job; nothing is loaded."""
        self._job = job
        self._on_gpu: bool = job["device"] == "cuda"
        self._took_s: dict[str, float] = {}
        self._began_s = time.perf_counter()
        self._memory: dict[str, int] = {}
        self._num_compiled = 0
        self._voice: str | None = None
        """The stored clone that a Base checkpoint speaks with."""
        self._names: list[str] = []
        """Of voices that were stored and have to go."""

    def _lap(self, name: str) -> None:
        """Note the time since the last lap."""
        now_s = time.perf_counter()
        self._took_s[name] = now_s - self._began_s
        self._began_s = now_s

    def measure(self, tell: Callable[[dict[str, float]], None]) -> bool:
        """Measure part by part and tell each at once; return whether every part went well."""
        self._load()
        tell(self._cold())
        if self._job["cold_only"]:
            return True
        good = [tried(self._parts, tell)]
        try:
            with self._thread:
                if self._job["cloned"]:
                    good.append(tried(self._clones, tell))
                if self.model.config.kind == "voice_design":
                    good.append(tried(self._design, tell))
                good.append(tried(self._speech, tell))
        finally:
            self._forget()
        good.append(tried(self._peak, tell))
        if self._tier.quantized is not None:
            good.append(tried(self._logit_error, tell))
        return all(good)

    def _cold(self) -> dict[str, float]:
        figures = {f"cold_{name}_s": took_s for name, took_s in self._took_s.items()}
        figures["cold_start_s"] = sum(self._took_s.values())
        figures |= {f"{name}_gib": size / GIB for name, size in self._memory.items()}
        return figures | ({COMPILED: float(self._num_compiled)} if self._on_gpu else {})

    # -- cold start

    def _load(self) -> None:
        """Bring the engine up in laps: imports, census, tokenizer, weights, captures."""
        import torch

        from playhead.engine.device import profile_tier
        from playhead.engine.models.loader import load_model
        from playhead.engine.profile import load_profile
        from playhead.engine.text.front_end import load_front_end
        from playhead.worker.bench.engine_thread import EngineThread, sized

        if self._on_gpu:
            torch.zeros(1, device="cuda")
            self._held_bytes = torch.cuda.memory_reserved() + self._free_bytes()
        self._lap("imports")
        job = self._job
        asked = {name: job[name] for name in ("weights", "graphs", "capability")}
        profile = replace(load_profile(job["profile"]), **asked)
        self._profile = sized(
            profile, min(STREAMS, profile.max_streams), min(ROWS, profile.max_rows)
        )
        self.model = load_model(job["folder"])
        self._tier = profile_tier(self._profile, self.model.config)
        self._lap("census")
        self._front_end, _ = load_front_end(self.model.text_front_end, self.model.folder)
        self._lap("tokenizer")
        make = self._captured if self._on_gpu else self._eager
        self._thread: EngineThread = EngineThread(self.model.folder, self._profile, "", make)

    def _captured(self, model: "Model", profile: "Profile") -> "Runner":
        import torch
        import triton  # type: ignore[import-untyped]

        from playhead.engine.backend import captured_runner, folded_weights

        triton.knobs.compilation.listener = self._count
        self._began_s = time.perf_counter()  # the engine has read the tokenizer again
        weights = folded_weights(model, profile, self._tier)
        torch.cuda.synchronize()
        self._lap("weights")
        free = torch.cuda.mem_get_info()[0]
        runner = captured_runner(*weights, profile, self._tier)
        torch.cuda.synchronize()
        self._lap("captures")
        plan = runner.memory()
        weights_bytes = sum(size for name, size in plan.items() if name.startswith("weights"))
        later = sum(size for name, size in plan.items() if name.endswith("at most"))
        taken = free - torch.cuda.mem_get_info()[0]
        self._memory["weights"] = weights_bytes
        self._memory["keys_values"] = sum(size for name, size in plan.items() if "keys" in name)
        self._memory["graphs"] = taken - (sum(plan.values()) - weights_bytes - later)
        return runner

    def _count(self, *, cache_hit: bool, **_: object) -> None:
        """Hear of a kernel that was looked for in the compiler's cache."""
        self._num_compiled += not cache_hit

    def _eager(self, model: "Model", profile: "Profile") -> "Runner":
        from playhead.engine.eager_runner import eager_runner

        self._began_s = time.perf_counter()
        parts = model.talker, model.code_predictor, model.codec  # read when first asked for
        assert all(part is not None for part in parts)
        self._lap("weights")
        return eager_runner(model, profile)

    # -- speech

    def _parts(self) -> dict[str, float]:
        """Time text, the first frame and its samples apart, before the engine's thread runs."""
        import numpy as np

        from playhead.engine.models.prompt import Clone
        from playhead.worker.bench.runner_times import RunnerTimes

        runner, clone = self._thread.runner, None
        assert runner is not None
        if self._job["cloned"]:
            clone = Clone(np.zeros(self.model.config.talker.hidden, np.float32))
        times = RunnerTimes(runner, self.model, clone=clone)
        waits: dict[str, list[float]] = {"text_ms": [], "acoustic_ms": [], "codec_ms": []}
        for _ in range(min(PART_TRIALS, self._job["requests"]) + 1):
            marks = [time.perf_counter()]
            stream = self._front_end.open()
            assert [*stream.push(TEXT), *stream.close()]
            marks.append(time.perf_counter())
            times.join([SLOT])
            made = runner.launch_frame([SLOT], [TEXT_ID], [False]).result()
            marks.append(time.perf_counter())
            runner.launch_codec([SLOT], made.codes[:, None, :]).result()
            marks.append(time.perf_counter())
            times.leave([SLOT])
            for name, begun, ended in zip(waits, marks, marks[1:], strict=False):
                waits[name].append((ended - begun) * 1e3)
        # The first of each opens, compiles and fills caches.
        return {name: statistics.median(each[1:]) for name, each in waits.items()}

    def _speech(self) -> dict[str, float]:
        """First audio of streamed and full text when idle, and a long utterance to its end."""
        first = self._submit("first")
        full = replace(first, text_mode="full")
        figures = {"first_audio_ms": self._first_ms(first), "first_audio_full_ms":
                   self._first_ms(full)}  # fmt: skip
        frames = self._job["frames"]
        long = replace(first, request_id="long", text=LONG_TEXT, live=False, max_frames=frames)
        began_s = time.perf_counter()
        samples = self._thread.spoken(long)
        took_s = time.perf_counter() - began_s
        if samples < (frames - 2) * FRAME_SAMPLES:
            raise EngineFailure(f"{frames} frames were asked for, it ended after {samples} samples")
        name = "wall_s_15s" if frames == FRAMES_15_S else f"wall_s_{frames}_frames"
        return figures | {name: took_s, "wall_audio_s": samples / SAMPLE_RATE_HZ}

    def _design(self) -> dict[str, float]:
        """First audio of a description of a voice that was never heard."""
        submit, waits = self._submit("design"), []
        for i in range(self._job["requests"] + 1):
            new = replace(submit, request_id=f"design{i}", instruct=f"{DESCRIPTION}, number {i}")
            waits.append(self._thread.first_pcm_ms(new))
        return {"design_new_first_audio_ms": statistics.median(waits[1:])}

    def _submit(self, request_id: str) -> "Submit":
        """Return a request of a sentence in the member's voice."""
        from playhead.engine.messages import Submit

        designed = self.model.config.kind == "voice_design"
        return Submit(
            request_id,
            text=TEXT,
            closed=True,
            voice=self._voice,
            instruct=DESCRIPTION if designed else None,
            live=self._on_gpu,  # a slow CPU may refuse a listener; a file it makes all the same
        )

    def _first_ms(self, submit: "Submit") -> float:
        """Return the median first audio of an idle engine; one before is not counted."""
        waits = [
            self._thread.first_pcm_ms(replace(submit, request_id=f"{submit.text_mode}{i}", seed=i))
            for i in range(self._job["requests"] + 1)
        ]
        return statistics.median(waits[1:])

    # -- clones

    def _clones(self) -> dict[str, float]:
        """First audio of a new reference, with and without its codes, and of a stored voice.

        The voice is made as an upload's is, by a process that is warm (voice_process.py).
        """
        from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
        from playhead.worker.voice_process import VoiceProcess

        store, free_bytes = VoiceStore(), self._free_bytes()
        figures: dict[str, float] = {}
        loop = asyncio.Runner()
        process = VoiceProcess(str(self.model.folder), self._job["device"])
        try:
            for kind, transcript in (("_in_context", TEXT), ("", "")):
                waits, made = [], []
                for i in range(self._job["requests"] + 1):
                    name = f"bench-family-{os.getpid()}{kind.replace('_', '-')}-{i}"
                    self._names.append(name)
                    # No two recordings are of one length, so nothing is planned ahead for them.
                    recording = reference(110.0 + 7 * i, REFERENCE_S + i / 1000)
                    begun_s = time.perf_counter()
                    loop.run(process.make(store, LOCAL_OWNER, name, recording, transcript))
                    made.append((time.perf_counter() - begun_s) * 1e3)
                    if transcript and not i:
                        figures |= self._made_alike(store, name, recording)
                    self._voice = name
                    waits.append(made[-1] + self._thread.first_pcm_ms(self._submit(name)))
                figures[f"clone_new{kind}_made_ms"] = statistics.median(made[1:])
                figures[f"clone_new{kind}_first_audio_ms"] = statistics.median(waits[1:])
                figures["voice_process_gib"] = (free_bytes - self._free_bytes()) / GIB
                figures[f"clone_cached{kind}_first_audio_ms"] = self._first_ms(self._submit("s"))
        finally:
            loop.run(process.close())
            loop.close()
        return figures

    def _made_alike(self, store: "VoiceStore", name: str, recording: bytes) -> dict[str, float]:
        """Compare an in-context voice of that process with what the CPU makes of its recording."""
        import numpy as np

        from playhead.engine.models.cloning import make_clone
        from playhead.engine.reference_audio import read_reference
        from playhead.engine.voice_store import LOCAL_OWNER

        made, _ = store.load(store.find(LOCAL_OWNER, name).id)
        read = read_reference(recording, TEXT)
        wanted = make_clone(self.model, read.samples, TEXT, read.tail_samples)
        assert made.codes is not None and wanted.codes is not None
        error = np.linalg.norm(made.speaker - wanted.speaker) / np.linalg.norm(wanted.speaker)
        return {
            "clone_vector_error": float(error),
            "clone_same_codes": float((made.codes == wanted.codes).mean()),
        }

    def _forget(self) -> None:
        """Delete the voices that were stored."""
        from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore

        for name in self._names:
            with contextlib.suppress(UnknownVoice):
                VoiceStore().delete(LOCAL_OWNER, name)

    # -- memory and precision

    def _free_bytes(self) -> int:
        """Return what is free on the GPU, whoever uses it; 0 on a CPU."""
        if not self._on_gpu:
            return 0
        import torch

        return int(torch.cuda.mem_get_info()[0])

    def _peak(self) -> dict[str, float]:
        """Tell the most memory in use: on the device beyond CUDA's own, or of this process."""
        from playhead.worker.bench.first_audio import peak_mib

        peak_gib = peak_mib(self._job["device"]) / 1024
        if self._on_gpu:
            import torch

            # Kernels and graphs that the driver keeps: what is gone and torch does not hold.
            held_bytes = torch.cuda.memory_reserved() + self._free_bytes()
            peak_gib += (self._held_bytes - held_bytes) / GIB
        return {"peak_gib": peak_gib}

    def _logit_error(self) -> dict[str, float]:
        """Compare the scores with those of unquantized weights on the same device."""
        import gc

        import torch

        from playhead.engine.models.loader import Model
        from playhead.kernels.launches import TORCH, TRITON
        from playhead.worker.bench.precision import Precision, logit_error

        del self._thread
        gc.collect()
        dtype = getattr(torch, self._tier.dtype)
        held = Model(self.model.folder, self.model.config, torch.device("cuda"), dtype)
        told = logit_error(held, Precision(dtype, self._tier.quantized), Precision(dtype),
                           TRITON if self._tier.triton else TORCH)  # fmt: skip
        return {"logit_error": told.relative, "logit_error_largest": told.largest,
                "logit_same_best": told.same_best}  # fmt: skip


def tried(part: Callable[[], dict[str, float]], tell: Callable[[dict[str, float]], None]) -> bool:
    """Run one part and tell it; one that breaks is printed, and the next may still tell."""
    try:
        tell(part())
    except Exception:
        traceback.print_exc()
        return False
    return True


def main() -> int:
    """Read a job from standard input; write figures as they come, a line of JSON a part."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no figure

    def tell(figures: dict[str, float]) -> None:
        told.write(json.dumps(figures) + "\n")
        told.flush()

    return 0 if Member(json.loads(sys.stdin.read())).measure(tell) else 1


if __name__ == "__main__":
    raise SystemExit(main())
