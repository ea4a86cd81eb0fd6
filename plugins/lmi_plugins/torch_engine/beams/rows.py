"""The rows of beam searches in a step's batch."""

from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


def beam_rows(batch: StepBatch) -> list[tuple[BeamSearch, list[int]]]:
    """Return the searches whose beams are computed to their end, and the row of the logits of each beam."""
    rows: dict[BeamSearch, list[int]] = {}
    for chunk in batch.chunks:
        group = chunk.group
        if isinstance(group, BeamSearch) and group not in rows and group.sequences[0] in batch.next_token_rows:
            rows[group] = [batch.next_token_rows[beam] for beam in group.sequences]
    return list(rows.items())
