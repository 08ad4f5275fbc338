"""What asks each question of `table.QUESTIONS`, a module per kind."""

from ...table import QUESTIONS, bind
from . import gradients, later_calls, likely, output_values, process, sizes

#: code -> what asks it, in the table's order.
ASKING = bind(
    {
        **output_values.ASKING,
        **later_calls.ASKING,
        **gradients.ASKING,
        **sizes.ASKING,
        **process.ASKING,
        **likely.ASKING,
    },
    QUESTIONS,
)
