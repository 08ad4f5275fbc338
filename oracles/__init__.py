"""Who JUDGES: an op and a sample in, a verdict out."""
