"""Kernels that choose by values, as routers and samplers do, and kernels that draw: right ones, and mistakes."""
