"""Scores of pairs of texts over HTTP, as transformers computes them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from lmi_core.errors import ConfigurationError
from lmi_core.serving_runtime import Note
from lmi_plugins.torch_engine.embeddings.loading import load_embedding_engine, score_recipe
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.worker.inspection import inspect_model
from tests.conftest import RunningServer, running_server
from tests.plugins.torch_engine.embeddings.encoders import ENCODERS
from tests.plugins.torch_engine.tiny_models import CONFIGS, save_tokenizer

TORCH = "option.rolling_batch=torch\noption.device=cpu\n"
CLOSE: dict[str, Any] = {"abs": 1e-5, "rel": 1e-5}
QUERY = "the quick brown fox"
DOCUMENTS = ["a", "jumps over the lazy dog", "fox " * 12, "Grüße", "Hello world"]
CLASSIFIERS = {**{name: ENCODERS[name] for name in ("bert", "xlm-roberta", "modernbert")}, "qwen3": CONFIGS["qwen3"]}


def save_classifier(directory: Path, architecture: str, labels: int = 1, **changes: Any) -> None:
    """Save a model with random weights, and for encoders a tokenizer with the family's template of pairs."""
    save_tokenizer(directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    if architecture != "qwen3":
        pair = "<s> $A </s> </s> $B </s>" if architecture == "xlm-roberta" else "<s> $A </s> $B:1 </s>:1"
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 1)]
        )
    tokenizer.save_pretrained(directory)
    if architecture == "bert":
        file = directory / "tokenizer_config.json"
        inputs = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        file.write_text(json.dumps(json.loads(file.read_text()) | inputs))
    torch.manual_seed(0)
    config = AutoConfig.for_model(architecture, **{**CLASSIFIERS[architecture], "num_labels": labels, **changes})
    factory: Any = AutoModelForSequenceClassification
    factory.from_config(config).save_pretrained(directory)


def logits(directory: Path, first: str, second: str, side: str = "right", **truncation: Any) -> float:
    """Return transformers' logit of one pair by itself."""
    factory: Any = AutoModelForSequenceClassification
    model = factory.from_pretrained(directory).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.truncation_side = side
    texts = (first + second,) if model.config.model_type == "qwen3" else (first, second)
    inputs = tokenizer(*texts, return_tensors="pt", **truncation)
    assert ("token_type_ids" in inputs) is (model.config.model_type == "bert")
    with torch.inference_mode():
        return float(model(**inputs).logits[0, 0])


def sigmoid(number: float) -> float:
    return float(torch.tensor(number).sigmoid())


async def ranked(server: RunningServer, **fields: Any) -> dict[int, float]:
    answer = await server.post("/rerank", {"query": QUERY, "documents": DOCUMENTS, **fields})
    assert answer.status == 200, answer.body
    results = answer.json()["results"]
    scores = [each["relevance_score"] for each in results]
    assert scores == sorted(scores, reverse=True)
    return {each["index"]: each["relevance_score"] for each in results}


@pytest.mark.parametrize("architecture", CLASSIFIERS)
async def test_scores_of_transformers(architecture: str, tmp_path: Path) -> None:
    save_classifier(tmp_path, architecture)
    (tmp_path / "serving.properties").write_text(TORCH)
    expected = [logits(tmp_path, QUERY, document) for document in DOCUMENTS]
    assert max(expected) - min(expected) > 0.01
    async with running_server(tmp_path) as server:
        raw = await ranked(server, use_activation=False)
        assert [raw[index] for index in range(len(DOCUMENTS))] == pytest.approx(expected, **CLOSE)
        scores = await ranked(server)
        assert [scores[index] for index in range(len(DOCUMENTS))] == pytest.approx(
            [sigmoid(each) for each in expected], **CLOSE
        )
        lmi = await server.post("/invocations", [{"key": QUERY, "value": document} for document in DOCUMENTS])
        assert [score for (score,) in lmi.json()] == pytest.approx([sigmoid(each) for each in expected], **CLOSE)


async def test_template_of_vllm(tmp_path: Path) -> None:
    save_classifier(tmp_path, "qwen3")
    template = (
        "{{ instruction | default('the fox') }}: "
        '{{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}; '
        '{{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}.'
    )
    (tmp_path / "pairs.jinja").write_text(template)
    (tmp_path / "serving.properties").write_text(f"{TORCH}option.chat_template=pairs.jinja\n")
    async with running_server(tmp_path) as server:
        for instruction, fields in (("the fox", {}), ("a dog", {"instruction": "a dog"})):
            expected = [logits(tmp_path, f"{instruction}: {QUERY}; {document}.", "") for document in DOCUMENTS]
            raw = await ranked(server, use_activation=False, **fields)
            assert [raw[index] for index in range(len(DOCUMENTS))] == pytest.approx(expected, **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
async def test_truncation(side: str, tmp_path: Path) -> None:
    save_classifier(tmp_path, "bert")
    (tmp_path / "serving.properties").write_text(TORCH)
    pairs = [(QUERY, "fox dog " * 40), ("fox dog " * 40, QUERY), ("lazy " * 40, "fox dog " * 40)]
    async with running_server(tmp_path) as server:
        for first, second in pairs:
            answer = await server.post("/score", {"text_1": first, "text_2": second})
            assert answer.status == 400
            assert "`text_2.0` must be at most 66 tokens long" in answer.json()["error"]["message"]
            fields = {"truncate_prompt_tokens": 31, "truncation_side": side, "use_activation": False}
            answer = await server.post("/score", {"text_1": first, "text_2": second, **fields})
            expected = logits(tmp_path, first, second, side, truncation=True, max_length=31)
            assert answer.json()["data"][0]["score"] == pytest.approx(expected, **CLOSE)


async def test_what_a_reranker_refuses(tmp_path: Path) -> None:
    save_classifier(tmp_path, "xlm-roberta")
    (tmp_path / "serving.properties").write_text(f"engine=Rust\nreranking=true\n{TORCH}")
    async with running_server(tmp_path) as server:
        generated = await server.post("/v1/completions", {"prompt": "a"})
        embedded = await server.post("/v1/embeddings", {"input": "a"})
    for answer, what in ((generated, "generates no text"), (embedded, "makes no embeddings")):
        assert answer.status == 404
        assert (
            f"is a reranker, which scores pairs of texts and {what}: POST /rerank" in answer.json()["error"]["message"]
        )


@pytest.mark.parametrize(
    ("changes", "activated"),
    [
        ({}, True),
        ({"problem_type": "regression"}, False),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, True),
    ],
)
def test_activation_of_the_configuration(changes: dict[str, Any], activated: bool, tmp_path: Path) -> None:
    config = AutoConfig.for_model("bert", **changes)
    assert score_recipe(config, EmbeddingOptions()).normalize
    logit = torch.tensor([2.0])
    found = score_recipe(config, EmbeddingOptions()).activation(logit)
    assert torch.equal(found, logit.sigmoid() if activated else logit)
    config.sentence_transformers = {"activation_fn": "os.system"}
    config.problem_type = None
    with pytest.raises(ConfigurationError, match=r"os\.system is not a torch module"):
        score_recipe(config, EmbeddingOptions())


def test_check(tmp_path: Path) -> None:
    save_classifier(tmp_path, "bert")
    (note,) = inspect_model(EngineOptions(str(tmp_path)))
    assert isinstance(note, Note)
    assert note.startswith("a reranker, which scores pairs of texts")
    weights = tmp_path / "config.json"
    config = json.loads(weights.read_text())
    weights.write_text(json.dumps({**config, "num_hidden_layers": 3}))
    *_, fault = inspect_model(EngineOptions(str(tmp_path)))
    assert "missing" in fault


def test_several_labels(tmp_path: Path) -> None:
    save_classifier(tmp_path, "bert", labels=3)
    (fault,) = inspect_model(EngineOptions(str(tmp_path)))
    assert "BertForSequenceClassification scores or classifies texts, which the torch engine does not do" in fault
    options = EngineOptions(str(tmp_path), embedding=EmbeddingOptions("score"))
    with pytest.raises(ConfigurationError, match="Found: BertForSequenceClassification, 3 labels"):
        load_embedding_engine(options)
