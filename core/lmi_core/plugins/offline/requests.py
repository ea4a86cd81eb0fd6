"""Inputs and outputs of a model function without a server: `djl_python.test_model`."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.nd_list import to_nd_list, to_npz
from lmi_core.script.djl_names.outputs import Output

TYPES = {
    ".json": "application/json",
    ".txt": "text/plain",
    ".csv": "text/csv",
    ".gif": "image/gif",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".ndlist": "tensor/ndlist",
    ".npz": "tensor/npz",
}


def create_request(input_files: Iterable[str], parameters: Iterable[str] | None = None) -> Input:
    """Create an Input from files or texts, each plain or after `name=`, and `name=value` properties."""
    request = _new_request("text/plain")
    for parameter in parameters or ():
        name, separator, value = parameter.partition("=")
        if not separator:
            raise ValueError(f"Invalid model parameter: {parameter}")
        request.properties[name] = value
    for index, given in enumerate(input_files):
        name, separator, value = given.partition("=")
        key, text = (name, value) if separator and name.isidentifier() else (None, given)
        data, kind = _content(text)
        request.content.add(key, data)
        if index == 0 or key == "data":
            request.properties["content-type"] = kind
    return request


def create_text_request(text: str, key: str | None = None) -> Input:
    return _new_request("text/plain", key, text.encode())


def create_json_request(body: Any, key: str | None = None) -> Input:
    return _new_request("application/json", key or "data", json.dumps(body).encode())


def create_numpy_request(list: Any, key: str | None = None) -> Input:
    """Create an Input from arrays, as a `tensor/ndlist`."""
    return _new_request("tensor/ndlist", key, to_nd_list(list))


def create_npz_request(list: Any, key: str | None = None) -> Input:
    """Create an Input from arrays, as an npz file."""
    return _new_request("tensor/npz", key, to_npz(list))


def extract_output_as_input(outputs: Output) -> Input:
    """Return an answer as an Input, to read its contents."""
    found = Input()
    found.properties = outputs.properties
    found.content = outputs.content
    return found


def extract_output_as_bytes(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_bytes(key)


def extract_output_as_string(outputs: Output, key: str | None = None) -> str:
    return extract_output_as_input(outputs).get_as_string(key)


def extract_output_as_numpy(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_numpy(key)


def extract_output_as_npz(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_npz(key)


def _content(text: str) -> tuple[bytes, str]:
    path = Path(text) if len(text) < 1024 else None
    if path is not None and path.is_file():
        return path.read_bytes(), TYPES.get(path.suffix, "application/octet-stream")
    is_object = text.startswith("{") and text.endswith("}")
    return text.encode(), "application/json" if is_object else "text/plain"


def _new_request(content_type: str, key: str | None = None, data: bytes | None = None) -> Input:
    request = Input()
    request.properties = {"device_id": "-1", "content-type": content_type}
    if data is not None:
        request.content.add(key, data)
    return request
