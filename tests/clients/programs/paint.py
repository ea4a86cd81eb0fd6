"""The structured answer that clients ask for."""

from typing import Literal

from pydantic import BaseModel


class Paint(BaseModel):
    """A paint that only guided decoding makes of the question."""

    colour: Literal["green"]
    count: Literal[3]


PAINT = Paint(colour="green", count=3)
