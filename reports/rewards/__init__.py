"""Rewards of models that write kernels, and environments of libraries that train them."""
