UNIT = " words"
