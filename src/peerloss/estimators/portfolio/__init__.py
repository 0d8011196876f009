"""The portfolio of :class:`~peerloss.PeerClassifier`: several models, cross-fitted and averaged.

``_candidates``
    The models and networks that are tried, with their settings.
``_fold_networks``
    Trains the networks of all folds in one batch.
``_fit_portfolio``
    Fits every candidate to every fold, calibrates it out of fold, weights the candidates by their Brier
    scores on the noisy labels and averages them.
"""

from peerloss.estimators.portfolio._fit_portfolio import Member, Portfolio, fit_portfolio
from peerloss.estimators.portfolio._fold_networks import GPU_FEATURES, FoldNet

__all__ = ["GPU_FEATURES", "FoldNet", "Member", "Portfolio", "fit_portfolio"]
