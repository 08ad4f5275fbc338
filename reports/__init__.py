"""What is TOLD: records in, files out; never torch."""
