NAME = "beside model.py"
