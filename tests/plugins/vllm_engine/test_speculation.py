"""lmi-dist on vLLM with a draft model, which guesses right as it is the model itself."""

import logging
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import running_server
from tests.plugins.vllm_server import ONE_PROCESS, STORY, VllmServer, copy_hello, ids

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

PROPERTIES = """\
engine=MPI
option.mpi_mode=true
option.rolling_batch=lmi-dist
option.enforce_eager=true
option.dtype=fp32
option.max_model_len=1024
option.speculative_draft_model=draft
option.speculative_length=3
option.draft_model_tp_size=1
option.record_acceptance_rate=true
option.disable_log_stats=false
"""

ACCEPTED = re.compile(r"Request (\S+): (\d+) of (\d+) draft tokens accepted")


@dataclass
class Speculating:
    server: VllmServer
    log: list[str]


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def speculating(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Speculating]:
    directory = copy_hello(tmp_path_factory.mktemp("lmi-dist") / "hello", PROPERTIES + ONE_PROCESS)
    copy_hello(directory / "draft", "")
    lines, logger = Lines(), logging.getLogger("lmi_plugins")
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    async with running_server(directory) as server:
        yield Speculating(VllmServer(server), lines.lines)
    logger.removeHandler(lines)
    logger.setLevel(logging.NOTSET)


async def test_the_text_is_the_same(speculating: Speculating, vllm: VllmServer) -> None:
    for prompt in (STORY, "What is Deep Learning?"):
        asked = {"max_new_tokens": 80}
        answer, plain = [await server.ask(prompt, **asked) for server in (speculating.server, vllm)]
        assert answer["generated_text"] == plain["generated_text"]
        tokens, expected = answer["details"]["tokens"], plain["details"]["tokens"]
        assert ids(tokens) == ids(expected)
        log_probs = [token["log_prob"] for token in expected]
        assert [token["log_prob"] for token in tokens] == pytest.approx(log_probs, abs=1e-3)


async def test_each_token_has_a_line_of_its_own(speculating: Speculating) -> None:
    whole = await speculating.server.ask(STORY)
    lines = await speculating.server.stream(STORY)
    assert [line["token"] for line in lines] == whole["details"]["tokens"]
    assert "".join(line["token"]["text"] for line in lines) == lines[-1]["generated_text"]


async def test_the_acceptance_rate_is_logged(speculating: Speculating) -> None:
    assert speculating.log[0] == "lmi-dist runs on vLLM, which is installed"
    body = {"inputs": STORY, "parameters": {}}
    answer = await speculating.server.server.post("/invocations", body, headers={"x-request-id": "mine"})
    assert answer.status == 200
    (accepted,) = [found for line in speculating.log if (found := ACCEPTED.match(line)) and found[1] == "mine"]
    assert int(accepted[2]) > 0.8 * int(accepted[3]) > 15


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"do_sample": True, "typical_p": 0.5}, "`typical_p` and speculative decoding cannot be used together"),
        ({"no_repeat_ngram_size": 2}, "`no_repeat_ngram_size` and speculative decoding cannot be used together"),
        ({"bad_sequences": ["a"]}, "`bad_sequences` and speculative decoding cannot be used together"),
        ({"logprob_token_ids": [5]}, "`logprob_token_ids` and speculative decoding cannot be used together"),
        (
            {"reasoning_budget": {"tokens": 1, "ends": [[5]]}},
            "`reasoning_budget` and speculative decoding cannot be used together",
        ),
        ({"do_sample": True, "min_p": 0.5}, "not yet supported with speculative decoding"),
    ],
)
async def test_what_it_excludes(speculating: Speculating, parameters: dict[str, Any], reason: str) -> None:
    assert reason in await speculating.server.refusal(STORY, **parameters)


async def test_vllms_own_metrics_are_passed_on(speculating: Speculating) -> None:
    async def scraped() -> dict[str, float]:
        text = (await speculating.server.server.get("/metrics")).body.decode()
        found = text_string_to_metric_families(text)
        sums: defaultdict[str, float] = defaultdict(float)  # over the reasons to finish, among other labels
        for sample in (sample for family in found for sample in family.samples):
            sums[sample.name] += sample.value
        return sums

    before = await scraped()
    await speculating.server.ask(STORY, max_new_tokens=20, ignore_eos_token=True)
    after = await scraped()
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] == 20
    assert after["vllm:request_success_total"] == before["vllm:request_success_total"] + 1
    accepted, drafted = (
        after[name] - before[name]
        for name in ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total")
    )
    assert drafted >= accepted > 0.8 * drafted
    assert after["vllm:e2e_request_latency_seconds_count"] == before["vllm:e2e_request_latency_seconds_count"] + 1


async def test_beams_do_without(speculating: Speculating, vllm: VllmServer) -> None:
    beams, plain = [await server.ask(STORY, num_beams=3) for server in (speculating.server, vllm)]
    assert beams["generated_text"] == plain["generated_text"]
