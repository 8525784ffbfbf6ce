# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-untyped"
"""A kernel that writes where no memory is: the device's next answer is an illegal access."""

import torch
import triton
import triton.language as tl

FAR = tl.constexpr(1 << 44)
"""16 TiB of values behind any allocation: nothing is mapped there."""


@triton.jit
def _write(at):
    tl.store(at + FAR, 1)


def write_nowhere() -> None:
    """Start the write on the current device; the fault comes with a later call."""
    _write[(1,)](torch.zeros(1, dtype=torch.uint8, device="cuda"))
