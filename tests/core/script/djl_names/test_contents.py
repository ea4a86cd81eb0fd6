"""Input, Output and the content types between them."""

import json
from datetime import date
from typing import Any

import numpy
import pytest

from lmi_core.script.djl_names.encode_decode import decode, encode
from lmi_core.script.djl_names.inputs import Input, batch_of
from lmi_core.script.djl_names.nd_list import from_nd_list, to_nd_list, to_npz
from lmi_core.script.djl_names.outputs import Output, stream_line
from lmi_core.script.djl_names.pair_list import PairList


def request(data: bytes, content_type: str | None = None) -> Input:
    found = Input()
    found.content.add("data", data)
    if content_type is not None:
        found.properties["Content-Type"] = content_type
    return found


@pytest.mark.parametrize("kind", ["float32", "float16", "int64", "uint8", "bool"])
def test_nd_list_there_and_back(kind: str) -> None:
    arrays = [numpy.arange(6).reshape(2, 3).astype(kind), numpy.array(5).astype(kind)]
    found = from_nd_list(to_nd_list(arrays))
    assert [(array.dtype.name, array.tolist()) for array in found] == [(kind, array.tolist()) for array in arrays]


def test_nd_list_of_big_endian_numbers_as_java_writes_them() -> None:
    data = to_nd_list([numpy.array([1.5], dtype="float32")])
    little, big = numpy.array([1.5], dtype="<f4").tobytes(), numpy.array([1.5], dtype=">f4").tobytes()
    assert from_nd_list(data.replace(b"<", b">").replace(little, big))[0].tolist() == [1.5]


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x01\x00\x04XXXX", to_nd_list([numpy.zeros(3)])[:-1]])
def test_broken_nd_list(data: bytes) -> None:
    with pytest.raises(ValueError, match="the body is not an NDList"):
        from_nd_list(data)


ARRAY = numpy.array([[1, 2]])


@pytest.mark.parametrize(
    ("data", "content_type", "value"),
    [
        (b'{"a": [1]}', "application/json; charset=utf-8", {"a": [1]}),
        (b'{"a": [1]}', None, {"a": [1]}),
        (b"", None, {"inputs": ""}),
        (b"inputs,x\nhello,1\n", "text/csv", {"inputs": ["hello"]}),
        (b"question,context\nwho,me\n", "text/csv", {"inputs": [{"question": "who", "context": "me"}]}),
        (b"hello", "text/plain", {"inputs": ["hello"]}),
        (b"a=1", "application/x-www-form-urlencoded", {"inputs": "a=1"}),
        (b' {"a": [1]}', "application/x-www-form-urlencoded", {"a": [1]}),  # as curl -d sends it
        (b"\x00\x01", "audio/wav", {"inputs": b"\x00\x01"}),
        (b"\x00\x01", "application/octet-stream", {"inputs": b"\x00\x01"}),
    ],
)
def test_decode(data: bytes, content_type: str | None, value: Any) -> None:
    assert decode(request(data, content_type), content_type) == value


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (to_nd_list([ARRAY]), "tensor/ndlist"),
        (to_npz([ARRAY]), "tensor/npz"),
        (to_npz([ARRAY]), "tensor/ndlist"),
        (to_nd_list([ARRAY]), "application/x-npy"),
    ],
)
def test_decode_arrays(data: bytes, content_type: str) -> None:
    (array,) = decode(request(data, content_type), content_type)["inputs"]
    assert array.tolist() == [[1, 2]]


def test_decode_csv_of_numbers() -> None:
    numbers = decode(request(b"1,2\n3,4\n"), "text/csv", require_csv_headers=False)
    assert numbers.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ValueError, match="only numbers"):
        decode(request(b"1,a\n"), "text/csv", require_csv_headers=False)
    with pytest.raises(ValueError, match="must name its columns"):
        decode(request(b"a,b\n1,2\n"), "text/csv")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        ("text/csv", "text/csv"),
        ("tensor/npz", "tensor/npz"),
        ("tensor/ndlist", "tensor/ndlist"),
    ],
)
def test_encode_and_read_again(accept: str | None, content_type: str) -> None:
    value: Any = [ARRAY] if content_type.startswith("tensor") else [{"inputs": "a", "n": 1}]
    output = Output()
    encode(output, value, accept)
    assert output.content_type == content_type
    sent = request(output.content.value_at(0), content_type)
    if content_type == "application/json":
        assert sent.get_data() == value
    elif content_type == "text/csv":
        assert sent.get_as_csv() == [{"inputs": "a", "n": "1"}]
    else:
        assert sent.get_data()[0].tolist() == [[1, 2]]


def test_properties_in_any_case() -> None:
    found = request(b"a", "text/plain")
    assert (found.get_property("content-type"), found.get_property("missing")) == ("text/plain", None)
    assert (found.get_data(), found.is_empty(), Input().is_empty(), Input().get_data()) == ("a", False, True, None)


def test_content_by_name() -> None:
    found = request(b"1")
    found.content.add("adapter", b"french")
    assert (found.contains_key("adapter"), found.contains_key("other")) == (True, False)
    assert (found.get_as_string("adapter"), found.get_as_string()) == ("french", "1")
    with pytest.raises(KeyError, match=r"the request has no content `other`. It has: data, adapter"):
        found.get_as_bytes("other")


def test_batch() -> None:
    batch = batch_of([request(b"1", "text/plain"), request(b"2")])
    assert (batch.is_batch(), batch.get_batch_size(), batch.get_property("batch_size")) == (True, 2, "2")
    assert [each.get_as_string() for each in batch.get_batches()] == ["1", "2"]
    assert batch.get_content().get_keys() == ["batch_000.data", "batch_001.data"]
    assert batch.get_property("batch_000.content-type") == "text/plain"
    alone = request(b"1")
    assert (alone.is_batch(), alone.get_batch_size(), alone.get_batches()) == (False, 1, [alone])
    assert (batch_of([alone]).is_batch(), batch_of([alone]).get_batches()) == (True, [alone])


def test_batch_that_a_script_puts_together() -> None:
    batch = Input()
    batch.properties = {"batch_size": "2", "batch_001.Content-Type": "text/plain"}
    batch.content.add("batch_001.data", b"second")
    batch.content.add("batch_000.data", b"first")
    assert [each.get_as_string() for each in batch.get_batches()] == ["first", "second"]
    assert [each.get_property("content-type") for each in batch.get_batches()] == [None, "text/plain"]


@pytest.mark.parametrize(
    ("value", "data", "content_type"),
    [
        ("text", b"text", "text/plain; charset=utf-8"),
        (b"\x00", b"\x00", "application/octet-stream"),
        (bytearray(b"\x00"), b"\x00", "application/octet-stream"),
        ([1], b"[\n  1\n]", "application/json"),
    ],
)
def test_add(value: Any, data: bytes, content_type: str) -> None:
    output = Output().add(value)
    assert (output.content.value_at(0), output.content_type) == (data, content_type)
    assert output.add_property("Content-Type", "x/y").content_type == "x/y"


def test_json_of_numbers_that_are_numpys() -> None:
    value = {"a": numpy.float32(1.5), "b": numpy.arange(2), "c": date(2024, 1, 2), "d": "ü"}
    data = Output().add_as_json(value).content.value_at(0)
    assert json.loads(data) == {"a": 1.5, "b": [0, 1], "c": "2024-01-02", "d": "ü"}
    with pytest.raises(TypeError, match="set cannot be written as JSON"):
        Output().add_as_json({1})


def test_contents_of_a_batch() -> None:
    output = Output().add("a", batch_index=0).add("b", key="other", batch_index=1)
    output.add_as_string("c", batch_index=2).add("d", key=4)  # type: ignore[arg-type]
    assert output.content.get_keys() == ["batch_000.data", "batch_001.other", "batch_002.data", "4"]


def test_piece_of_a_batch_says_nothing_of_the_others() -> None:
    failed = {"data": "", "last": True, "code": 418, "error": "no"}
    assert Output().add(Output.binary_encode(failed)).code == 418
    output = Output().add(Output.binary_encode(failed), batch_index=1)
    assert (output.code, output.content.value_at(0).fields) == (200, failed)
    assert Output().add(Output.binary_encode(failed), key="batch_001.data").code == 200


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"a": 1}, b'{"outputs":{"a":1}}\n'),
        (["x", "y"], b'{"outputs":["x","y"]}\n'),
        ("x", b'{"outputs":"x"}\n'),
        (b"x", b"x"),
    ],
)
def test_stream_line(item: Any, line: bytes) -> None:
    assert stream_line(item) == line
    assert Output().add_stream_content(iter([item])).stream_chunk(item) == line
    assert Output().add_stream_content(iter([]), output_formatter=None).stream_chunk("raw") == b"raw"


def test_finalize_is_called_once() -> None:
    output = Output().finalize(lambda *numbers: sum(numbers), 1, 2, 3)
    assert (output.execute_finalize(), output.execute_finalize()) == (6, None)


def test_pair_list() -> None:
    pairs = PairList(keys=["a"], values=[1], pair_list=[("b", 2)], pair_map={"c": 3})
    pairs.add("a", 4)
    pairs.add(value=0, index=0)
    pairs.add(pair=("d", 5))
    assert list(zip(pairs.get_keys(), pairs.get_values(), strict=True)) == [
        (None, 0),
        ("a", 1),
        ("b", 2),
        ("c", 3),
        ("a", 4),
        ("d", 5),
    ]
    assert (pairs.get("a"), pairs.get("z"), pairs.size(), pairs.is_empty()) == (1, None, 6, False)
    assert (pairs.key_at(1), pairs.value_at(1)) == ("a", 1)
    with pytest.raises(ValueError, match="1 keys and 2 values"):
        PairList(["a"], [1, 2])
