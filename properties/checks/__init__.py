"""The checks: what each property asks of one sample.

A check takes a judge and a sample, tells the judge's tally what it judged, and raises `Violation` at the first broken
promise. The codes must be exactly those of `properties.table`, or this import fails.
"""

from ..table import PROPERTIES, bind
from .autocast import check_autocast
from .calls.independence import check_independence
from .comm.devices import check_places
from .compiling.compilation import check_compilation
from .determinism import check_determinism
from .exact_data import check_exact_data
from .fake import check_fakes
from .invariance import check_invariance
from .laws import check_laws
from .layout import check_layouts, check_sizes
from .needs import check_needs
from .purity import check_memory, check_primal, check_purity
from .refusals import check_refusals
from .saved import check_saved_tensors
from .special import check_special_values
from .transforms.agree import check_agreement
from .transforms.nesting import check_nesting, check_words
from .transforms.values import (
    check_adjointness,
    check_empty,
    check_forward_ad,
    check_jvp,
    check_second_order,
    check_third_order,
    check_values,
    check_vjp,
)
from .transforms.vmap import check_vmap
from .ways.calling import check_ways

CHECKS = bind(
    {
        "FWD": check_values, "VJP": check_vjp, "JVP": check_jvp, "ORD2": check_second_order, "ORD3": check_third_order,
        "ADJ": check_adjointness, "VMAP": check_vmap, "NEST": check_nesting, "WORD": check_words, "DUAL": check_primal,
        "LAW": check_laws, "DATA": check_exact_data, "LAYOUT": check_layouts, "SPECIAL": check_special_values,
        "EMPTY": check_empty, "ERROR": check_refusals, "PURE": check_purity, "FAKE": check_fakes,
        "COMP": check_compilation, "DET": check_determinism, "SIZE": check_sizes, "INV": check_invariance,
        "AUTOCAST": check_autocast, "MEM": check_memory, "COMM": check_places, "SAVE": check_saved_tensors,
        "CALLS": check_independence, "NEEDS": check_needs, "AGREE": check_agreement, "FWAD": check_forward_ad,
        "WAYS": check_ways,
    },
    PROPERTIES,
)  # fmt: skip
