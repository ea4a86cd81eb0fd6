from djl_python.fastertransformer import handle
