"""Generation parameters one by one, against what vLLM itself returns for its own."""

import asyncio
import json
from typing import Any

import pytest

from tests.plugins.vllm_server import STORY, VllmServer, ids

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

GREEDY: dict[str, Any] = {"temperature": 0.0}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}
GRAMMAR = 'root ::= "yes" | "no"'
# Both make one tag of the letter with which the model begins its story.
TAG: dict[str, Any] = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["O"],
        "tags": [
            {
                "type": "tag",
                "begin": "Of ",
                "content": {"type": "json_schema", "json_schema": SCHEMA},
                "end": " years",
            }
        ],
        "at_least_one": True,
    },
}
OLDER_TAG = {"type": "structural_tag", "triggers": ["a"], "structures": [{"begin": "a", "schema": SCHEMA, "end": "."}]}


def sampled(**vllm: Any) -> dict[str, Any]:
    return {"temperature": 2.0, "seed": 7, **vllm}


def asked(**lmi: Any) -> dict[str, Any]:
    return {"do_sample": True, "temperature": 2.0, "seed": 7, **lmi}


SAME_AS_GREEDY: list[dict[str, Any]] = [
    {"temperature": 2.0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.5, "seed": 3},
    {"do_sample": True, "temperature": 0.0},
    {"do_sample": True, "top_k": 1},
    {"best_of": 1, "n": 1},
]

# LMI's, vLLM's, and those of LMI's without the parameter, whose answer must be another.
CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"do_sample": True, "seed": 7}, {"temperature": 1.0, "seed": 7}, {}),
    (asked(seed=8), sampled(seed=8), asked()),
    (asked(), sampled(), {"do_sample": True, "seed": 7}),
    (asked(top_k=3), sampled(top_k=3), asked()),
    (asked(top_p=0.5), sampled(top_p=0.5), asked()),
    (asked(min_p=0.1), sampled(min_p=0.1), asked()),
    ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}, {}),
    ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}, {}),
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}, {}),
    ({"logit_bias": {"300": 50}}, {"logit_bias": {300: 50}}, {}),
    ({"stop_sequences": ["time"]}, {"stop": ["time"]}, {}),
    ({"stop_sequences": ["named", "time"]}, {"stop": ["named", "time"]}, {"stop_sequences": ["named"]}),
    (
        {"stop_sequences": ["time"], "include_stop_str_in_output": True},
        {"stop": ["time"], "include_stop_str_in_output": True},
        {"stop_sequences": ["time"]},
    ),
    ({"max_new_tokens": 5}, {"max_tokens": 5}, {}),
    ({"max_new_tokens": 400}, {"max_tokens": 400}, {}),
    (
        {"max_new_tokens": 400, "ignore_eos_token": True},
        {"max_tokens": 400, "ignore_eos": True},
        {"max_new_tokens": 400},
    ),
    (
        {"max_new_tokens": 400, "ignore_eos_token": True, "skip_special_tokens": False},
        {"max_tokens": 400, "ignore_eos": True, "skip_special_tokens": False},
        {"max_new_tokens": 400, "ignore_eos_token": True},
    ),
    (
        {"max_new_tokens": 400, "skip_special_tokens": False, "include_stop_str_in_output": True},
        {"max_tokens": 400, "skip_special_tokens": False, "include_stop_str_in_output": True},
        {"max_new_tokens": 400},
    ),
    ({"max_new_tokens": 5, "min_length": 300}, {"max_tokens": 5, "min_tokens": 5}, {"max_new_tokens": 4}),
    ({"max_new_tokens": 400, "min_length": 300}, {"max_tokens": 400, "min_tokens": 300}, {"max_new_tokens": 400}),
    ({"truncate": 1}, {"truncated": 1}, {}),
    ({"guided_choice": ["apple", "pear"]}, {"guide": {"choice": ["apple", "pear"]}}, {}),
    ({"guided_json": SCHEMA}, {"guide": {"json": SCHEMA}}, {}),
    ({"guided_regex": "[0-9]{4}"}, {"guide": {"regex": "[0-9]{4}"}}, {}),
    ({"guided_grammar": GRAMMAR}, {"guide": {"grammar": GRAMMAR}}, {}),
    ({"guided_structural_tag": TAG}, {"guide": {"structural_tag": json.dumps(TAG)}}, {}),
    ({"guided_structural_tag": OLDER_TAG}, {"guide": {"structural_tag": json.dumps(OLDER_TAG)}}, {}),
]


async def own(
    vllm: VllmServer, inputs: str, guide: dict[str, Any] | None = None, truncated: int = 0, **own: Any
) -> Any:
    """vLLM's own completion, with log probs."""
    from vllm.sampling_params import StructuredOutputsParams

    guides = {} if guide is None else {"structured_outputs": StructuredOutputsParams(**guide)}
    output = await vllm.vllm(inputs, last=truncated, **{"logprobs": 0, **GREEDY, **guides, **own})
    return output.outputs[0]


def check_same(answer: dict[str, Any], completion: Any) -> None:
    details = answer["details"]
    assert ids(details["tokens"]) == list(completion.token_ids)
    assert answer["generated_text"] == completion.text == "".join(token["text"] for token in details["tokens"])
    own_log_probs = [place[i].logprob for i, place in zip(completion.token_ids, completion.logprobs, strict=True)]
    assert [token["log_prob"] for token in details["tokens"]] == pytest.approx(own_log_probs, abs=1e-3)
    match completion.finish_reason, completion.stop_reason:
        case "length", _:
            assert details["finish_reason"] == "length"
        case "stop", None:
            assert details["finish_reason"] == "eos_token"
        case "stop", _:
            assert details["finish_reason"] == "stop_sequence"


@pytest.mark.parametrize("parameters", [{}, *SAME_AS_GREEDY])
async def test_greedy_is_temperature_0(vllm: VllmServer, parameters: dict[str, Any]) -> None:
    check_same(*await asyncio.gather(vllm.ask(STORY, **parameters), own(vllm, STORY)))


@pytest.mark.parametrize(("lmi", "sampling", "without"), CASES, ids=[",".join(lmi) for lmi, _, _ in CASES])
async def test_parameter(
    vllm: VllmServer, lmi: dict[str, Any], sampling: dict[str, Any], without: dict[str, Any]
) -> None:
    """All three at once, which takes as many steps as the longest of them."""
    asking = (vllm.ask(STORY, **lmi), own(vllm, STORY, **sampling), vllm.ask(STORY, **without))
    answer, completion, other = await asyncio.gather(*asking)
    check_same(answer, completion)
    assert answer["generated_text"] != other["generated_text"]


async def test_blanks_between_special_tokens(vllm: VllmServer) -> None:
    """vLLM itself has none with a fast tokenizer, either way."""
    special = {"max_new_tokens": 3, "skip_special_tokens": False, "logit_bias": {"3": 100}}
    spaced = await vllm.ask(STORY, **special)
    assert spaced["generated_text"] == "<|user|> <|user|> <|user|>"
    sampling: dict[str, Any] = {"max_tokens": 3, "skip_special_tokens": False, "logit_bias": {3: 100}}
    completion = await own(vllm, STORY, **sampling, spaces_between_special_tokens=False)
    check_same(await vllm.ask(STORY, **special, spaces_between_special_tokens=False), completion)


@pytest.mark.parametrize("include", [False, True])
async def test_stop_token_ids(vllm: VllmServer, include: bool) -> None:
    """vLLM counts the token, and writes its text in either case; LMI leaves it out."""
    third = ids((await vllm.ask(STORY))["details"]["tokens"])[2]
    answer = await vllm.ask(STORY, stop_token_ids=[third], include_stop_str_in_output=include)
    completion = await own(vllm, STORY, stop_token_ids=[third], include_stop_str_in_output=include)
    assert ids(answer["details"]["tokens"]) == list(completion.token_ids)
    assert (answer["details"]["finish_reason"], completion.stop_reason) == ("stop_sequence", third)
    assert answer["generated_text"] == "Once upon a"[: len(completion.text)]


async def test_several_sequences_are_those_of_vllm(vllm: VllmServer) -> None:
    answer = await vllm.ask(STORY, **asked(n=3))
    completions = (await vllm.vllm(STORY, **sampled(n=3))).outputs
    found = [answer, *answer["details"]["best_of_sequences"]]
    assert sorted(each["generated_text"] for each in found) == sorted(each.text for each in completions)
    assert len({each.text for each in completions}) == 3


async def test_best_of_chooses_the_likeliest(vllm: VllmServer) -> None:
    answer = await vllm.ask(STORY, **asked(n=2, best_of=5, max_new_tokens=12))
    outputs = (await vllm.vllm(STORY, **sampled(n=5, logprobs=0, max_tokens=12))).outputs
    ranked = sorted(outputs, key=lambda each: -each.cumulative_logprob)
    best, *others = [answer["generated_text"], *(s["generated_text"] for s in answer["details"]["best_of_sequences"])]
    assert (best, others[0]) == (ranked[0].text, ranked[1].text)
    assert sorted([best, *others]) == sorted(each.text for each in ranked[: 1 + len(others)])


async def test_without_a_seed_each_answer_is_another(vllm: VllmServer) -> None:
    texts = {(await vllm.ask(STORY, do_sample=True, temperature=2.0))["generated_text"] for _ in range(4)}
    assert len(texts) > 1


async def test_the_likeliest_tokens(vllm: VllmServer) -> None:
    answer = await vllm.ask(STORY, logprobs=3, max_new_tokens=5)
    output = await vllm.vllm(STORY, logprobs=3, max_tokens=5, **GREEDY)
    for token, place in zip(answer["details"]["tokens"], output.outputs[0].logprobs, strict=True):
        expected = sorted(place.items(), key=lambda item: item[1].rank)[:3]
        assert ids(token["top_tokens"]) == [token_id for token_id, _ in expected]
        log_probs = [each.logprob for _, each in expected]
        assert [each["log_prob"] for each in token["top_tokens"]] == pytest.approx(log_probs, abs=1e-3)


async def test_the_prompts_tokens(vllm: VllmServer) -> None:
    answer = await vllm.ask(STORY, decoder_input_details=True, prompt_logprobs=2, max_new_tokens=1)
    output = await vllm.vllm(STORY, prompt_logprobs=2, max_tokens=1, **GREEDY)
    first, *others = answer["details"]["prefill"]
    assert ids([first, *others]) == vllm.encode(STORY)
    assert first["log_prob"] is None
    for token, place in zip(others, output.prompt_logprobs[1:], strict=True):
        assert token["log_prob"] == pytest.approx(place[token["id"]].logprob, abs=1e-3)
        likeliest = sorted(place.items(), key=lambda item: item[1].rank)[:2]
        assert ids(token["top_tokens"]) == [token_id for token_id, _ in likeliest]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"do_sample": True, "temperature": 2.5}, "`temperature` must be less than or equal to 2"),
        ({"logit_bias": {"5000": 1}}, "logit_bias"),
        ({"stop_token_ids": [99999]}, "stop_token_ids"),
        ({"guided_regex": "[0-9"}, "unclosed character class"),
        ({"guided_regex": r"(a|b)\1"}, "backreferences are not supported"),
        ({"guided_json": {"type": "nonsense"}}, "Invalid type: nonsense"),
        ({"guided_json": {"$ref": "#/nowhere"}}, "/nowhere"),
        ({"guided_grammar": "root ::= nothing"}, "nothing"),
        ({"guided_structural_tag": {"format": {"type": "nonsense"}}}, "`guided_structural_tag` cannot be used: "),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "`guided_choice` and `guided_regex` cannot be used together"),
    ],
)
async def test_a_refusal_says_why_and_harms_no_other(vllm: VllmServer, parameters: dict[str, Any], reason: str) -> None:
    stream, error = await vllm.beside_a_stream(vllm.refusal("Hi", **parameters))
    assert reason in error
    assert "\n" not in error
    assert [line["token"]["id"] for line in stream] == ids((await vllm.ask(STORY))["details"]["tokens"])


async def test_a_guide_with_several_sequences(vllm: VllmServer) -> None:
    answer = await vllm.ask(STORY, guided_choice=["apple", "pear"], **asked(n=4))
    texts = {answer["generated_text"], *(each["generated_text"] for each in answer["details"]["best_of_sequences"])}
    assert texts <= {"apple", "pear"}
