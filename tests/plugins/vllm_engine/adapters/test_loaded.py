"""LoRA adapters on vLLM, against models that they were merged into."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.tiny_models import reference_ids, reference_model
from tests.plugins.vllm_server import HELLO, STORY, VllmServer, ids

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

COUNT = 12
ROUTE = "/models/hello/adapters"


def merged_ids(vllm: VllmServer, adapter: Path | None) -> list[int]:
    model = reference_model(HELLO) if adapter is None else merged_model(HELLO, adapter)
    return reference_ids(model, vllm.encode(STORY), COUNT)


async def ask(vllm: VllmServer, adapter: str | None) -> Any:
    body: dict[str, Any] = {"inputs": STORY, "parameters": {"details": True, "max_new_tokens": COUNT}}
    answer = await vllm.server.post("/invocations", body | ({} if adapter is None else {"adapters": adapter}))
    return answer.status, answer.json()


async def ids_with(vllm: VllmServer, adapter: str | None) -> list[int]:
    status, answer = await ask(vllm, adapter)
    assert status == 200, answer
    return ids(answer["details"]["tokens"])


async def test_those_of_the_directory_in_one_batch(vllm: VllmServer, hello_with_adapters: Path) -> None:
    folder = hello_with_adapters / "adapters"
    names = [None, "french", "german"] * 3
    expected = {None: merged_ids(vllm, None)} | {name: merged_ids(vllm, folder / name) for name in ("french", "german")}
    assert len({tuple(found) for found in expected.values()}) == 3
    found = await asyncio.gather(*(ids_with(vllm, name) for name in names))
    assert found == [expected[name] for name in names]


async def test_load_update_and_unload_while_others_run(vllm: VllmServer, tmp_path: Path) -> None:
    first, second = (save_adapter(tmp_path / str(seed), reference_model(HELLO), seed) for seed in (5, 6))
    post, client = vllm.server.post, vllm.server.client
    stream = asyncio.create_task(vllm.stream(STORY, max_new_tokens=300))
    alone = merged_ids(vllm, None)
    assert (await post(ROUTE, {"name": "new", "src": str(first)})).status == 200
    assert await ids_with(vllm, "new") == merged_ids(vllm, first)
    updated = await post(ROUTE + "/new/update", {"src": str(second)})
    assert updated.status == 200, updated.body
    assert await ids_with(vllm, "new") == merged_ids(vllm, second)
    async with client.delete(ROUTE + "/new") as deleted:
        assert deleted.status == 200, await deleted.read()
    assert (await ask(vllm, "new"))[0] == 424
    assert [line["token"]["id"] for line in await stream][:COUNT] == alone


async def test_prompt_log_probs_beside_others(vllm: VllmServer) -> None:
    alone = await vllm.ask(STORY, decoder_input_details=True)
    streams = asyncio.gather(*(ids_with(vllm, name) for name in (None, "french", "german")))
    beside = await vllm.ask(STORY, decoder_input_details=True)
    assert len({tuple(found) for found in await streams}) == 3
    log_probs = [[token["log_prob"] for token in each["details"]["prefill"]] for each in (alone, beside)]
    assert log_probs[0][1:] == pytest.approx(log_probs[1][1:], abs=1e-3)


async def test_more_than_run_at_a_time(vllm: VllmServer, tmp_path: Path) -> None:
    """The fixture's `option.max_loras` is 2."""
    folders = {f"a{seed}": save_adapter(tmp_path / str(seed), reference_model(HELLO), seed) for seed in range(10, 14)}
    for name, folder in folders.items():
        assert (await vllm.server.post(ROUTE, {"name": name, "src": str(folder)})).status == 200
    found = await asyncio.gather(*(ids_with(vllm, name) for name in folders))
    assert found == [merged_ids(vllm, folder) for folder in folders.values()]
    for name in folders:
        async with vllm.server.client.delete(f"{ROUTE}/{name}") as deleted:
            assert deleted.status == 200


async def test_pinned_beside_more_than_run_at_a_time(vllm: VllmServer, tmp_path: Path) -> None:
    """The fixture's `option.max_loras` is 2, so that the others run one after the other."""
    folders = {f"p{seed}": save_adapter(tmp_path / str(seed), reference_model(HELLO), seed) for seed in range(20, 24)}
    post = vllm.server.post
    for name, folder in folders.items():
        added = await post(ROUTE, {"name": name, "src": str(folder), "pin": name == "p20"})
        assert added.status == 200, added.body
    refused = await post(f"{ROUTE}/p21/update", {"pin": True})
    assert (refused.status, "at most 1 can" in str(refused.json())) == (400, True), refused.body
    expected = [merged_ids(vllm, folder) for folder in folders.values()]
    assert await asyncio.gather(*(ids_with(vllm, name) for name in [*folders, *folders])) == [*expected, *expected]
    updated = await post(f"{ROUTE}/p20/update", {"src": str(folders["p23"])})  # which stays pinned
    assert updated.status == 200, updated.body
    assert await asyncio.gather(*(ids_with(vllm, name) for name in folders)) == [expected[3], *expected[1:]]
    for name, pin in (("p20", False), ("p21", True)):
        assert (await post(f"{ROUTE}/{name}/update", {"pin": pin})).status == 200
    assert await asyncio.gather(*(ids_with(vllm, name) for name in folders)) == [expected[3], *expected[1:]]
    for name in folders:
        async with vllm.server.client.delete(f"{ROUTE}/{name}") as deleted:
            assert deleted.status == 200


async def test_files_that_are_gone_or_change_end_no_engine(vllm: VllmServer, tmp_path: Path) -> None:
    """The fixture's `option.max_loras` is 2, and so is the number of adapters that vLLM keeps: it evicts the others."""
    names = ("gone", "changed", "other", "last")
    folders = {name: save_adapter(tmp_path / name, reference_model(HELLO), seed) for seed, name in enumerate(names, 30)}
    expected = {name: merged_ids(vllm, folder) for name, folder in folders.items()}
    for name in ("gone", "changed"):
        assert (await vllm.server.post(ROUTE, {"name": name, "src": str(folders[name])})).status == 200
    shutil.rmtree(folders["gone"])
    shutil.copytree(folders["last"], folders["changed"], dirs_exist_ok=True)
    for name in ("gone", "changed"):  # vLLM has them still
        assert await ids_with(vllm, name) == expected[name]

    restarts, stream = vllm.backend.figures().restarts, asyncio.create_task(vllm.stream(STORY, max_new_tokens=300))
    for name in ("other", "last"):
        assert (await vllm.server.post(ROUTE, {"name": name, "src": str(folders[name])})).status == 200
        assert await ids_with(vllm, name) == expected[name]
    for name in ("gone", "changed"):
        status, answer = await ask(vllm, name)
        assert (status, f"the adapter `{name}` can no longer be loaded: its files" in str(answer)) == (424, True)
        pinned = await vllm.server.post(f"{ROUTE}/{name}/update", {"pin": True})
        assert (pinned.status, "its files" in str(pinned.json())) == (404, True), pinned.body
    assert (await vllm.server.post(f"{ROUTE}/changed/update", {"src": str(folders["changed"])})).status == 200
    assert await ids_with(vllm, "changed") == expected["last"]
    assert [line["token"]["id"] for line in await stream][:COUNT] == merged_ids(vllm, None)
    assert vllm.backend.figures().restarts == restarts
    for name in names:
        async with vllm.server.client.delete(f"{ROUTE}/{name}") as deleted:
            assert deleted.status == 200


async def test_one_that_does_not_fit(vllm: VllmServer, tmp_path: Path) -> None:
    """The fixture's `option.max_lora_rank` is 8."""
    folder = save_adapter(tmp_path / "large", reference_model(HELLO), seed=1, rank=16)
    answer = await vllm.server.post(ROUTE, {"name": "large", "src": str(folder)})
    assert (answer.status, "16" in str(answer.json())) == (400, True), answer.body
    assert (await ask(vllm, "large"))[0] == 424
    assert await ids_with(vllm, None) == merged_ids(vllm, None)
