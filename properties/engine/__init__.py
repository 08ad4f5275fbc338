"""The engine: a cell in, a verdict out, in this process. It knows no other place."""
