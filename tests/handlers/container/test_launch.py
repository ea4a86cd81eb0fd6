from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Setting
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.launch import BASE, HOME, Launch, read_launch
from lmi_handlers.container.search import NOTHING, Arguments, PlacedModel
from tests.conftest import ModelDirectory
from tests.core.remote.archives.packing import tar_of, zip_of

SCRIPTED = {"serving.properties": "option.rolling_batch=scripted\n"}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(model_dir: ModelDirectory) -> Path:
    """A folder of the models a and b."""
    model_dir(SCRIPTED, "store/b")
    return model_dir(SCRIPTED, "store/a").parent


class Container:
    """The two folders that containers have, which may be missing."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "ml"
        self.home = folder / "djl"
        self.model = self.base / "model"

    def launch(self, *models: object, environment: dict[str, str] | None = None, **arguments: object) -> Launch:
        given = Arguments(tuple(map(str, models)), **arguments)  # type: ignore[arg-type]
        return read_launch(given, environment or {}, self.base, self.home)

    def error(self, *models: object, environment: dict[str, str] | None = None, **arguments: object) -> str:
        with pytest.raises(ConfigurationError) as raised:
            self.launch(*models, environment=environment, **arguments)
        return raised.value.message

    def write_model(self, file: str = "serving.properties") -> None:
        path = self.model / file
        path.parent.mkdir(parents=True)
        path.write_text(SCRIPTED["serving.properties"])

    def write_config(self, text: str, place: str = "conf/config.properties") -> Path:
        path = self.home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


def named(launch: Launch) -> dict[str, Path]:
    return {model.name: model.directory for model in launch.models}


def hosts(launch: Launch) -> tuple[str, str]:
    return launch.address.host.value, launch.address.host.source


def test_a_model_where_sagemaker_puts_it(container: Container) -> None:
    container.write_model()
    launch = container.launch()
    assert launch.models == (PlacedModel("model", container.model, str(container.model)),)
    assert hosts(launch) == ("0.0.0.0", str(container.model))
    assert launch.warnings == ()


def test_a_store_where_sagemaker_puts_models(container: Container) -> None:
    container.write_model("llama/serving.properties")
    container.write_model("mistral/config.json")
    assert named(container.launch()) == {name: container.model / name for name in ("llama", "mistral")}


def test_another_base(container: Container, tmp_path: Path) -> None:
    (tmp_path / "other" / "model").mkdir(parents=True)
    environment = {"SAGEMAKER_BASE_DIR": str(tmp_path / "other"), "OPTION_MODEL_ID": "gpt2"}
    assert named(container.launch(environment=environment)) == {"model": tmp_path / "other" / "model"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"HF_MODEL_ID": "org/Llama-3.1"}, "org_Llama_3_1"),
        ({"HF_MODEL_ID": "s3://bucket/models/llama/"}, "llama"),
        ({"OPTION_MODEL_ID": "org/llama"}, "model"),
        ({"HF_MODEL_ID": "org/a", "OPTION_MODEL_ID": "org/b"}, "org_a"),
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_nothing_but_environment(container: Container, environment: dict[str, str], name: str, exists: bool) -> None:
    if exists:
        (container.model / "adapters" / "french").mkdir(parents=True)
    launch = container.launch(environment=environment)
    assert named(launch) == {name: container.model}
    assert hosts(launch)[0] == ("0.0.0.0" if exists else "127.0.0.1")


def test_a_model_id_that_is_a_folder_gives_its_name(container: Container, store: Path) -> None:
    assert named(container.launch(environment={"HF_MODEL_ID": f"{store}/a/"})) == {"a": container.model}


def test_nothing_at_all(container: Container) -> None:
    assert container.error() == f"{NOTHING}. {container.model}, where SageMaker puts models, does not exist"
    container.model.mkdir(parents=True)
    assert container.error() == f"{NOTHING}. {container.model}, where SageMaker puts models, contains none"
    assert container.launch(environment={"SAGEMAKER_MULTI_MODEL": "true"}).models == ()


def test_the_command_line_comes_first(container: Container, store: Path, model_dir: ModelDirectory) -> None:
    container.write_model()
    other = model_dir(SCRIPTED, "other")
    environment = {"SERVING_LOAD_MODELS": f"x={other}", "SERVING_MODEL_STORE": str(container.model)}
    assert named(container.launch(environment=environment)) == {"x": other}
    assert hosts(container.launch(environment=environment))[0] == "0.0.0.0"
    for launch in (
        container.launch(store, environment=environment),
        container.launch(environment=environment, model_store=str(store)),
        container.launch(environment=environment, items=(f"{store}",)),
        container.launch(environment=environment, items=("all",), model_store=str(store)),
    ):
        assert named(launch) == {"a": store / "a", "b": store / "b"}
        assert hosts(launch) == ("127.0.0.1", "default")
        assert launch.warnings == (
            f"environment SERVING_LOAD_MODELS: load_models=x={other} has no effect: the command line names the models",
            f"environment SERVING_MODEL_STORE: model_store={container.model} has no effect: the command line names the"
            " models",
        )


def test_a_store_beside_models(container: Container, store: Path) -> None:
    launch = container.launch(store / "a", model_store=str(store))
    assert named(launch) == {"a": store / "a"}
    assert launch.warnings == (f"-s {store} has no effect: the command line names the models",)


@pytest.mark.parametrize("listed", ["ALL", "all", None])
def test_all_models_of_a_store(container: Container, store: Path, listed: str | None) -> None:
    environment = {"SERVING_MODEL_STORE": str(store)} | ({"SERVING_LOAD_MODELS": listed} if listed else {})
    assert named(container.launch(environment=environment)) == {"a": store / "a", "b": store / "b"}


def test_all_on_the_command_line_is_the_given_store(container: Container, store: Path) -> None:
    environment = {"SERVING_MODEL_STORE": str(store), "SERVING_LOAD_MODELS": "x=nowhere"}
    assert list(named(container.launch(environment=environment, items=("ALL",)))) == ["a", "b"]


def test_no_models(container: Container) -> None:
    container.write_model()
    assert container.launch(environment={"SERVING_LOAD_MODELS": "none"}).models == ()
    assert container.launch(environment={"SERVING_LOAD_MODELS": "none"}, items=("ALL",)).models != ()


def test_models_from_several_places(container: Container, store: Path, model_dir: ModelDirectory) -> None:
    other = model_dir(SCRIPTED, "other")
    launch = container.launch(f"x={other}", store, items=(f"[y:v2:Python:0]=file:{other},z={other}",))
    assert [(model.name, model.version, model.directory) for model in launch.models] == [
        ("x", None, other),
        ("a", None, store / "a"),
        ("b", None, store / "b"),
        ("y", "v2", other),
        ("z", None, other),
    ]
    assert [model.overrides for model in launch.models if model.overrides] == [(Setting("load_on_devices", "0", "-m"),)]


def test_two_models_of_one_name(container: Container, store: Path) -> None:
    a, b = store / "a", store / "b"
    assert container.error(f"x={a}", f"x={b}") == f"two models are named x: {a} and {b}. Name them: NAME=DIR"
    assert container.error(items=(f"x:v1={a},x:v1={b}",)) == (
        f"-m: two models are named x in version v1: {a} and {b}. Name them: NAME=DIR"
    )


def test_versions_of_one_model(container: Container, store: Path) -> None:
    launch = container.launch(items=(f"x:v1={store / 'a'},x:v2={store / 'b'}",))
    assert [(model.name, model.version) for model in launch.models] == [("x", "v1"), ("x", "v2")]


def test_room_for_others(container: Container) -> None:
    container.write_model()
    assert not container.launch().evicts_models
    assert container.launch(environment={"SERVING_EVICT_MODELS": "true"}).evicts_models


def test_a_url_names_its_model(container: Container, store: Path) -> None:
    (store / "b").rename(store / "one model")
    (store / "link").symlink_to(store / "a")
    urls = (f"file://{store}/one%20model/", f"file:{store}/link", str(store / "a"))
    assert list(named(container.launch(items=urls))) == [
        "one model",
        "link",
        "a",
    ]


def test_stores_that_are_no_folders_of_this_host(container: Container) -> None:
    message = "hdfs://bucket/models: models cannot be fetched from hdfs://"
    assert container.error(model_store="hdfs://bucket/models").startswith(f"-s: {message}")
    environment = {"SERVING_MODEL_STORE": "hdfs://bucket/models"}
    assert container.error(environment=environment).startswith(f"environment SERVING_MODEL_STORE: {message}")


def test_where_containers_have_models() -> None:
    assert (Path("/opt/ml"), Path("/opt/djl")) == (BASE, HOME)


def test_a_name_for_a_folder_of_models(container: Container, store: Path) -> None:
    assert container.error(f"x={store}") == (
        f"x={store} is a folder of several models (a, b): give each model a name, or remove the folder's name"
    )


def test_a_named_folder_whose_model_the_environment_names(container: Container, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    environment = {"HF_MODEL_ID": "org/name", "SERVING_LOAD_MODELS": f"test::MPI={tmp_path / 'empty'}"}
    assert named(container.launch(environment=environment)) == {"test": tmp_path / "empty"}


def test_what_a_store_has_beside_models(container: Container, store: Path) -> None:
    for folder in ("notes", ".cache", "__MACOSX"):
        (store / folder).mkdir()
    (store / "readme.txt").touch()
    (store / "c.tar.gz").write_bytes(tar_of({"data.csv": b"1"}))
    (store / "a.zip").write_bytes(zip_of({"config.json": b"{}"}))
    assert container.launch(store).warnings == (
        f"{store}/notes is not served: it contains no model",
        f"{store}/a.zip is not served: {store}/a is the model of that name",
        f"{store}/c.tar.gz is not served: it contains no model",
    )


def test_archives_of_a_store(container: Container, store: Path, tmp_path: Path) -> None:
    files = {name: text.encode() for name, text in SCRIPTED.items()}
    (store / "c.tar.gz").write_bytes(tar_of(files))
    (store / "d.zip").write_bytes(zip_of({f"top/{name}": content for name, content in files.items()}))
    assert list(named(container.launch(model_store=str(store)))) == ["a", "b", "c", "d"]
    only = tmp_path / "only"
    only.mkdir()
    (store / "c.tar.gz").rename(only / "c.tar.gz")
    assert list(named(container.launch(environment={"SERVING_MODEL_STORE": str(only)}))) == ["c"]
    (only / "c.tar.gz").write_bytes(tar_of({"data.csv": b"1"}))
    assert container.error(only) == f"{only} contains no model: its archives have none at the top level"
    assert named(container.launch(only, environment={"HF_MODEL_ID": "org/name"})) == {"only": only}


def test_archives_by_path_and_url(container: Container, tmp_path: Path) -> None:
    archive = tmp_path / "my model.tar.gz"
    archive.write_bytes(tar_of({name: text.encode() for name, text in SCRIPTED.items()}))
    urls = (str(archive), f"file://{tmp_path}/my%20model.tar.gz", f"other:v1={archive}")
    for url, name in zip(urls, ("my model", "my model", "other"), strict=True):
        (model,) = container.launch(items=(url,)).models
        assert (model.name, (model.directory / "serving.properties").is_file()) == (name, True)
    for ending in ("7z", "tar.xz"):
        (tmp_path / f"m.{ending}").touch()
        assert container.error(tmp_path / f"m.{ending}") == (
            f"{tmp_path}/m.{ending} is an archive of a kind that is not supported: pack it as .zip, .tar.gz or .tar"
        )


@pytest.mark.parametrize("begin", ["", "file://"])
def test_a_model_id_for_every_model_of_a_store(container: Container, store: Path, begin: str) -> None:
    told = f"environment HF_MODEL_ID: every model of {store} that has no option.model_id of its own loads org/name"
    environment = {"HF_MODEL_ID": "org/name"}
    for launch in (
        container.launch(model_store=f"{begin}{store}", environment=environment),
        container.launch(environment=environment | {"SERVING_MODEL_STORE": f"{begin}{store}"}),
    ):
        assert list(named(launch)) == ["a", "b"]
        assert launch.warnings == (told,)


def test_a_store_that_does_not_exist(container: Container, tmp_path: Path) -> None:
    store = tmp_path / "nowhere"
    assert container.error(environment={"SERVING_MODEL_STORE": str(store)}).startswith(
        f"environment SERVING_MODEL_STORE: {store} does not exist: give the path of a model directory"
    )
    launch = container.launch(environment={"SERVING_MODEL_STORE": str(store), "HF_MODEL_ID": "org/name"})
    assert named(launch) == {"org_name": store}
    assert launch.warnings == (
        f"environment SERVING_MODEL_STORE: {store} does not exist: only the model that the environment names is served",
    )


@pytest.mark.parametrize("place", ["conf/config.properties", "config.properties"])
def test_the_file_in_the_home_of_the_server(container: Container, store: Path, place: str) -> None:
    (container.home / "models").mkdir(parents=True)
    store.rename(container.home / "models" / "store")
    path = container.write_config("model_store=models/store\nbatch_size=3\ninference_address=http://h:1\n", place)
    launch = container.launch()
    assert launch.config_file == path
    assert list(named(launch)) == ["a", "b"]
    assert launch.address.port == ("port", "1", f"{path}:3")
    assert [given.name for given in launch.settings.for_models] == ["batch_size"]


def test_a_file_of_the_command_line_comes_first(container: Container, store: Path, tmp_path: Path) -> None:
    container.write_config("model_store=/nowhere\n")
    own = tmp_path / "own.properties"
    own.write_text(f"model_store={store}\n")
    assert list(named(container.launch(config_file=own))) == ["a", "b"]
    missing = tmp_path / "missing.properties"
    assert container.error(config_file=missing).startswith(
        f"{missing} cannot be read as a config.properties: No such file or directory"
    )


def test_a_home_of_ones_own(container: Container, store: Path, tmp_path: Path) -> None:
    container.write_config("model_store=/nowhere\n")
    Container(tmp_path / "own").write_config(f"model_store={store}\n", "config.properties")
    launch = container.launch(environment={"MODEL_SERVER_HOME": str(tmp_path / "own" / "djl")})
    assert list(named(launch)) == ["a", "b"]
    launch = container.launch(store, environment={"MODEL_SERVER_HOME": "/nowhere"})
    assert launch.warnings == ("environment MODEL_SERVER_HOME has no effect: /nowhere does not exist",)


def test_what_cannot_be_left_out_ends_the_start(container: Container, store: Path) -> None:
    assert container.error(store, environment={"SAGEMAKER_SECURE_MODE": "true"}) == (
        "environment SAGEMAKER_SECURE_MODE is refused: the checks that it asks for are not supported. Given: true"
    )
    path = container.write_config("load_workflows=a.json\n")
    assert container.error(store) == (
        f"{path}:1: load_workflows is refused: workflows are not supported: name their models in load_models. Given: "
        "a.json"
    )


def test_options_of_the_command_line(container: Container, store: Path) -> None:
    launch = container.launch(store, options=("option.dtype=bf16", "batch_size = 2 "))
    keys = (("option.dtype", "bf16"), ("batch_size", "2"))
    expected = tuple(Setting(key, value, COMMAND_LINE) for key, value in keys)
    assert [model.overrides for model in launch.models] == [expected, expected]
    for option in ("option.dtype", "=bf16", "option.dtype="):
        message = f"an option needs a key and its value, such as option.dtype=bf16. Given: {option}"
        assert container.error(store, options=(option,)) == message


def test_models_of_the_hub(container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = container.launch("org/name", "mine=org/name", options=("option.served_model_name=other",))
    first, second = launch.models
    assert (first.name, second.name, first.directory) == ("org_name", "mine", Path("org/name"))
    expected = [("option.model_id", "org/name"), ("option.served_model_name", "org/name")]
    assert [(each.name, each.value) for each in first.overrides] == [*expected, ("option.served_model_name", "other")]
    (quantized,) = container.launch("org/name:Q4_K_M").models
    assert (quantized.name, quantized.overrides[0].value) == ("org_name_Q4_K_M", "org/name:Q4_K_M")
    assert container.error("name").startswith("name does not exist: give the path of a model directory or of an")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "hello").mkdir(parents=True)
    assert container.launch("org/name").warnings == ()
    (warning,) = container.launch("model/hello").warnings
    assert warning.endswith("so it is a model of the hub. Did you mean models/hello?")
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").touch()
    (local,) = container.launch("org/name").models
    assert (local.name, local.overrides) == ("name", ())


@pytest.mark.parametrize(
    ("asked", "environment", "expected"),
    [
        (None, {}, True),
        (False, {}, False),
        (None, {"SERVING_PAGES": "false"}, False),
        (None, {"SERVING_PAGES": "TRUE"}, True),
        (True, {"SERVING_PAGES": "false"}, True),
        (False, {"SERVING_PAGES": "true"}, False),
    ],
)
def test_pages(
    container: Container, store: Path, asked: bool | None, environment: dict[str, str], expected: bool
) -> None:
    assert container.launch(store, environment=environment, pages=asked).pages is expected


def test_pages_neither_on_nor_off(container: Container, store: Path) -> None:
    message = container.error(store, environment={"SERVING_PAGES": "no"})
    assert message == "environment SERVING_PAGES: pages must be true or false. Given: no"


def test_which_of_several_gguf_files_is_the_model_must_be_said(container: Container, tmp_path: Path) -> None:
    for name in ("Q4_0.gguf", "Q8_0.gguf"):
        (tmp_path / name).touch()
    assert f"give the path of a file in it, such as {tmp_path / 'Q4_0.gguf'}" in container.error(tmp_path)
