"""Markers of the engine that a test needs, by folder, file and fixture, and `--fast`, which skips marked tests.

A file that needs an engine as a whole is named here rather than marked in itself, so that `--fast` does not import it.
A single test among others has `@pytest.mark.torch`, and imports PyTorch where it uses it.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
MARKERS = ("torch", "vllm", "slow")
LIBRARIES = frozenset({"torch", "vllm"})

# Folders and files, each with what all of its tests need.
NEEDS = {
    "clients/test_every_dialect.py": "torch",
    "clients/test_lm_eval.py": "torch",
    "clients/test_openai_token_details.py": "torch",
    "clients/test_openai_torch.py": "torch",
    "clients/test_own_dialect.py": "slow",
    "clients/test_programs.py": "torch",
    "clients/test_ray.py": "torch",
    "clients/test_replicas.py": "torch",
    "clients/test_resumed_kinds.py": "torch",
    "clients/test_resumption.py": "torch",
    "clients/test_tritonclient_trtllm.py": "torch",
    "core/deadlines": "slow",
    "core/texts/test_rendering.py": "slow",
    "core/generation/test_hypotheses.py": "torch",
    "core/inspection/test_model_folder.py": "torch",
    "core/remote/archives/test_gguf_file.py": "torch",
    "core/remote/archives/test_updating.py": "slow",
    "core/remote/web/test_slow_servers.py": "slow",
    "core/remote/s3/test_updating.py": "slow",
    "core/remote/s3/test_refusals.py": "slow",
    "core/remote/test_full_disk.py": "slow",
    "core/remote/test_hub.py": "slow",
    "core/script/function/test_handle_functions.py": "slow",
    "core/script/test_time_limits.py": "slow",
    "core/texts/bad_texts/test_text_ban.py": "torch",
    "core/texts/test_detokenizers.py": "torch",
    "core/texts/test_huggingface_tokenizer.py": "torch",
    "deployment/test_processes.py": "slow",
    "djl_python/test_huggingface.py": "torch",
    "djl_python/test_served.py": "torch",
    "djl_python/test_streaming_utils.py": "torch",
    "docs/test_coming_from.py": "vllm",
    "docs/test_offline.py": "torch",
    "docs/test_sessions.py": "torch",
    "docs/test_trtllm.py": "torch",
    "examples": "torch",
    "handlers/fields/test_calls_schema.py": "torch",  # xgrammar imports it
    "handlers/chat/test_templates.py": "slow",
    "handlers/cli/test_api_key.py": "slow",
    "handlers/cli/test_chat_command.py": "slow",
    "handlers/cli/test_check_command.py": "torch",
    "handlers/cli/test_cli.py": "slow",
    "handlers/cli/test_generate_command.py": "slow",
    "handlers/cli/test_lacking_hosts.py": "torch",
    "handlers/cli/test_new_command.py": "slow",
    "handlers/cli/test_try_command.py": "slow",
    "handlers/container/test_processes.py": "slow",
    "handlers/http/bodies/test_compressed.py": "slow",
    "handlers/http/connections/test_number.py": "slow",
    "handlers/http/connections/test_places.py": "slow",
    "handlers/http/test_aborted_streams.py": "slow",
    "handlers/http/test_echoes.py": "slow",
    "handlers/http/test_held_loop.py": "slow",
    "handlers/http/test_server.py": "slow",
    "handlers/http/test_short_holds.py": "slow",
    "handlers/http/test_signals.py": "slow",
    "handlers/kserve_grpc/test_ends.py": "slow",
    "handlers/kserve_grpc/test_server.py": "slow",
    "handlers/lmi/test_adapter_weights.py": "torch",
    "handlers/management/test_archives.py": "slow",
    "handlers/management/test_full_disk.py": "slow",
    "handlers/management/test_idle.py": "slow",
    "handlers/management/test_multi_model.py": "slow",
    "handlers/management/test_scripts.py": "slow",
    "handlers/management/test_under_load.py": "torch",
    **{
        f"handlers/pages/test_{name}.py": "slow"
        for name in ("accessibility", "chat", "console", "docs", "key", "kinds", "other_origins", "requests", "tokens")
    },
    "handlers/pages/test_hello.py": "torch",
    "handlers/offline/test_model.py": "torch",
    "handlers/process/test_clock_jumps.py": "torch",
    "handlers/process/test_memory_limit.py": "torch",
    "handlers/process/test_resources.py": "slow",
    "handlers/process/test_shared_cache.py": "slow",
    "handlers/telemetry/test_served_log.py": "slow",
    "handlers/telemetry/test_tracing.py": "slow",
    "handlers/testing/test_plugin.py": "slow",
    "tools/docs/test_pages.py": "slow",
    "lmi/test_interface.py": "slow",
    "packaging": "torch",
    "plugins/backends/test_lmi_directories.py": "vllm",
    "plugins/backends/test_lmi_dist.py": "vllm",
    "plugins/backends/test_torch_aborted.py": "torch",
    "plugins/backends/test_torch_crowd.py": "torch",
    "plugins/backends/test_torch_served.py": "torch",
    "plugins/backends/test_vllm.py": "vllm",
    "plugins/torch_engine": "torch",
    "plugins/trtllm": "torch",
    "plugins/vllm_engine": "vllm",
    "soak": "torch",
}
# Tests that ask for one of these fixtures, themselves or through another, need the engine behind it.
NEEDS_OF_FIXTURES = {"vllm": "vllm", "vllm_environment": "vllm"}


def marker_of_path(path: Path) -> str | None:
    """Return what all tests in this file or folder need, or None."""
    names = path.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    folders = ("/".join(names[:depth]) for depth in range(1, len(names) + 1))
    return next((NEEDS[folder] for folder in folders if folder in NEEDS), None)


def add_markers(item: pytest.Item) -> None:
    """Mark a test with what its folder, its file and its fixtures need."""
    found = {marker_of_path(item.path)}
    found |= {marker for fixture, marker in NEEDS_OF_FIXTURES.items() if fixture in getattr(item, "fixturenames", ())}
    for marker in found - {None}:
        item.add_marker(str(marker))


def is_fast(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(marker) for marker in MARKERS)


def loaded_libraries() -> set[str]:
    """Return which engines' libraries this process has imported."""
    return {name for name in LIBRARIES if name in sys.modules}


def check_paths() -> None:
    """Refuse a path that was moved, whose tests would silently lose their marker."""
    missing = [path for path in NEEDS if not (ROOT / path).exists()]
    if missing:
        raise pytest.UsageError(f"tests/markers.py names what does not exist: {', '.join(missing)}")
