"""The order of the files among several processes: the longest first, so that none is left with one in the end.

All files of the shared vLLM engine go to the same process, as it would be started again in another one.
"""

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent
# Seconds on two busy cores, to no more than the order of magnitude; all other files take less.
SECONDS = {
    "plugins/vllm_engine/test_processes.py": 310,
    "clients/test_programs.py": 200,
    "plugins/vllm_engine/requests/test_sampling.py": 150,  # with all files of the shared engine
    "clients/test_ray.py": 250,
    "clients/test_resumed_kinds.py": 100,
    "handlers/cli/test_fronts.py": 65,
    "plugins/torch_engine/worker/test_resumed.py": 65,
    "examples/test_hello_served.py": 50,
    "plugins/torch_engine/test_fuzzed_bodies.py": 50,
    "soak/test_soak.py": 50,
    "docs/test_sessions.py": 45,
    "packaging/test_distributions.py": 45,
    "plugins/torch_engine/worker/test_frozen.py": 40,
    "handlers/http/test_aborted_streams.py": 40,
    "core/remote/archives/test_gguf_file.py": 35,
    "handlers/process/test_clock_jumps.py": 35,
    "plugins/backends/test_torch_aborted.py": 35,
    "plugins/torch_engine/guides/test_guided.py": 30,
    "plugins/torch_engine/model/graph/test_openvino_runner.py": 30,
    "plugins/torch_engine/speculation/test_speculation.py": 30,
    "plugins/trtllm/test_infer.py": 30,
    "handlers/http/documentation/test_document.py": 30,
    "handlers/http/test_signals.py": 30,
    "handlers/management/test_under_load.py": 30,
    "handlers/process/test_memory_limit.py": 30,
    "handlers/cli/test_check_command.py": 25,
    "plugins/backends/test_torch_crowd.py": 25,
    "plugins/torch_engine/beams/test_search.py": 25,
    "plugins/torch_engine/checkpoint/test_pickles.py": 25,
    "plugins/trtllm/test_served.py": 25,
    "plugins/vllm_engine/requests/test_transfer.py": 25,
    "clients/test_openai_torch.py": 25,
    "clients/test_resumption.py": 25,
    "packaging/test_new_package.py": 25,
    "plugins/torch_engine/embeddings/test_served.py": 25,
    "plugins/torch_engine/guides/test_costly_guides.py": 25,
    "plugins/vllm_engine/test_embeddings.py": 20,
    "handlers/cli/test_lacking_hosts.py": 20,
    "handlers/http/connections/test_number.py": 20,
    "handlers/kserve_grpc/test_child_processes.py": 20,
    "handlers/pages/test_hello.py": 20,
    "handlers/pages/test_requests.py": 20,
    "handlers/pages/test_console.py": 15,
    "core/script/test_environment.py": 15,
}
OF_ONE_ENGINE = frozenset(
    f"plugins/{name}.py"
    for name in (
        "backends/test_vllm",
        "vllm_engine/adapters/test_loaded",
        "vllm_engine/adapters/test_output_layer",
        "vllm_engine/outputs/test_beams_over_http",
        "vllm_engine/outputs/test_generation",
        "vllm_engine/outputs/test_token_details",
        "vllm_engine/requests/test_bad_texts",
        "vllm_engine/requests/test_cpu_seeds",
        "vllm_engine/requests/test_guided_reasoning",
        "vllm_engine/requests/test_guides",
        "vllm_engine/requests/test_images",
        "vllm_engine/requests/test_logits_processors",
        "vllm_engine/requests/test_markers",
        "vllm_engine/requests/test_sampling",
        "vllm_engine/requests/test_verification",
        "vllm_engine/requests/test_vllm_fields",
        "vllm_engine/test_engine",
        "vllm_engine/test_speculation",
        "vllm_engine/test_statistics",
    )
)


class FilesOfOneEngine(LoadFileScheduling):  # type: ignore[misc]  # which has no types
    """xdist's distribution by files, of which those of the shared engine count as one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "the shared engine" if file.removeprefix("tests/") in OF_ONE_ENGINE else file

    def _reschedule(self, node: WorkerController) -> None:
        """Give the process tests until it has two, or the last one, as it runs one only when it knows the next.

        xdist itself gives one that replaces a dead process a single file, of which that may have run all tests; the
        run then stands still.
        """
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@cache
def seconds_of(path: Path) -> int:
    """Return about how long the tests of a file take where that is long, and 0 otherwise."""
    return SECONDS.get(path.relative_to(ROOT).as_posix(), 0) if path.is_relative_to(ROOT) else 0
