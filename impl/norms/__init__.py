"""Normalisation ops."""
