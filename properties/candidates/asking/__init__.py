"""The functions that answer the questions of `table.QUESTIONS`, one module per kind of question."""

from ...table import QUESTIONS, bind
from . import gradients, later_calls, likely, output_values, process, sizes, unread

#: code -> the function that answers the question, in the table's order.
ASKING = bind(
    {
        **output_values.ASKING,
        **later_calls.ASKING,
        **gradients.ASKING,
        **sizes.ASKING,
        **unread.ASKING,
        **process.ASKING,
        **likely.ASKING,
    },
    QUESTIONS,
)
