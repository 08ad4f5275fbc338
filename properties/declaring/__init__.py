"""The parts of a declaration: arguments by name, laws, refusals, and strategies for samples."""
