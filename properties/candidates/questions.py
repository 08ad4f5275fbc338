"""Groups of the questions of `table.QUESTIONS`."""

#: Questions whose values are read again when all was asked: under every rung of terms, and with random errors. At
#: OFFSET and NEARONE elements cancel.
OF_ARITHMETIC = ("GIVEN", "SEEDS", "SIGNS", "BITS")
#: Questions at inputs that the user gives or that are like them: all of an output has to be judged there.
OF_DATA = ("GIVEN", "SEEDS", "SIGNS")
OF_LIKELY = ("GIVEN", "SEEDS", "OFFSET", "NEARONE")
#: Questions whose outputs say nothing of the spec where they are equal: at special inputs, and at the given ones again.
OF_ITSELF = frozenset({"ZEROS", "SMALL", "AGAIN", "STRIDES", "ALIGN", "POISON", "COMPILED"})
