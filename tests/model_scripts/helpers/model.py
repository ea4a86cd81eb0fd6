import helper
from tools.words import count
from djl_python.output_formatter import output_formatter


@output_formatter
def label(response_data: dict) -> dict:
    import late  # only when the first answer is written

    return {"label": helper.LABEL, "words": count(response_data), "late": late.VALUE}
