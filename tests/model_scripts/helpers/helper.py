LABEL = "first"
