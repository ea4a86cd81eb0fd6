import os

import numpy as np

from djl_python import Input
from djl_python.input_parser import init_handler, input_formatter, prediction_handler
from djl_python.output_formatter import output_formatter


@init_handler
def custom_init(model_dir, **kwargs):
    with open(os.path.join(model_dir, "factor.txt")) as f:
        return float(f.read())


@input_formatter
def custom_input(inputs: Input, **kwargs):
    data = inputs.get_as_json()
    return np.array(data.get("features", data.get("inputs")))


@prediction_handler
def custom_predict(X, model, **kwargs):
    return {"predictions": X * model}


@output_formatter
def custom_output(predictions):
    return {"predictions": predictions["predictions"], "served_by": "model.py"}
