"""Which device the engine runs on, and how: tiers by compute capability. No torch but in `probe`.

    full     >= 8.0   bf16, Triton kernels, captured graphs; weights in 8 or 4 bits on request
    twins    7.5      fp16, the kernels' torch twins, captured graphs
             7.0, 7.2 the same, only with a torch build that still carries code for them
    cpu               fp32, eager; below 7.0 too: nothing here would be faster than the CPU

`probe` asks torch; everything after it is a pure decision over what was found and what a profile
asks for (`weights`, `graphs`, `capability`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from playhead.engine.errors import ConfigError
from playhead.engine.models.config import ModelConfig, StackConfig
from playhead.engine.profile import AUTO, Profile

TierName = Literal["full", "twins", "cpu"]
Dtype = Literal["float32", "float16", "bfloat16"]
Quantized = Literal["int8", "fp8", "int4"]
Capability = tuple[int, int]

FULL = (8, 0)
"""bf16 on the matrix units, and what Triton's kernels were written for."""
TWINS = (7, 5)
OLDEST = (7, 0)
"""Below it the matrix units are missing: nothing here would be faster than the CPU."""
HEAD_DIMS = {16, 32, 64, 128, 256}
"""Values of a head that Triton's attention takes: powers of two."""
WEIGHTS = {
    "full": ("bf16", "fp16", "fp32", "int8", "fp8", "int4"),
    "twins": ("fp16", "fp32"),
    "cpu": ("fp32",),
}
"""What a tier runs; `auto` is the first."""
_DTYPES: dict[str, Dtype] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_QUANTIZED: dict[str, Quantized] = {"int8": "int8", "fp8": "fp8", "int4": "int4"}
_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "int8": 8, "fp8": 8, "int4": 4}
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
    dtype: Dtype
    """Of talker and code predictor: activations, tables, and weights unless `quantized`."""
    triton: bool
    """Triton kernels; False: their torch twins."""
    graphs: bool
    why: str
    quantized: Quantized | None = None
    """How the matrices of talker and code predictor are kept, where not in `dtype`."""


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


def profile_tier(
    profile: Profile,
    config: ModelConfig | None = None,
    found: Found | None = None,
    wanted: str | None = None,
) -> Tier:
    """Return the tier that a profile gets for a model; raises ConfigError where there is none.

    `found` replaces what torch says, `wanted` (choose_device) the profile's device.
    """
    wanted = wanted or profile.device
    if wanted != "cpu":
        found = assumed(probe() if found is None else found, profile.capability)
    tier = choose_device(wanted, config, found, profile.weights)
    if tier.name == "cpu" or profile.graphs:
        return tier
    return replace(tier, graphs=False, why=f"{tier.why}; graphs are off in the profile")


def assumed(found: Found, capability: float) -> Found:
    """Return what was found, as if its GPUs had a lower capability (as 7.5); 0 leaves them.

    Raises ConfigError for one above what a GPU has: code for it would not run there.
    """
    if not capability:
        return found
    value = int(capability), round(10 * (capability - int(capability)))
    above = next((gpu for gpu in found.gpus if gpu.capability < value), None)
    if above is not None:
        raise ConfigError(
            f"capability {capability}: {above.name} has {_dotted(above.capability)}; "
            "a profile may assume less than there is, not more"
        )
    return replace(found, gpus=tuple(replace(gpu, capability=value) for gpu in found.gpus))


def choose_device(
    wanted: str, config: ModelConfig | None = None, found: Found | None = None, weights: str = AUTO
) -> Tier:
    """Return the tier for `wanted`: "auto", "cpu", "cuda" or "cuda:N".

    `auto` takes the best GPU that can run the model of `config`, else the CPU, and never fails
    but for `weights` (profile.WEIGHTS) that the device does not run; a device asked for by name
    that can't run it raises ConfigError with what is missing. `found` replaces what torch says.
    """
    if not _WANTED.fullmatch(wanted):
        raise ConfigError(f"device {wanted!r}; allowed are auto, cpu, cuda and cuda:N")
    if wanted == "cpu":
        return with_weights(_cpu("asked for"), weights)
    found = probe() if found is None else found
    if wanted == "auto":
        return with_weights(_best(found, config, weights), weights)
    number = int(wanted.partition(":")[2] or 0)
    gpu = next((each for each in found.gpus if each.index == number), None)
    if gpu is None:
        raise ConfigError(f"device {wanted}: {_absent(found)}; use --device cpu or auto")
    tier = gpu_tier(gpu, found.arch_list, config, weights)
    if isinstance(tier, str):
        raise ConfigError(f"device {wanted}: {tier}; use --device cpu or auto")
    return with_weights(tier, weights)


def with_weights(tier: Tier, weights: str) -> Tier:
    """Return the tier with the weights asked for; raises ConfigError where it does not run them."""
    if weights == AUTO:
        return tier
    if weights not in WEIGHTS[tier.name]:
        raise ConfigError(
            f"weights {weights}: tier {tier.name} ({tier.why}) runs "
            f"{', '.join(WEIGHTS[tier.name])}; choose one of them, or {AUTO}"
        )
    if weights in _QUANTIZED:
        why = f"{tier.why}; weights in {weights}, read so by the kernels"
        return replace(tier, quantized=_QUANTIZED[weights], why=why)
    if weights == "fp32" and tier.triton:
        # Tiles of the kernels are cut for 16 bits: in 32 they need more shared memory than some
        # cards have. fp32 is for comparing numbers.
        why = f"{tier.why}; fp32 runs the kernels' torch twins"
        return replace(tier, dtype="float32", triton=False, why=why)
    return replace(tier, dtype=_DTYPES[weights])


def gpu_tier(
    gpu: Gpu, arch_list: Sequence[str], config: ModelConfig | None, weights: str = AUTO
) -> Tier | str:
    """Return the tier of one GPU, or why it can't be used."""
    where, device = f"{gpu.name}, capability {_dotted(gpu.capability)}", f"cuda:{gpu.index}"
    if gpu.capability < OLDEST:
        return f"{where}: below {_dotted(OLDEST)}"
    if not carries(arch_list, gpu.capability):
        return (
            f"{where}: this torch build carries {' '.join(arch_list) or 'no GPU code'} and nothing "
            f"for sm_{gpu.capability[0]}{gpu.capability[1]}; install a build that still carries it"
        )
    full = gpu.capability >= FULL
    if config is not None:
        needed = weight_bytes(config, weights)
        if needed > gpu.total_bytes:
            return (
                f"{where}: the weights take {needed / 2**30:.1f} GiB, it has "
                f"{gpu.total_bytes / 2**30:.1f} GiB"
            )
    odd = {stack.head_dim for stack in _stacks(config)} - HEAD_DIMS if config else set()
    if full and odd:
        why = (
            f"{where}: heads of {', '.join(map(str, sorted(odd)))} values fit no Triton kernel; "
            "fp32, torch twins of the kernels, captured graphs"
        )
        return Tier("full", device, "float32", triton=False, graphs=True, why=why)
    if full:
        why = f"{where}: 8.0 and later run bf16, Triton kernels and captured graphs"
        return Tier("full", device, "bfloat16", triton=True, graphs=True, why=why)
    why = f"{where}: below 8.0 there is no bf16; fp16, torch twins of the kernels, captured graphs"
    return Tier("twins", device, "float16", triton=False, graphs=True, why=why)


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"


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


def weight_bytes(config: ModelConfig, weights: str = AUTO) -> int:
    """Return a lower bound of the bytes of all weights: stacks and tables, the codec's convolutions
    left out (they are a twentieth)."""
    t, p = config.talker, config.predictor
    tables = config.text_vocab * t.hidden + config.codec_vocab * t.hidden
    tables += 15 * config.num_codes * (t.hidden + p.hidden)
    matrices, codec = (
        sum(stack.num_layers * _layer_values(stack) for stack in stacks)
        for stacks in ((t, p), (config.codec.stack,))
    )
    bits = _BITS.get(weights, 16)
    return ((tables + codec) * max(bits, 16) + matrices * bits) // 8


def _stacks(config: ModelConfig) -> tuple[StackConfig, ...]:
    return config.talker, config.predictor, config.codec.stack


def _layer_values(stack: StackConfig) -> int:
    heads = (2 * stack.num_heads + 2 * stack.num_kv_heads) * stack.head_dim
    return stack.hidden * (heads + 3 * stack.intermediate)


def _best(found: Found, config: ModelConfig | None, weights: str) -> Tier:
    reasons = []
    tiers = []
    for gpu in found.gpus:
        tier = gpu_tier(gpu, found.arch_list, config, weights)
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
