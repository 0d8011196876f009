"""Scores that noisy labels can give."""

from peerloss.metrics._peer_score import make_peer_scorer, peer_score, peer_scorer

__all__ = ["make_peer_scorer", "peer_score", "peer_scorer"]
