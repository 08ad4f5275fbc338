"""How far an evaluation in a number format may be from the exact value: contracts, balls, accept sets."""
