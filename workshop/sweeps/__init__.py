"""Sweeps: errors of a device's elementary functions, measured on all arguments of a format."""
