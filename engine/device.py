"""Which device the engine runs on, and how: tiers by compute capability. No torch but in `probe`.

    full     >= 8.0   bf16, Triton kernels, captured graphs
    twins    7.5      fp16, the torch twins of the kernels, captured graphs
             7.0, 7.2 the same, only with a torch build that still carries code for them
    cpu               fp32, eager

`probe` asks torch; everything after it is a pure decision over what was found.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from playhead.engine.errors import ConfigError
from playhead.engine.models.config import ModelConfig

TierName = Literal["full", "twins", "cpu"]
Capability = tuple[int, int]

FULL = (8, 0)
"""bf16 on the matrix units, and what Triton's kernels were written for."""
TWINS = (7, 5)
OLDEST = (7, 0)
"""Below it the matrix units are missing: nothing here would be faster than the CPU."""
_WANTED = re.compile(r"auto|cpu|cuda(:\d+)?")
_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One CUDA device as torch sees it."""

    index: int
    name: str
    capability: Capability
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Found:
    """What the installed torch offers; nothing of it is decided yet."""

    torch: str
    """Its version; empty where it is not installed."""
    gpus: tuple[Gpu, ...] = ()
    arch_list: tuple[str, ...] = ()
    """Architectures the build carries code for, as `torch.cuda.get_arch_list()` names them."""
    trouble: str = ""
    """Why CUDA does not answer although the build has it, in torch's own words."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Where and how the engine runs, and why."""

    name: TierName
    device: str
    """As torch writes it: "cpu" or "cuda:0"."""
    dtype: Literal["float32", "float16", "bfloat16"]
    """Of talker and code predictor."""
    triton: bool
    """Triton kernels; False: their torch twins."""
    graphs: bool
    why: str


def probe() -> Found:
    """Ask torch for its devices; starts CUDA in this process where there is any."""
    try:
        import torch
    except ImportError:
        return Found(torch="")
    version = str(torch.__version__)
    archs = tuple(torch.cuda.get_arch_list())
    flags = getattr(torch._C, "_cuda_getArchFlags", None)
    if not archs and flags is not None:  # the list is empty where no device answers
        archs = tuple((flags() or "").split())
    if not torch.cuda.is_available():
        return Found(version, arch_list=archs)
    gpus = []
    try:
        for index in range(torch.cuda.device_count()):
            found = torch.cuda.get_device_properties(index)
            free_bytes, total_bytes = torch.cuda.mem_get_info(index)
            capability = (int(found.major), int(found.minor))
            gpus.append(Gpu(index, str(found.name), capability, total_bytes, free_bytes))
    except RuntimeError as error:
        return Found(version, arch_list=archs, trouble=str(error).splitlines()[0])
    return Found(version, tuple(gpus), archs)


def choose_device(
    wanted: str, config: ModelConfig | None = None, found: Found | None = None
) -> Tier:
    """Return the tier for `wanted`: "auto", "cpu", "cuda" or "cuda:N".

    `auto` takes the best GPU that can run the model of `config`, else the CPU, and never fails;
    a device asked for by name that can't run it raises ConfigError with what is missing.
    `found` replaces what torch says.
    """
    if not _WANTED.fullmatch(wanted):
        raise ConfigError(f"device {wanted!r}; allowed are auto, cpu, cuda and cuda:N")
    if wanted == "cpu":
        return _cpu("asked for")
    found = probe() if found is None else found
    if wanted == "auto":
        return _best(found, config)
    number = int(wanted.partition(":")[2] or 0)
    gpu = next((each for each in found.gpus if each.index == number), None)
    if gpu is None:
        raise ConfigError(f"device {wanted}: {_absent(found)}; use --device cpu or auto")
    tier = gpu_tier(gpu, found.arch_list, config)
    if isinstance(tier, str):
        raise ConfigError(f"device {wanted}: {tier}; use --device cpu or auto")
    return tier


def gpu_tier(gpu: Gpu, arch_list: Sequence[str], config: ModelConfig | None) -> Tier | str:
    """Return the tier of one GPU, or why it can't be used."""
    own = ".".join(map(str, gpu.capability))
    where, device = f"{gpu.name}, capability {own}", f"cuda:{gpu.index}"
    if gpu.capability < OLDEST:
        return f"{where}: below {OLDEST[0]}.{OLDEST[1]}"
    if not carries(arch_list, gpu.capability):
        return (
            f"{where}: this torch build carries {' '.join(arch_list) or 'no GPU code'} and nothing "
            f"for sm_{gpu.capability[0]}{gpu.capability[1]}; install a build that still carries it"
        )
    full = gpu.capability >= FULL
    if config is not None:
        needed = weight_bytes(config, 2)
        if needed > gpu.total_bytes:
            return (
                f"{where}: the weights take {needed / 2**30:.1f} GiB, it has "
                f"{gpu.total_bytes / 2**30:.1f} GiB"
            )
    if full:
        why = f"{where}: 8.0 and later run bf16, Triton kernels and captured graphs"
        return Tier("full", device, "bfloat16", triton=True, graphs=True, why=why)
    why = f"{where}: below 8.0 there is no bf16; fp16, torch twins of the kernels, captured graphs"
    return Tier("twins", device, "float16", triton=False, graphs=True, why=why)


def carries(arch_list: Sequence[str], capability: Capability) -> bool:
    """Return whether a build's code runs on a capability.

    Machine code (sm_XY) runs on its own major version from minor Y on, intermediate code
    (compute_XY) on everything later (CUDA C++ Programming Guide, "Binary Compatibility" and "PTX
    Compatibility"); a name that ends in a or f runs on that very architecture alone.
    """
    for name in arch_list:
        match = _ARCH.fullmatch(name)
        if match is None:
            continue
        kind, special = match[1], bool(match[4])
        built = (int(match[2]), int(match[3]))
        if built == capability:
            return True
        if special or built > capability:
            continue
        if kind == "compute" or built[0] == capability[0]:
            return True
    return False


def weight_bytes(config: ModelConfig, value_bytes: int) -> int:
    """Return a lower bound of the bytes of all weights: stacks and tables, the codec's convolutions
    left out (they are a twentieth)."""
    t, p = config.talker, config.predictor
    values = config.text_vocab * t.hidden + config.codec_vocab * t.hidden
    values += 15 * config.num_codes * (t.hidden + p.hidden)
    for stack in (t, p, config.codec.stack):
        heads = 2 * stack.num_heads + 2 * stack.num_kv_heads
        per_layer = heads * stack.head_dim * stack.hidden + 3 * stack.hidden * stack.intermediate
        values += stack.num_layers * per_layer
    return value_bytes * values


def _best(found: Found, config: ModelConfig | None) -> Tier:
    reasons = []
    tiers = []
    for gpu in found.gpus:
        tier = gpu_tier(gpu, found.arch_list, config)
        if isinstance(tier, str):
            reasons.append(tier)
        else:
            tiers.append(tier)
    if tiers:
        return min(tiers, key=lambda tier: tier.name != "full")
    return _cpu("; ".join(reasons) or _absent(found))


def _absent(found: Found) -> str:
    if not found.torch:
        return "torch is not installed; install playhead[engine]"
    if found.trouble:
        return f"CUDA does not answer ({found.trouble})"
    if not found.arch_list:
        return f"torch {found.torch} is a build without CUDA"
    if found.gpus:
        return f"torch sees {len(found.gpus)} CUDA devices, numbered from 0"
    return "torch sees no CUDA device"


def _cpu(why: str) -> Tier:
    return Tier("cpu", "cpu", "float32", triton=False, graphs=False, why=why)
