"""What a training call leaves for the next one."""

import os
from pathlib import Path
from typing import Any

import torch


def save_state(state: dict[str, Any], path: Path) -> None:
    """Write a state so that a call that is cut off leaves the one before."""
    written = path.with_suffix(".new")
    torch.save(state, written)
    os.replace(written, path)
