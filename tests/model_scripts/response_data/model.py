from djl_python.output_formatter import output_formatter


@output_formatter
def add_fields(response_data: dict) -> dict:
    if "generated_text" in response_data and response_data["generated_text"]:
        response_data["generated_text"] = response_data["generated_text"].upper()
    response_data["served_by"] = "team-a"
    return response_data
