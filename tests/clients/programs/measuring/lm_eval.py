"""The evaluation harness lm-eval, on tasks of a few lines, whose scores are compared with those of transformers."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from tests.clients.programs.cases import case, equal, hello, log_likelihoods
from tests.clients.programs.values import ANSWER, CONTINUATIONS, HELLO, HELLO_FOLDER, MESSAGES, QUESTION, TEXTS

PACKAGE = "lm-eval"

CLOSE = 1e-3
GREEDY = {"until": ["\n"], "do_sample": False, "max_gen_toks": 32}
NO_OTHERS = TaskManager(include_defaults=False)  # reading the harness' own tasks takes ten seconds, each time


def task(name: str, rows: list[dict[str, Any]], **config: Any) -> dict[str, Any]:
    path = Path.home() / f"{name}.json"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test"}
    return {"task": name, "target_delimiter": "", **data, **config}


@cache
def samples(backend: str, **options: Any) -> dict[str, list[Any]]:
    """Return what was found for each row of each task, asked with tokens of the harness or of the server."""
    choices = task(
        "choices",
        [{"context": QUESTION, "continuations": CONTINUATIONS}],
        output_type="multiple_choice",
        doc_to_text="{{context}}",
        doc_to_choice="{{continuations}}",
        doc_to_target=0,
        metric_list=[{"metric": "acc"}],
    )
    texts = task(
        "texts",
        [{"text": text} for text in TEXTS],
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=[{"metric": "word_perplexity"}],
    )
    answers = task(
        "answers",
        [{"question": QUESTION, "answer": ANSWER}],
        output_type="generate_until",
        doc_to_text="{{question}}",
        doc_to_target="{{answer}}",
        generation_kwargs=GREEDY,
        metric_list=[{"metric": "exact_match"}],
    )
    url = f"{hello()}/v1/completions"
    served = {"model": HELLO, "base_url": url, "tokenizer_backend": backend, "batch_size": 3, **options}
    found: Any = simple_evaluate(
        model="local-completions",
        model_args=served,
        tasks=[choices, texts, answers],
        task_manager=NO_OTHERS,
        bootstrap_iters=0,
    )
    equal(found["results"]["answers"]["exact_match,none"], 1)
    return {name: [sample["filtered_resps"] for sample in rows] for name, rows in found["samples"].items()}


def check_close(found: list[float], expected: list[float]) -> None:
    equal(len(found), len(expected))
    worst = max(abs(one - other) for one, other in zip(found, expected, strict=True))
    if not worst < CLOSE:
        raise AssertionError(f"found {found}, expected {expected}")


def check_choices(found: dict[str, list[Any]]) -> None:
    (scores,) = found["choices"]
    check_close([score for score, _ in scores], [score for score, _ in log_likelihoods()["continuations"]])
    equal([greedy for _, greedy in scores], [greedy for _, greedy in log_likelihoods()["continuations"]])


def check_texts(found: dict[str, list[Any]]) -> None:
    check_close([score for (score,) in found["texts"]], log_likelihoods()["texts"])


@case("OpenAI completions", "`local-completions`: log likelihoods equal to transformers' within 0.001")
def continuations() -> None:
    check_choices(samples("huggingface", tokenizer=str(HELLO_FOLDER)))


@case("OpenAI completions", "perplexities likewise")
def perplexities() -> None:
    check_texts(samples("huggingface", tokenizer=str(HELLO_FOLDER)))


@case("OpenAI completions", "generated answers")
def generated() -> None:
    equal(samples("huggingface", tokenizer=str(HELLO_FOLDER))["answers"], [[ANSWER]])


@case("vLLM's tokenizer routes", "`tokenizer_backend=remote`: the same, with the server's tokenizer")
def remote() -> None:
    found = samples("remote")
    check_choices(found)
    check_texts(found)


@case("OpenAI chats", "`local-chat-completions`: generated answers")
def chat() -> None:
    answers = task(
        "chats",
        [{"question": MESSAGES[0]["content"], "answer": ANSWER}],
        output_type="generate_until",
        doc_to_text="{{question}}",
        doc_to_target="{{answer}}",
        generation_kwargs=GREEDY,
        metric_list=[{"metric": "exact_match"}],
    )
    found: Any = simple_evaluate(
        model="local-chat-completions",
        model_args={"model": HELLO, "base_url": f"{hello()}/v1/chat/completions"},
        tasks=[answers],
        task_manager=NO_OTHERS,
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    equal(found["results"]["chats"]["exact_match,none"], 1)
