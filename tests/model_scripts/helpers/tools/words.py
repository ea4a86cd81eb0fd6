from tools import units


def count(data):
    return str(len(data["generated_text"].split())) + units.UNIT
