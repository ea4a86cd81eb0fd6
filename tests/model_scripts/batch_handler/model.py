from djl_python import Input, Output

adapters = {}


def register_adapter(inputs: Input):
    adapters[inputs.get_property("name")] = inputs.get_property("src")
    return Output().add("registered")


def unregister_adapter(inputs: Input):
    if inputs.get_property("name") not in adapters:
        return Output().error("no such adapter")
    del adapters[inputs.get_property("name")]
    return Output().add("unregistered")


def handle(inputs: Input):
    if inputs.is_empty():
        return None
    outputs = Output()
    texts = [item.get_as_json()["text"] for item in inputs.get_batches()]
    if "stream" in texts:
        outputs.add_stream_content(iter(["a"]))
        return outputs
    if "too few" in texts:
        return outputs.add_as_json("only one")
    if "teapot" in texts:
        return outputs.error("all of you", code=418)
    for i, text in enumerate(texts):
        outputs.add_as_json({"text": text, "of": inputs.get_batch_size(), "adapters": sorted(adapters)}, batch_index=i)
    return outputs
