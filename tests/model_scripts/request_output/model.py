import json

from djl_python.output_formatter import TextGenerationOutput


# LMI v0.28: found by its name alone
def custom_output_formatter(request_output: TextGenerationOutput) -> str:
    best_sequence = request_output.sequences[request_output.best_sequence_index]
    token, is_first, is_last = best_sequence.get_next_token()
    line = {"tok": token.text, "first": is_first}
    if is_last:
        line["reason"] = best_sequence.finish_reason
        line["n"] = len(best_sequence.tokens)
        line["prompt"] = request_output.input.input_text
        line["asked_for"] = request_output.input.parameters.get("max_new_tokens")
    return json.dumps(line) + "\n"
