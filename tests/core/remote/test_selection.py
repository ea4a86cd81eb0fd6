from lmi_core.remote.selection import useless

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
