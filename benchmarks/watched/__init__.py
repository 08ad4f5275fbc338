"""Programs with random weights, which `../watched_models.py` runs under `opassay.watch`."""

from . import language, others, science, sound, vision
from .program import Program

MODULES = (language, vision, sound, science, others)
#: name -> a function of a size, 1 or more, that gives the program.
PROGRAMS = {
    name: make
    for module in MODULES
    for name, make in vars(module).items()
    if getattr(make, "__annotations__", {}) == {"size": "int", "return": "Program"}
}

__all__ = ["PROGRAMS", "Program"]
