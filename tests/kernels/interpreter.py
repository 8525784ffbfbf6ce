"""Triton's interpreter on a CPU, made to work with numpy 2.4 and newer."""

import os
from typing import Any

import torch

ON_DEVICE = torch.cuda.is_available()
DEVICE = "cuda" if ON_DEVICE else "cpu"


def use_interpreter() -> None:
    """Let kernels declared from now on run on the CPU; nothing where a CUDA device is there."""
    if ON_DEVICE:
        return
    # Read when a kernel is declared, so before any kernel module is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patch_and_index(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        # The interpreter's own calls int() on a one-element array, which numpy 2.4 refuses.
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_and_index
