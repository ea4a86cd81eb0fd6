from lmi_core.formatter import GenerationOutput, output_formatter


@output_formatter(headers={"X-Style": "report"})
def report(output: GenerationOutput) -> dict | None:
    if output.error is not None:
        return {"failed": output.error.message, "after": output.text}
    if not output.is_last:
        return None
    return {
        "text": output.text,
        "why": output.finish_reason,
        "tokens": list(output.usage),
        "limit": output.parameters.max_new_tokens,
    }
