"""Declarations of what moves tensors between devices and between ranks."""
