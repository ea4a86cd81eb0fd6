import json

from djl_python.output_formatter import RequestOutput, output_formatter


def text_of(sequence):
    return "".join(t.text for t in sequence.tokens)


@output_formatter
def number_the_tokens(request_output: RequestOutput):
    seq = request_output.sequences[request_output.best_sequence_index]
    out = ""
    while seq.has_next_token():
        token, index, _first_token, last_token = seq.get_next_token()
        out += f"{index}:{token.as_dict()['text'].strip()};"
        if last_token:
            out += json.dumps({"text": text_of(seq), "score": seq.cumulative_log_prob})
    return out
