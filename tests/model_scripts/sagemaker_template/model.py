from __future__ import absolute_import

from djl_python.inputs import Input
from djl_python.outputs import Output


class HandleTemplate:
    def __init__(self):
        self.initialized = False
        self.handle = None

    def initialize(self, inputs: Input):
        self.initialized = True

        if "DeepSpeed" == inputs.get_property("engine"):
            from djl_python.deepspeed import handle
        elif "FasterTransformer" == inputs.get_property("engine"):
            from djl_python.fastertransformer import handle
        else:
            from djl_python.huggingface import handle

        self._handle = handle


_handle_template = HandleTemplate()


def handle(inputs: Input) -> Output:
    """Driver function required by djl-serving"""
    if not _handle_template.initialized:
        _handle_template.initialize(inputs)

    return _handle_template._handle(inputs)
