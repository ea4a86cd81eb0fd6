"""A KV connector of vLLM's that transfers nothing, and hands on what it was told of each request."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class EchoingConnector(KVConnectorBase_V1):  # type: ignore[misc]  # untyped
    def start_load_kv(self, *_: Any, **__: Any) -> None:
        pass

    def wait_for_layer_load(self, *_: Any, **__: Any) -> None:
        pass

    def save_kv_layer(self, *_: Any, **__: Any) -> None:
        pass

    def wait_for_save(self, *_: Any, **__: Any) -> None:
        pass

    def get_num_new_matched_tokens(self, *_: Any, **__: Any) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, *_: Any, **__: Any) -> None:
        pass

    def build_connector_meta(self, *_: Any, **__: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        if request.kv_transfer_params is None:
            return False, None
        return False, {"told": request.kv_transfer_params, "extra_args": request.sampling_params.extra_args}
