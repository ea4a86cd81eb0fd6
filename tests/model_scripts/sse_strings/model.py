"""Custom output formatter"""

from djl_python.output_formatter import output_formatter
import json

@output_formatter
def custom_output_formatter(output, **kwargs):
    """
    Add custom fields
    """
    if hasattr(output, 'model_dump'): # Sync Pydantic Object
        output._adapter_name = "base"
        return output
    elif isinstance(output, str) and output.startswith("data: "): # Streaming SSE String
        if output.strip() != "data: [DONE]":
            data = json.loads(output[6:]) # Parse the JSON data after "data: "
            data["_adapter_name"] = "base"
            return f"data: {json.dumps(data)}"
    return output
