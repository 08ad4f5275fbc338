"""What asks each question of `questions.QUESTIONS`, a module per kind."""

from .. import questions
from . import gradients, later_calls, likely, output_values, process, sizes

#: code -> what asks it, in the table's order.
ASKING = questions.bind_questions(
    {
        **output_values.ASKING,
        **later_calls.ASKING,
        **gradients.ASKING,
        **sizes.ASKING,
        **process.ASKING,
        **likely.ASKING,
    }
)
