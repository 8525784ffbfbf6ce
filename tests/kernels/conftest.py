"""Kernels run on the CPU through Triton's interpreter unless a CUDA device is there."""

import pytest
import torch

from tests.kernels.interpreter import use_interpreter

use_interpreter()
# The twins are the oracle: full fp32 products, where the library's default would be TF32.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test draws the same numbers in any order."""
    torch.manual_seed(0)
