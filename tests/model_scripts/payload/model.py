from djl_python.input_parser import input_formatter


@input_formatter
def rename(decoded_payload, tokenizer=None):
    if "inputPrompt" in decoded_payload:
        decoded_payload["inputs"] = decoded_payload.pop("inputPrompt")
    if tokenizer is not None:
        decoded_payload.setdefault("parameters", {})["max_new_tokens"] = len(tokenizer.encode("one two"))
    return decoded_payload
