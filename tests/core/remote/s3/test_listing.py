import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.remote.s3.download import StoredObject, file_path


def stored(path: str, size: int = 1, etag: str = "e", modified: str = "now") -> StoredObject:
    return StoredObject(path, f"folder/{path}", size, etag, modified)


def test_path_below_the_folder() -> None:
    assert file_path("a/b/c/d.json", "a/b/") == "c/d.json"


@pytest.mark.parametrize("key", ["f/../x", "f/a/../../x", "f/..", "f//etc/passwd", "f/./x", "f/a//b", "f/a\0b"])
def test_key_that_leaves_the_folder(key: str) -> None:
    with pytest.raises(
        ConfigurationError, match="is not a valid file path within the folder: rename or delete that object"
    ):
        file_path(key, "f/")


@pytest.mark.parametrize(
    "changed", [stored("a", size=2), stored("a", etag="f"), stored("a", modified="later"), stored("b")]
)
def test_any_change_is_another_object(changed: StoredObject) -> None:
    assert changed.identity != stored("a").identity
