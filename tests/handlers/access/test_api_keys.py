"""API keys from a file and the environment: what a line may say, and what no message may."""

import hashlib
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.api_keys import ApiKeys, KeyLimits

DEFAULTS = KeyLimits(60, 2)


def keys_of(folder: Path, text: str) -> ApiKeys:
    file = folder / "keys"
    file.write_text(text)
    return ApiKeys(["from-variable"], file, DEFAULTS)


def test_lines(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"hashed key").hexdigest()
    keys = keys_of(
        tmp_path,
        f"""\
# the keys of our clients
ann sk-ann requests_per_minute=600

bob sk-bob= max_concurrent_requests=8 requests_per_minute=1
sk-nobody
carol sha256:{digest}
""",
    )
    assert keys.num_holders == 5
    found = {key: keys.find([key]) for key in ("from-variable", "sk-ann", "sk-bob=", "sk-nobody", "hashed key")}
    assert {key: (each.name, each.limits) for key, each in found.items() if each is not None} == {
        "from-variable": ("key-1", DEFAULTS),
        "sk-ann": ("ann", KeyLimits(600, 2)),
        "sk-bob=": ("bob", KeyLimits(1, 8)),
        "sk-nobody": ("line-5", DEFAULTS),
        "hashed key": ("carol", DEFAULTS),
    }


def holder_of(keys: ApiKeys, credential: str) -> str:
    found = keys.find([credential])
    assert found is not None
    return found.holder


def test_who_holds_a_key_does_not_depend_on_its_line(tmp_path: Path) -> None:
    """Otherwise the next key would get what belongs to one whose line has gone."""
    before = keys_of(tmp_path, "sk-first\nsk-second\nann sk-ann\n")
    after = keys_of(tmp_path, "sk-second\nann sk-new\n")
    assert holder_of(before, "sk-second") == holder_of(after, "sk-second") != holder_of(before, "sk-first")
    assert holder_of(before, "sk-ann") == holder_of(after, "sk-new") == "ann"
    assert "second" not in holder_of(after, "sk-second")


def test_a_client_with_two_keys(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "ann sk-old requests_per_minute=9\nann sk-new requests_per_minute=9\n")
    assert holder_of(keys, "sk-old") == holder_of(keys, "sk-new") == "ann"
    assert keys.num_holders == 2  # with the one of the variable


def test_limits_of_a_client_in_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("ann sk-new requests_per_minute=9\n")
    with pytest.raises(ConfigurationError, match="line 1: the limits of ann differ from those in api_keys, key 2"):
        ApiKeys(["bob sk-bob", "ann sk-old"], file)


@pytest.mark.parametrize("given", ["", "ann", "sk-an", "sk-ann ", f"sha256:{'0' * 64}", "SK-ANN", "\udcff", "sk-ann\0"])
def test_what_is_no_key(tmp_path: Path, given: str) -> None:
    assert keys_of(tmp_path, "ann sk-ann\n").find([given]) is None


def test_any_of_several_credentials_may_be_the_key(tmp_path: Path) -> None:
    found = keys_of(tmp_path, "ann sk-ann\n").find(["AWS4-HMAC-SHA256", "sk-ann", "other"])
    assert found is not None
    assert found.name == "ann"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ann sk-secret 600\n", "line 1: a line must be [NAME] KEY, and then requests_per_minute=NUMBER"),
        ("requests_per_minute=5\n", "Given: 0 words besides"),
        ("ann sk-secret request_per_minute=5\n", "this limit is not known. Did you mean `requests_per_minute`?"),
        ("sk-secret max_concurrent_request=5\n", "this limit is not known. Did you mean `max_concurrent_requests`?"),
        ("\nann sk-secret requests_per_minute=0\n", "line 2: requests_per_minute must be an integer from 1 to"),
        ("ann sk-secret max_concurrent_requests=many\n", "max_concurrent_requests must be an integer"),
        (
            "ann sk-secret\nbob sk-secret2\nann sk-secret3 requests_per_minute=5\n",
            "line 3: the limits of ann differ from those in api_keys_file {folder}/keys, line 1",
        ),
        ("ann sk-secret 600\nbob sk-secret2\nann sha256:secret\n", "line 1: a line must be [NAME] KEY"),
        ("ann sk-secret 600\nbob sk-secret2\nann sha256:secret\n", "line 3: sha256: must be followed by 64"),
        ("ann sha256:secret\n", "sha256: must be followed by 64 hexadecimal digits"),
    ],
)
def test_wrong_lines_are_told_without_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        keys_of(tmp_path, text)
    assert message.format(folder=tmp_path) in raised.value.message
    assert "secret" not in raised.value.message


LONG = "sk-" + 13 * "x"
SHORT = "the key has fewer than 16 characters, and may be guessed"


def test_short_keys_are_warned_about_without_the_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text(f"ann {LONG}\n{LONG}y\nbob {LONG[1:]} requests_per_minute=5\ncarol sha256:{64 * '0'}\n\nsecret\n")
    keys = ApiKeys([LONG[2:]], file)
    alone = f"{SHORT}: a single word in a line is the key itself, not the name of its holder"
    expected = [f"api_keys, key 1: {alone}", f"api_keys_file {file}, line 3: {SHORT}"]
    assert keys.warnings == [*expected, f"api_keys_file {file}, line 6: {alone}"]
    assert not caplog.messages  # the start writes them with its other warnings
    file.write_text(f"bob {LONG[1:]}\n")
    keys.reload()
    assert keys.warnings == [expected[0], f"api_keys_file {file}, line 1: {SHORT}"]
    assert caplog.messages == keys.warnings


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"api_keys_file .*missing cannot be read: No such file"):
        ApiKeys(file=tmp_path / "missing")


def test_no_key_is_shown(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "ann sk-secret\n")
    assert "sk-secret" not in repr([vars(keys), keys.find(["sk-secret"])])


def test_a_file_without_keys_admits_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "keys"
    file.write_text("# none yet\n")
    assert ApiKeys(file=file).find([""]) is None
    assert "has no API key: requests of clients are refused" in caplog.text


def test_a_file_that_has_changed(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "ann sk-ann\n")
    keys_of(tmp_path, "bob sk-bob\n")
    assert keys.find(["sk-bob"]) is None
    keys.reload()
    assert keys.find(["sk-ann"]) is None
    assert keys.find(["sk-bob"]) is not None
    keys_of(tmp_path, "carol sk-carol\n")
    (tmp_path / "keys").write_text("carol sk-carol too many words\n")
    with pytest.raises(ConfigurationError):
        keys.reload()
    assert keys.find(["sk-bob"]) is not None
