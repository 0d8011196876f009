"""The portfolio of :class:`~peerloss.PeerClassifier`: several models, cross-fitted and averaged."""

from peerloss.estimators.portfolio._candidates import GPU_FEATURES, FoldNet
from peerloss.estimators.portfolio._fit_portfolio import Member, Portfolio, fit_portfolio, listening

__all__ = ["GPU_FEATURES", "FoldNet", "Member", "Portfolio", "fit_portfolio", "listening"]
