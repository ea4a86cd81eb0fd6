"""Fields of requests for vectors and scores, and these in JSON."""

import math
import struct
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated

import orjson
from pydantic import BeforeValidator

from lmi_core.generation.embedding_request import EmbeddingRequest, Side
from lmi_core.serving.embedding_validation import AS_MANY_AS_FIT

# As Text Embeddings Inference writes it, `Left` too.
CutSide = Annotated[Side, BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)]


def json_numbers(vector: bytes) -> bytes:
    """Return little-endian float32 numbers as a JSON array, each in its shortest exact form."""
    import numpy

    return orjson.dumps(numpy.frombuffer(vector, "<f4"), option=orjson.OPT_SERIALIZE_NUMPY)


def json_base64(vector: bytes) -> bytes:
    """Return little-endian float32 numbers as base64 in a JSON string."""
    return b'"' + b64encode(vector) + b'"'


def json_bits(vector: bytes, *, signed: bool) -> bytes:
    """Return a bit for each number, 0 if it is negative, as a JSON array of bytes; `signed` moves them to -128..127."""
    import numpy

    packed = numpy.packbits(numpy.frombuffer(vector, "<f4") >= 0)
    return orjson.dumps((packed ^ 128).view("i1") if signed else packed, option=orjson.OPT_SERIALIZE_NUMPY)


def json_number(score: bytes) -> bytes:
    """Return a little-endian float32 number as JSON."""
    return json_numbers(score)[1:-1]


def sigmoid(score: bytes) -> bytes:
    """Return the sigmoid of a little-endian float32 number, in the same form."""
    (number,) = struct.unpack("<f", score)
    power = math.exp(-abs(number))  # never overflows
    return struct.pack("<f", (1 if number >= 0 else power) / (1 + power))


def direction(vector: bytes) -> bytes:
    """Return a vector of little-endian float32 numbers with length 1, as float64; one without a direction stays 0."""
    import numpy

    numbers = numpy.frombuffer(vector, "<f4").astype("f8")
    length = numpy.linalg.norm(numbers)
    return bytes((numbers / length if length else numbers).data)


def cosines(directions: Sequence[bytes], pairs: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return the cosine of the angle between the vectors of each pair, given as places, as little-endian float32."""
    import numpy

    vectors = [numpy.frombuffer(each, "f8") for each in directions]
    return [struct.pack("<f", vectors[first] @ vectors[second]) for first, second in pairs]


def scores_of(
    pairs: Iterable[tuple[str, str]], name: str, *, truncates: bool | None, side: Side | None
) -> tuple[EmbeddingRequest, ...]:
    """Return a request for the model's own score of each pair; `name` is the client's name of the pairs."""
    most = AS_MANY_AS_FIT if truncates else None
    return tuple(
        EmbeddingRequest(text, f"{name}.{index}", normalize=False, truncate=most, truncation_side=side, pair=other)
        for index, (text, other) in enumerate(pairs)
    )
