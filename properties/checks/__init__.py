"""The checks: what each property asks of one sample.

A check takes a judge and a sample, tells the judge's tally what it judged, and raises `Violation` at the first broken
promise. The codes must be exactly those of `properties.table`, or this import fails.
"""

from ..table import bound
from .autocast import autocast
from .calls.independence import independent
from .comm.devices import communicated
from .compiling.compilation import compiled
from .determinism import deterministic
from .exact_data import exact_data
from .fake import fakes
from .invariance import invariant
from .laws import laws
from .layout import layouts
from .needs import needed
from .purity import dual, memory, pure
from .refusals import refused
from .saved import saved
from .sizes import sized
from .special import specials
from .transforms.agree import agreeing
from .transforms.forward_ad import forward_ad
from .transforms.nesting import nested, words
from .transforms.values import adjoint, forward, forward_and_reverse, reverse, second, tangent, third
from .transforms.vmap import vmapped
from .ways.calling import called_in_other_ways

CHECKS = bound(
    {
        "FWD": forward,
        "VJP": reverse,
        "JVP": tangent,
        "ORD2": second,
        "ORD3": third,
        "ADJ": adjoint,
        "VMAP": vmapped,
        "NEST": nested,
        "WORD": words,
        "DUAL": dual,
        "LAW": laws,
        "DATA": exact_data,
        "LAYOUT": layouts,
        "SPECIAL": specials,
        "EMPTY": forward_and_reverse,
        "ERROR": refused,
        "PURE": pure,
        "FAKE": fakes,
        "COMP": compiled,
        "DET": deterministic,
        "SIZE": sized,
        "INV": invariant,
        "AUTOCAST": autocast,
        "MEM": memory,
        "COMM": communicated,
        "SAVE": saved,
        "CALLS": independent,
        "NEEDS": needed,
        "AGREE": agreeing,
        "FWAD": forward_ad,
        "WAYS": called_in_other_ways,
    }
)
