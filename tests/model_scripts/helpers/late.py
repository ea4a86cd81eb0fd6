import helper

VALUE = helper.LABEL + " again"
