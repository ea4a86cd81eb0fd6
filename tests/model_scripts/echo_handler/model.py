import os
import sys
import time

from djl_python import Input, Output
from djl_python.encode_decode import decode, encode

import shared

finished = []
loaded_with = None


def load_model(properties):
    return {"prefix": properties.get("prefix", ""), "dir": properties["model_dir"], "cwd": os.getcwd()}


def stream(text):
    for word in text.split():
        yield {"word": word}
    if text.endswith("!"):
        raise ValueError("the end is too loud")


def handle(inputs: Input) -> Output:
    global loaded_with
    if loaded_with is None:
        loaded_with = load_model(inputs.get_properties())
    if inputs.is_empty():
        return None

    content_type = inputs.get_property("Content-Type")
    if content_type.startswith("text/csv"):
        return Output().add_as_json(inputs.get_as_csv())
    if content_type.startswith("application/octet-stream"):
        return Output().add(bytes(reversed(inputs.get_as_bytes()))).add_property("X-Length", "%d" % len(inputs.get_as_bytes()))
    if content_type.startswith("tensor/"):
        outputs = Output()
        encode(outputs, [a * 2 for a in decode(inputs, content_type)["inputs"]], "tensor/ndlist")
        return outputs

    data = inputs.get_as_json()
    what = data.get("what")
    if what == "loaded":
        return Output().add_as_json({**loaded_with, "shared": shared.NAME, "pid": os.getpid()})
    if what == "finished":
        return Output().add(finished)
    if what == "finalize":
        return Output().add("done").finalize(finished.append, "yes")
    if what == "error":
        return Output().error("no such thing", code=418, message="teapot")
    if what == "raise":
        raise KeyError("colour")
    if what == "exit":
        sys.exit(3)
    if what == "die":
        os._exit(7)
    if what == "loop":
        while True:
            pass
    if what == "memory":
        raise MemoryError("too big")
    if what == "wrong":
        return "text"
    if what == "nothing":
        return None
    if what == "stream":
        outputs = Output()
        outputs.add_property("content-type", "application/jsonlines")
        outputs.add_stream_content(stream(data["text"]))
        return outputs
    if what == "slow":
        open(data["started"], "w").close()
        time.sleep(0.05)
        return Output().add(str(os.getpid()))
    return Output().add(loaded_with["prefix"] + data["text"])
