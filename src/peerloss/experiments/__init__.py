"""Experiments that reproduce the paper and go beyond it."""
