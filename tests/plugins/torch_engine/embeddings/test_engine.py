"""Vectors are those of transformers' hidden states, alone and in company."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError, GenerationFailed
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.embeddings.loading import embedding_engine_of, load_embedding_engine
from lmi_plugins.torch_engine.embeddings.recipe import MODES
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob, EmbeddingOptions
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from tests.plugins.torch_engine.embeddings.encoders import (
    DECODERS,
    ENCODERS,
    TEXTS,
    numbers,
    reference_states,
    reference_vector,
    save_decoder,
    save_encoder,
    save_recipe,
    unit,
)
from tests.plugins.torch_engine.tiny_models import make_engine

CLOSE: dict[str, Any] = {"abs": 1e-5, "rel": 1e-5}
Directory = Callable[[str], Path]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Return a function that makes the directory of a tiny model at its first use."""
    base = tmp_path_factory.mktemp("embeddings")

    def make(architecture: str) -> Path:
        folder = base / architecture
        if not folder.exists():
            (save_encoder if architecture in ENCODERS else save_decoder)(folder, architecture)
        return folder

    return make


def load(folder: Path, **options: Any) -> EmbeddingEngine:
    embedding = EmbeddingOptions(**options)
    return load_embedding_engine(EngineOptions(str(folder), max_prefill_tokens=64, embedding=embedding))


def embed(engine: EmbeddingEngine, *inputs: EmbeddingInput) -> list[list[float]]:
    engine.add(EmbeddingJob("a", list(inputs)))
    found: dict[int, list[float]] = {}
    while engine.has_work:
        results = engine.step()
        assert not results.failures
        found |= {index: numbers(vector) for _, index, vector in results.vectors}
    return [found[index] for index in range(len(inputs))]


def prompts(folder: Path) -> list[list[int]]:
    tokenizer = HuggingFaceTokenizer.load(str(folder))
    return [tokenizer.encode(text) for text in TEXTS]


@pytest.mark.parametrize("architecture", ENCODERS)
def test_encoders(architecture: str, directory: Directory) -> None:
    folder, mode = directory(architecture), "mean" if architecture == "t5" else "cls"
    engine = load(folder)
    texts = prompts(folder)
    together = embed(engine, *map(EmbeddingInput, texts))
    for text, found in zip(texts, together, strict=True):
        expected = unit(reference_vector(reference_states(folder, text), mode))
        assert found == pytest.approx(expected, **CLOSE)
        (alone,) = embed(engine, EmbeddingInput(text))
        assert alone == pytest.approx(expected, **CLOSE)
    assert engine.model.size == 32


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "mamba"])
def test_decoders_that_make_vectors_only(architecture: str, directory: Directory) -> None:
    folder = directory(architecture)
    engine = load(folder)
    texts = prompts(folder)
    for text, found in zip(texts, embed(engine, *map(EmbeddingInput, texts)), strict=True):
        assert found == pytest.approx(unit(reference_states(folder, text)[-1]), **CLOSE)


@pytest.mark.parametrize("architecture", DECODERS)
def test_models_that_generate_too(architecture: str, directory: Directory) -> None:
    folder = directory(architecture)
    generation = make_engine(folder)
    last, mean = (
        embedding_engine_of(generation, EngineOptions(str(folder), embedding=embedding))
        for embedding in (EmbeddingOptions(), EmbeddingOptions(pooling="mean"))
    )
    assert last is not None
    assert mean is not None
    texts = prompts(folder)
    every = [embed(engine, *map(EmbeddingInput, texts)) for engine in (last, mean)]
    for text, of_last, of_mean in zip(texts, *every, strict=True):
        states = reference_states(folder, text)
        assert of_last == pytest.approx(unit(states[-1]), **CLOSE)
        assert of_mean == pytest.approx(unit(reference_vector(states, "mean")), **CLOSE)
        (alone,) = embed(last, EmbeddingInput(text))
        assert alone == pytest.approx(unit(states[-1]), **CLOSE)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling_by_option(mode: Any, normalize: bool, directory: Directory) -> None:
    folder = directory("bert")
    engine = load(folder, pooling=mode, normalize=normalize)
    texts = prompts(folder)
    for text, found in zip(texts, embed(engine, *map(EmbeddingInput, texts)), strict=True):
        expected = reference_vector(reference_states(folder, text), mode)
        assert found == pytest.approx(unit(expected) if normalize else expected.tolist(), **CLOSE)


@pytest.mark.parametrize("normalized", [True, False])
def test_sentence_transformers_files(normalized: bool, tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    save_recipe(tmp_path, {"pooling_mode_mean_tokens": True}, dense=16, normalized=normalized, length=20)
    engine = load(tmp_path)
    assert (engine.model.size, engine.model.max_length) == (16, 20)
    import torch
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "2_Dense" / "model.safetensors")
    texts = prompts(tmp_path)
    for text, found in zip(texts, embed(engine, *map(EmbeddingInput, texts)), strict=True):
        pooled = reference_vector(reference_states(tmp_path, text), "mean")
        expected = torch.tanh(weights["linear.weight"] @ pooled + weights["linear.bias"])
        assert found == pytest.approx(unit(expected) if normalized else expected.tolist(), **CLOSE)


def test_several_modes_one_after_the_other(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    save_recipe(tmp_path, {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, normalized=False)
    (text,) = prompts(tmp_path)[:1]
    (found,) = embed(load(tmp_path), EmbeddingInput(text))
    states = reference_states(tmp_path, text)
    assert found == pytest.approx([*states[0].tolist(), *states.mean(0).tolist()], **CLOSE)


def test_what_a_request_asks_for(directory: Directory) -> None:
    folder = directory("bert")
    engine = load(folder, any_dimensions=True)
    text = prompts(folder)[1]
    whole = reference_states(folder, text)[0]
    cut, plain, both = embed(
        engine,
        EmbeddingInput(text, dimensions=5),
        EmbeddingInput(text, normalize=False),
        EmbeddingInput(text, dimensions=5, normalize=False),
    )
    assert cut == pytest.approx(unit(whole[:5]), **CLOSE)
    assert plain == pytest.approx(whole.tolist(), **CLOSE)
    assert both == pytest.approx(whole[:5].tolist(), **CLOSE)


def test_mixed_requests_in_any_company(directory: Directory) -> None:
    folder = directory("xlm-roberta")
    engine = load(folder)
    choices = random.Random(0)
    texts = [choices.choices(range(4, 300), k=choices.randint(1, 64)) for _ in range(40)]
    for number in range(0, 40, 4):
        engine.add(EmbeddingJob(str(number), [EmbeddingInput(text) for text in texts[number : number + 4]]))
    found: dict[tuple[str, int], list[float]] = {}
    while engine.has_work:
        found |= {(name, index): numbers(vector) for name, index, vector in engine.step().vectors}
    assert len(found) == 40
    for place, text in enumerate(texts):
        expected = unit(reference_states(folder, text)[0])
        assert found[str(place // 4 * 4), place % 4] == pytest.approx(expected, **CLOSE)


def test_requests_take_turns(directory: Directory) -> None:
    engine = load(directory("bert"))
    engine.add(EmbeddingJob("many", [EmbeddingInput([5] * 30)] * 20))
    engine.add(EmbeddingJob("one", [EmbeddingInput([6] * 30)]))
    results = engine.step()
    assert [name for name, _, _ in results.vectors] == ["many", "one"], "64 tokens are two inputs"
    assert results.num_tokens == 60
    engine.abort("many")
    assert not engine.has_work


@pytest.mark.parametrize(
    ("architecture", "longest"), [("bert", 66), ("xlm-roberta", 64), ("mpnet", 64), ("llama", 128)]
)
def test_longest_input(architecture: str, longest: int, directory: Directory) -> None:
    engine = load(directory(architecture))
    assert engine.model.max_length == longest
    assert len(embed(engine, EmbeddingInput([5] * longest))) == 1


def test_failure_ends_the_requests_of_a_step_alone(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(directory("bert"))
    for name in ("a", "b", "c"):
        engine.add(EmbeddingJob(name, [EmbeddingInput([5] * 30)] * 2))
    with monkeypatch.context() as patch:
        patch.setattr(engine._embedder, "embed", lambda inputs: 1 / 0)
        failed = engine.step()
    assert failed.failures.keys() == {"a", "b"}
    assert all(isinstance(error, GenerationFailed) for error in failed.failures.values())
    assert [name for name, _, _ in engine.step().vectors] == ["c", "c"]
    assert not engine.has_work


def test_model_that_gives_no_numbers(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load(directory("bert"))
    engine.add(EmbeddingJob("a", [EmbeddingInput([5]), EmbeddingInput([6])]))
    engine.add(EmbeddingJob("b", [EmbeddingInput([7])]))
    monkeypatch.setattr(engine._embedder, "embed", lambda inputs: [None, b"\0" * 4, b"\0" * 4])
    results = engine.step()
    assert results.failures.keys() == {"a"}
    assert [name for name, _, _ in results.vectors] == ["b"]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({}, ()), ({"dimensions": [8, 16]}, (8, 16)), ({"any_dimensions": True}, None)],
)
def test_sizes_by_option(options: dict[str, Any], sizes: tuple[int, ...] | None, directory: Directory) -> None:
    assert load(directory("bert"), **options).model.dimensions == sizes


@pytest.mark.parametrize(
    ("member", "sizes"), [({"is_matryoshka": True}, None), ({"matryoshka_dimensions": [8, 16]}, (8, 16))]
)
def test_sizes_in_the_configuration(member: dict[str, Any], sizes: tuple[int, ...] | None, tmp_path: Path) -> None:
    import json

    save_encoder(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | member), encoding="utf-8")
    assert load(tmp_path).model.dimensions == sizes


def test_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no weights: "):
        load(tmp_path)


def test_recipe_that_cannot_be_followed(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    save_recipe(tmp_path, {"pooling_mode": "median"})
    with pytest.raises(ConfigurationError, match="the pooling median is unknown"):
        load(tmp_path)


def test_what_makes_no_vectors_still_generates(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_decoder(tmp_path, "llama")
    save_recipe(tmp_path, {"pooling_mode": "median"})
    generation = make_engine(tmp_path)
    assert embedding_engine_of(generation, EngineOptions(str(tmp_path))) is None
    assert "The model generates, but makes no embeddings: the pooling median is unknown" in caplog.text
