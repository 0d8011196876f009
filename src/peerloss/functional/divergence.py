"""Deprecated: `peerloss.functional.information` holds the f-divergence losses."""

from peerloss._deprecation import renamed

_NAMES = ("DIVERGENCES", "batch_divergence_loss", "f_divergence_loss")

__getattr__ = renamed(__name__, {name: f"peerloss.functional.information.{name}" for name in _NAMES})
