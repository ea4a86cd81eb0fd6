import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.selection import gguf_file, useless

NEEDED = [
    "config.json",
    "model-00001-of-00002.safetensors",
    "tokenizer.json",
    "training_args.bin",
    "1_Pooling/config.json",
]
OTHERS = [
    "pytorch_model-00001-of-00002.bin",
    "pytorch_model.bin.index.json",
    "consolidated.00.pth",
    "tf_model.h5",
    "flax_model.msgpack",
    "rust_model.ot",
    "model.onnx",
    "model.Q4_K_M.gguf",
    "onnx/model.onnx_data",
    "original/consolidated.00.pth",
]


def test_other_formats_beside_safetensors() -> None:
    assert useless([*NEEDED, *OTHERS]) == set(OTHERS)


def test_without_safetensors_everything_is_needed() -> None:
    assert useless(["config.json", *OTHERS]) == set()


def test_each_folder_counts_for_itself() -> None:
    paths = ["adapters/a/adapter_model.safetensors", "pytorch_model.bin", "sub/pytorch_model.bin", "original/x"]
    assert useless(["config.json", *paths]) == set()


def test_folders_of_others_belong_to_models() -> None:
    assert useless(["data.safetensors", "original/notes.txt"]) == set()


def test_what_a_script_may_read_is_kept() -> None:
    assert useless(["config.json", "model.safetensors", "heads.bin", "classifier.pt", "voices.pth"]) == set()


@pytest.mark.parametrize(
    ("source", "paths", "expected"),
    [
        ("o/n", ["a-Q8_0.gguf", "a-Q4_K_M.gguf", "a-IQ4_K_M.gguf", "a-Q4_K_M_L.gguf"], "a-Q4_K_M.gguf"),
        ("o/n", ["a.q8_0.gguf", "a.q4_0.gguf"], "a.q8_0.gguf"),
        ("o/n", ["a.GGUF", "mmproj-a-Q8_0.gguf", "sub/a.imatrix.gguf", "sub/lora.safetensors"], "a.GGUF"),
        ("o/n", ["a.gguf", "model.safetensors"], None),
        ("o/n", ["a.gguf", "pytorch_model.bin"], None),
        ("o/n", ["mmproj.gguf"], None),
        ("o/n:q4_0", ["a-Q4_0.gguf", "a-Q4_K_M.gguf", "model.safetensors"], "a-Q4_0.gguf"),
        ("o/n:F16", ["a-BF16.gguf", "F16/a.gguf"], "F16/a.gguf"),
        ("o/n:b-Q8_0.gguf", ["a-Q8_0.gguf", "b-Q8_0.gguf"], "b-Q8_0.gguf"),
    ],
)
def test_gguf_file_as_llama_cpp_chooses_it(source: str, paths: list[str], expected: str | None) -> None:
    assert gguf_file(RemoteModel(source), paths) == expected


@pytest.mark.parametrize(
    ("source", "paths", "fault"),
    [
        ("o/n", ["a-Q4_0.gguf", "a-Q5_0.gguf"], "as o/n:QUANTIZATION, or :FILE. There are: a-Q4_0.gguf, a-Q5_0.gguf"),
        ("o/n", ["a-Q8_0.gguf", "b-Q8_0.gguf"], "There are: a-Q8_0.gguf, b-Q8_0.gguf"),
        ("o/n:Q6_K", ["a-Q8_0.gguf"], "There are: a-Q8_0.gguf"),
        ("o/n:Q6_K", ["model.safetensors"], "There are: none"),
        ("o/n", ["a-Q4_K_M-00001-of-00002.gguf", "a-Q4_K_M-00002-of-00002.gguf"], "in several files is not supported"),
    ],
)
def test_gguf_files_without_a_choice(source: str, paths: list[str], fault: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        gguf_file(RemoteModel(source), paths)
    assert raised.value.message.startswith(f"{source}: ")
    assert fault in raised.value.message
