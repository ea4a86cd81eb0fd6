"""Pickles that run code when they are read: PyTorch's formats, with a file that tells whether it ran."""

from pathlib import Path
from typing import Any

import torch


class RunsCode:
    """An object whose pickle, when it is read, creates a file."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.ran,)


def write_pickle(file: Path, ran: Path, *, zipped: bool) -> None:
    """Write a file as PyTorch does, or did before 1.6, which creates `ran` when it is read without precautions."""
    content = {"lm_head.weight": torch.zeros(1), "code": RunsCode(ran)}
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, file, _use_new_zipfile_serialization=zipped)


def runs_code(file: Path, ran: Path) -> bool:
    """Return whether reading the file without precautions runs its code, so that a test would see it."""
    torch.load(file, weights_only=False)
    found = ran.exists()
    ran.unlink(missing_ok=True)
    return found
