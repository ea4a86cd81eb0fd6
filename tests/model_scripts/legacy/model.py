import json


def custom_output_formatter(token, first_token, last_token, details, generated_text, request_id):
    result = '{"outputs": [' if first_token else ", "
    result += json.dumps(token.text)
    if last_token:
        result += '], "generated_text": ' + json.dumps(generated_text)
        if details:
            result += ', "reason": ' + json.dumps(details["finish_reason"])
        result += "}"
    return result
