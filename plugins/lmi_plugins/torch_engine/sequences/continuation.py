"""Sequences that another engine has begun."""

import torch

from lmi_core.workers.partial_output import Given
from lmi_plugins.torch_engine.sequences.sequence import Sequence


def go_on(sequence: Sequence, given: Given) -> None:
    """Bring a new sequence to where it was when its tokens were given: as if it had been preempted then."""
    sequence.started = sequence.started or given.begun
    if not given.token_ids:
        return
    sequence.token_ids += given.token_ids
    sequence.draft = None
    for token_id in given.token_ids:
        sequence.stream.push(token_id)
    sequence.stream.finish()  # what it still holds back was given: no stop sequence begins in it
    if sequence.generator is not None:  # which drew a number for each token
        torch.rand(len(given.token_ids), dtype=torch.float64, generator=sequence.generator)
