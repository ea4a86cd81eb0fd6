"""Conversion between content types and Python values: `djl_python.encode_decode`."""

import csv
import io
from typing import Any

from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output


def decode(inputs: Input, content_type: str | None, key: str | None = None, require_csv_headers: bool = True) -> Any:
    """Return JSON unchanged, even if curl's `-d` labels it a form; any other type as `{"inputs": ...}`."""
    kind = (content_type or "application/json").partition(";")[0].strip().lower()
    if kind == "application/json":
        return inputs.get_as_json(key) if inputs.get_as_bytes(key) else {"inputs": ""}
    if kind == "text/csv":
        return decode_csv(inputs, require_csv_headers)
    if kind == "text/plain":
        return {"inputs": [inputs.get_as_string(key)]}
    if kind.startswith("image/"):
        return {"inputs": inputs.get_as_image(key)}
    if kind == "tensor/npz":
        return {"inputs": inputs.get_as_npz(key)}
    if kind in ("tensor/ndlist", "application/x-npy"):
        return {"inputs": inputs.get_as_numpy(key)}
    if kind == "application/x-www-form-urlencoded":
        text = inputs.get_as_string(key)
        if not text.lstrip().startswith("{"):
            return {"inputs": text}
        return inputs.get_as_json(key)
    return {"inputs": inputs.get_as_bytes(key)}


def decode_csv(inputs: Input, require_headers: bool = True) -> Any:
    """Return the column `inputs` of a table, or its rows; without headers, an array of numbers."""
    if not require_headers:
        import numpy

        numbers = numpy.genfromtxt(io.StringIO(inputs.get_as_string()), delimiter=",")
        if numpy.isnan(numbers).any():
            raise ValueError("the CSV must contain only numbers")
        return numbers
    rows = inputs.get_as_csv()
    columns = {name.lower() for name in rows[0]} if rows else set()
    if not any(wanted in name for name in columns for wanted in ("question", "context", "inputs")):
        raise ValueError("the first line of the CSV must name its columns: inputs, or question and context")
    return {"inputs": [row["inputs"] for row in rows] if "inputs" in rows[0] else rows}


def encode_csv(content: Any) -> str:
    """Return a header line with the column names, and a line for each object."""
    rows = content if isinstance(content, list) else list(content)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def encode(outputs: Output, prediction: Any, content_type: str | None, key: str | None = None) -> None:
    """Add the prediction to the outputs in the content type that the client accepts."""
    wanted = content_type or "application/json"
    if "application/json" in wanted or "*/*" in wanted:
        outputs.add_as_json(prediction, key=key).add_property("Content-Type", "application/json")
    elif "text/csv" in wanted:
        outputs.add_as_string(encode_csv(prediction), key=key).add_property("Content-Type", "text/csv")
    elif "tensor/npz" in wanted:
        outputs.add_as_npz(prediction, key=key).add_property("Content-Type", "tensor/npz")
    else:
        outputs.add_as_numpy(prediction, key=key).add_property("Content-Type", "tensor/ndlist")
