"""Declarations of layer, group and batch norm."""
