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
        yield word
    if text.endswith("!"):
        raise ValueError("the end is too loud")


def loop():
    while True:
        pass


def raise_error(error):
    raise error


FAULTS = {
    "error": lambda: Output().error("no such thing", code=418, message="teapot"),
    "raise": lambda: raise_error(KeyError("colour")),
    "exit": lambda: sys.exit(3),
    "die": lambda: os._exit(7),
    "loop": loop,
    "memory": lambda: raise_error(MemoryError("too big")),
    "allocation": lambda: raise_error(RuntimeError("not enough memory: you tried to allocate 8 bytes")),
    "wrong": lambda: "text",
    "nothing": lambda: None,
}


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
    return answer(inputs.get_as_json())


def answer(data):
    what = data.get("what")
    if what in FAULTS:
        return FAULTS[what]()
    if what == "loaded":
        return Output().add_as_json({**loaded_with, "shared": shared.NAME, "pid": os.getpid()})
    if what == "finished":
        return Output().add(finished)
    if what == "finalize":
        return Output().add("done").finalize(finished.append, "yes")
    if what == "stream":
        outputs = Output()
        outputs.add_property("content-type", "application/jsonlines")
        outputs.add_stream_content(stream(data["text"]))
        return outputs
    if what == "together":
        open(os.path.join(data["folder"], str(os.getpid())), "w").close()
        while len(os.listdir(data["folder"])) < data["workers"]:
            time.sleep(0.001)
        return Output().add(str(os.getpid()))
    return Output().add(loaded_with["prefix"] + data["text"])
