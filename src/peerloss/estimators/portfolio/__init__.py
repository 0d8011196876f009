"""The portfolio of :class:`~peerloss.PeerClassifier`: several models, weighted and averaged.

``_candidates``     models of scikit-learn and networks; their capacity grows with the rows;
``_held_out_fits``  probabilities of each row from models that have not seen its label;
``_kernel_ridge``   smooth models whose folds and penalties are fitted together;
``_spread_labels``  a candidate that learns from rows without a label;
``_fit_portfolio``  the weights, and the complete fit.
"""

from peerloss.estimators.portfolio._candidates import GPU_FEATURES, FoldBooster, FoldNet, SparseLogistic
from peerloss.estimators.portfolio._fit_portfolio import Member, Portfolio, fit_portfolio
from peerloss.estimators.portfolio._kernel_ridge import KernelRidge

__all__ = [
    "GPU_FEATURES",
    "FoldBooster",
    "FoldNet",
    "KernelRidge",
    "Member",
    "Portfolio",
    "SparseLogistic",
    "fit_portfolio",
]
