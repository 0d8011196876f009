"""Scores that can be computed from noisy labels."""

from peerloss.metrics._balanced_accuracy import CleanEstimate, clean_balanced_accuracy
from peerloss.metrics._peer_score import make_peer_scorer, peer_score, peer_scorer

__all__ = ["CleanEstimate", "clean_balanced_accuracy", "make_peer_scorer", "peer_score", "peer_scorer"]
