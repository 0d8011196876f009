"""The portfolio of :class:`~peerloss.PeerClassifier`: several models, weighted and averaged.

``_candidates``     the models of scikit-learn; their capacity grows with the rows;
``_fold_networks``  the networks;
``_held_out_fits``  probabilities of each row from models that have not seen its label;
``_simplex``        the weights;
``_fit_portfolio``  the complete fit.
"""

from peerloss.estimators.portfolio._fit_portfolio import Member, Portfolio, fit_portfolio, listening
from peerloss.estimators.portfolio._fold_networks import GPU_FEATURES, FoldNet

__all__ = ["GPU_FEATURES", "FoldNet", "Member", "Portfolio", "fit_portfolio", "listening"]
