"""How one sample is judged: the op is run along a path, held to the bound, counted; a card tells what is outside."""
