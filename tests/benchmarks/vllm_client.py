"""vLLM's own benchmark client, `vllm bench serve`, told when to run: `python -m tests.benchmarks.vllm_client`.

Each line of its input is a JSON array of words as on its command line; each answer is what it found.
"""

import json
import os
import sys
from typing import Any

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser


def found(result: dict[str, Any]) -> dict[str, Any]:
    """Return what the benchmark takes of the client's own result."""
    return {
        "tokens": result["total_output_tokens"],
        "seconds": result["duration"],
        "first_token_seconds": result["ttfts"],
        "longest_gaps": [max(each, default=0.0) for each in result["itls"]],
        "errors": sorted({error for error in result["errors"] if error}),
    }


def main() -> None:
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where the client prints its tables
        for line in sys.stdin:
            result = serve.main(parser.parse_args([*json.loads(line), "--disable-tqdm", "--save-detailed"]))
            print(json.dumps(found(result)), file=answers, flush=True)


if __name__ == "__main__":
    main()
