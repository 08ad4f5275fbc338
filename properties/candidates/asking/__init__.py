"""What asks each question of `questions.QUESTIONS`, a module per kind."""

from .. import questions
from . import gradients, history, likely, memory, process, sizes, values

#: code -> what asks it, in the table's order.
ASKING = questions.bind_questions(
    {
        **values.ASKING,
        **history.ASKING,
        **memory.ASKING,
        **gradients.ASKING,
        **sizes.ASKING,
        **process.ASKING,
        **likely.ASKING,
    }
)
