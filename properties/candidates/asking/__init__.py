"""The functions that ask the kinds of `table.KINDS`, several in a module."""

from ...table import KINDS, bind
from . import far, gradients, invariance, later_calls, likely, output_values, parity, process, ranks, sizes, unread

#: code -> the function that asks a kind, in the table's order.
ASKING = bind(
    {
        **output_values.ASKING,
        **later_calls.ASKING,
        **gradients.ASKING,
        **sizes.ASKING,
        **far.ASKING,
        **invariance.ASKING,
        **unread.ASKING,
        **process.ASKING,
        **likely.ASKING,
        **parity.ASKING,
        **ranks.ASKING,
    },
    KINDS,
)
