"""The names by which the engine's errors call parameters."""

from typing import NamedTuple


class ParameterNames(NamedTuple):
    """What an interface on top of the engine calls the parameters that only the engine can check."""

    num_beams: str = "`num_beams`"
    draft_ids: str = "draft tokens"


OWN_NAMES = ParameterNames()
