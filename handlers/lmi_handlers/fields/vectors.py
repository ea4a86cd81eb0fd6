"""Vectors in JSON."""

import orjson


def json_numbers(vector: bytes) -> bytes:
    """Return little-endian float32 numbers as a JSON array, each in its shortest exact form."""
    import numpy

    return orjson.dumps(numpy.frombuffer(vector, "<f4"), option=orjson.OPT_SERIALIZE_NUMPY)
