"""All programs by name; some need transformers, which is no requirement of the tests."""

from . import language, others, science, sound, vision

MODULES = (language, vision, sound, science, others)
#: name -> a function of a size, 1 or more, that gives the program.
PROGRAMS = {
    name: make
    for module in MODULES
    for name, make in vars(module).items()
    if getattr(make, "__annotations__", {}) == {"size": "int", "return": "Program"}
}
