import json
from typing import Any

from djl_python import Input
from djl_python.encode_decode import decode
from djl_python.input_parser import input_formatter
from djl_python.output_formatter import TextGenerationOutput, output_formatter
from djl_python.request_io import RequestInput, TextInput


class TracedInput(TextInput):
    trace: Any


@input_formatter
def read_question(input_item: Input, **kwargs) -> RequestInput:
    body = decode(input_item, input_item.get_property("Content-Type"))
    request = TracedInput()
    request.input_text = "Q: " + body["question"]
    request.parameters = {"max_new_tokens": 3, **body.get("options", {})}
    request.trace = [body.get("trace"), kwargs["configs"].rolling_batch, len(kwargs["tokenizer"].encode("a b c"))]
    return request


@output_formatter
def answer(request_output: TextGenerationOutput) -> str:
    seq = request_output.sequences[request_output.best_sequence_index]
    token, _, last = seq.get_next_token()
    if not last:
        return ""
    text = "".join(t.text for t in seq.tokens)
    return json.dumps({"answer": text, "prompt": request_output.input.input_text, "trace": request_output.input.trace})
