"""What a declaration is made of: arguments by name, laws, refusals, and what samples have in common."""
