"""What checks the checker: the exact reading against a second one, and the rounding reading against evaluations."""
