"""Several devices under one program: what moves tensors between them, and the sums, parts and copies made of it."""
