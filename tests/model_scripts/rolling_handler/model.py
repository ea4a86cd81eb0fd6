"""A rolling batch: each call gives the next word of every request's text."""

import os
import time

from djl_python import Input, Output

calls = []  # what each call got: the size of the batch, and the contents of each item
requests = []
finished = []


class Request:
    def __init__(self, item: Input):
        self.data = item.get_as_json()
        self.words = self.data["text"].split()
        self.seed = item.get_as_string("seed")
        self.properties = item.get_properties()
        self.waits = self.data.get("waits", 0)
        self.begun = False
        self.company = 0

    @property
    def gates(self):
        names = ("gate", "later_gate") if self.begun else ("gate",)
        return [self.data[name] for name in names if name in self.data]

    def next(self):
        self.begun = True
        self.company = max(self.company, len(requests))
        if self.company < self.data.get("company", 0):
            time.sleep(0.001)
            return {"data": "", "last": False}
        if self.waits:
            self.waits -= 1
            return {"data": "", "last": False}
        if not self.words:
            return {"data": "", "last": True}
        word = self.words.pop(0)
        return {"data": word + " ", "last": not self.words}


def seen(item: Input):
    return [item.get_content().get_keys(), item.get_as_string("data")]


def answer(request: Request, index: int, outputs: Output):
    fields = request.next()
    if request.data.get("wrong"):
        return outputs.add(request.data["wrong"], key="data", batch_index=index)
    if request.data.get("json_error") and fields["last"]:
        return outputs.add_as_json({"data": '{"code": 418, "error": "teapot"}', "last": True}, batch_index=index)
    if request.data.get("error") and fields["last"]:
        fields = {"data": "", "last": True, "code": 418, "error": request.data["error"]}
    if request.data.get("type"):
        outputs.add_property(f"batch_{index}_Content-Type", request.data["type"])
    if request.data.get("binary"):
        return outputs.add(Output.binary_encode(fields), key="data", batch_index=index)
    return outputs.add_as_json(fields, batch_index=index) if "error" not in fields else outputs.add(
        Output.binary_encode(fields), key="data", batch_index=index
    )


def handle(inputs: Input):
    global requests
    if inputs.is_empty():
        return None
    if inputs.get_property("reset_rollingbatch"):
        requests = []
    batch = inputs.get_batches()
    calls.append({"size": inputs.get_batch_size(), "items": [seen(item) for item in batch]})
    assert len(requests) <= len(batch), "mismatch rolling batch requests"
    requests += [Request(item) for item in batch[len(requests) :]]
    while not all(os.path.exists(gate) for request in requests for gate in request.gates):
        time.sleep(0.001)
    for request in requests:
        time.sleep(request.data.get("sleep", 0))
        if request.data.get("raise") and not request.words[1:]:
            raise ValueError(request.data["raise"])
    outputs = Output()
    for index, request in enumerate(requests):
        if request.data.get("refuse"):
            return Output().error("all of you", code=418)
        if request.data.get("tell"):
            told = {"calls": calls, "properties": request.properties, "seed": request.seed}
            outputs.add_as_json({"data": told, "last": True}, batch_index=index)
            request.words = []
        else:
            answer(request, index, outputs)
    requests = [request for request in requests if request.words or request.waits]
    return outputs.finalize(finished.append, len(batch))


def register_adapter(inputs: Input):
    calls.append({"adapter": inputs.get_property("name")})
    return Output()
