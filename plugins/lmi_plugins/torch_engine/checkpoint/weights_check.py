"""The check that a checkpoint's weights match its configuration."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from lmi_core.inspection.checkpoint import abridge

# Older versions of transformers saved these, although every model computes them itself.
BUFFERS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|attn\.(masked_)?bias|attention\.(masked_)?bias|position_ids)$")
POOLER = re.compile(r"(^|\.)pooler\.")  # not used for embeddings
CAUSE = "config.json describes a different model than the checkpoint, or files of the checkpoint are missing"


LoadingInfo = Mapping[str, Any]


def wrong_weights(loading_info: LoadingInfo) -> str | None:
    """Return the fault of the weights in transformers' `loading_info`, or None."""
    shapes = {
        f"{name} has the shape {list(found)} instead of {list(wanted)}"
        for name, found, wanted in loading_info["mismatched_keys"]
    }
    unexpected = {name for name in loading_info["unexpected_keys"] if not BUFFERS.search(name)}
    faults = [
        *_fault("missing", loading_info["missing_keys"]),
        *_fault("of another shape", shapes),
        *_fault("not in the model", unexpected),
    ]
    return f"{'; '.join(faults)}: {CAUSE}" if faults else None


def wrong_weights_of_base(loading_info: LoadingInfo) -> str | None:
    """Return the fault of the weights of a model without its head; the checkpoint may contain the head's weights."""
    needed = {name for name in loading_info["missing_keys"] if not POOLER.search(name)}
    return wrong_weights({**loading_info, "missing_keys": needed, "unexpected_keys": set()})


def wrong_weights_of_scorer(loading_info: LoadingInfo) -> str | None:
    """Return the fault of a classifier's weights; the checkpoint may contain those of layers that it leaves out."""
    return wrong_weights({**loading_info, "unexpected_keys": set()})


def _fault(what: str, names: Collection[str]) -> list[str]:
    if not names:
        return []
    weights = "weight is" if len(names) == 1 else "weights are"
    return [f"{len(names)} {weights} {what} ({abridge(names)})"]
