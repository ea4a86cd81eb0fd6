from djl_python import Input, Output


def shown(item: Input):
    texts = [value.decode(errors="backslashreplace") for value in item.get_content().get_values()]
    content = list(zip(item.get_content().get_keys(), texts))
    whole = item.get_as_bytes().decode(errors="backslashreplace")
    return {"content": content, "properties": item.get_properties(), "whole": whole}


def handle(inputs: Input):
    if inputs.is_empty():
        return None
    outputs = Output()
    for i, item in enumerate(inputs.get_batches()):
        outputs.add_as_json(shown(item), batch_index=i if inputs.is_batch() else None)
    return outputs
