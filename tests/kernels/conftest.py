"""Kernels run on the CPU through Triton's interpreter unless a CUDA device is there."""

import pytest
import torch

from tests.kernels.interpreter import use_interpreter

use_interpreter()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test draws the same numbers in any order."""
    torch.manual_seed(0)
