"""Scores that can be computed from noisy labels."""

from peerloss.metrics._noisy_scores import (
    CleanEstimate,
    clean_balanced_accuracy,
    make_peer_scorer,
    peer_score,
    peer_scorer,
)

__all__ = ["CleanEstimate", "clean_balanced_accuracy", "make_peer_scorer", "peer_score", "peer_scorer"]
