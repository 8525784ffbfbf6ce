"""Report: figures of one benchmark run, printed and written as each part ends; its time limit."""

import argparse
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from playhead.engine.device import choose_device, probe
from playhead.engine.errors import ConfigError, PlayheadError
from playhead.worker.bench.checkpoint import EMBEDDED, SHAPES, default_folder
from playhead.worker.bench.result import device_label, write_result

LIMIT_S = 480.0
"""No benchmark takes longer: what does not fit any more is skipped, and said so."""


def add_common_arguments(parser: argparse.ArgumentParser, shape: str) -> None:
    """Add what every engine benchmark has: device, shape, folders, time limit."""
    parser.add_argument(
        "--device",
        default="auto",
        help="cuda, cpu, or auto (default): the GPU if there is one; of several GPUs the first "
        "that CUDA_VISIBLE_DEVICES leaves",
    )
    parser.add_argument(
        "--shape",
        default=shape,
        choices=(*SHAPES, EMBEDDED),
        help=f"sizes of the model, random weights; embedded: the English voice; default {shape}",
    )
    parser.add_argument(
        "--checkpoints",
        type=Path,
        metavar="FOLDER",
        help=f"generated weights are kept here (5 GB for 1.7b); default {default_folder()}",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="result files; default tests/bench/results"
    )
    parser.add_argument(
        "--limit-s", type=float, default=LIMIT_S, help=f"skip what is beyond; default {LIMIT_S:g}"
    )


class Report:
    """Collects figures of a run; every part's are written when it ends."""

    def __init__(self, benchmark: str, args: argparse.Namespace) -> None:
        """Choose the device and note the time.

        Raises ConfigError for one that is not there, or not the first.
        """
        found = probe()
        tier = choose_device(args.device, None, found)
        self.benchmark, self.device = benchmark, tier.device.partition(":")[0]
        """Torch's kind of device: cpu or cuda."""
        names = {f"cuda:{gpu.index}": gpu.name for gpu in found.gpus}
        self.gpu_index = int(tier.device.partition(":")[2] or 0)
        if self.gpu_index:
            raise ConfigError(
                f"device {args.device}: benchmarks run on the first GPU they see; choose it with "
                "CUDA_VISIBLE_DEVICES"
            )
        self.device_name = names.get(tier.device, "cpu")
        self.num_gpus, self.num_devices = len(found.gpus), 1
        """GPUs that torch sees, and how many devices of a kind the figures are of."""
        self.figures: dict[str, float] = {}
        self.failed = False
        self.path: Path | None = None
        self._folder: Path | None = args.out
        self._command = shlex.join(["playhead", *sys.argv[1:]])
        self._began_s = time.monotonic()
        self._limit_s: float = args.limit_s
        print(f"{benchmark} on {self.device_name}: {tier.why}", flush=True)

    @property
    def label(self) -> str:
        """The device in file names: h200, or 2xh200 where the figures are of several."""
        name = device_label(self.device_name)
        return name if self.num_devices == 1 else f"{self.num_devices}x{name}"

    @property
    def left_s(self) -> float:
        """Time until the limit."""
        return self._limit_s - (time.monotonic() - self._began_s)

    def tell(self, figures: Mapping[str, float], note: str = "") -> None:
        """Print figures and merge them into the result file."""
        at_s = time.monotonic() - self._began_s
        for name, value in figures.items():
            print(f"[{at_s:6.1f} s] {name:<34} {value:>12.4g}  {note}".rstrip(), flush=True)
        self.figures |= figures
        self.path = write_result(self.benchmark, self.label, figures, self._command, self._folder)

    def part(self, name: str, takes_s: float, run: Callable[[], None]) -> None:
        """Run one part if it fits; one that breaks is told and the next still runs."""
        if takes_s > self.left_s:
            print(f"{name}: skipped, it takes {takes_s:.0f} s and {self.left_s:.0f} s are left")
            return
        try:
            run()
        except ConfigError:
            raise
        except Exception as error:  # the other parts may still tell something
            self.failed = True
            if not isinstance(error, PlayheadError):
                traceback.print_exc()
            print(f"{name}: failed, {type(error).__name__}: {error}", file=sys.stderr, flush=True)
