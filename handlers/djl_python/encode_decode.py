"""Conversion of content types to and from Python objects."""

from lmi_core.script.djl_names.encode_decode import decode, decode_csv, encode, encode_csv

__all__ = ["decode", "decode_csv", "encode", "encode_csv"]
