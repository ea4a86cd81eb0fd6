import os

from djl_python import Input, Output
from djl_python.huggingface import HuggingFaceService
from djl_python.streaming_utils import StreamingUtils


class MyService(HuggingFaceService):

    def initialize(self, properties):
        properties = dict(properties, enable_streaming="true")
        super().initialize(properties)

    def own_stream(self, prompts, parameters):
        stream_generator = StreamingUtils.get_stream_generator("Accelerate")
        outputs = Output()
        outputs.add_property("content-type", "application/jsonlines")
        outputs.add_stream_content(stream_generator(self.model, self.tokenizer, prompts, "cpu", **parameters))
        return outputs


service = MyService()


def handle(inputs: Input):
    if not service.initialized:
        service.initialize(inputs.get_properties())
    if inputs.is_empty():
        return None
    body = inputs.get_as_json()
    if "own" in body:
        return service.own_stream(body["own"], body.get("parameters", {}))
    return service.inference(inputs)
