"""Peer prediction: pay for reports without gold labels so that telling the truth pays best.

Every mechanism is a K×K matrix ``S[own report, peer's report]``; correlated agreement also subtracts what
two unrelated tasks would show, which takes the reward from uninformed reports.
"""

from peerloss.peer_prediction._matrices import (
    expected_ca_score,
    expected_score,
    logarithmic_matrix,
    quadratic_matrix,
)
from peerloss.peer_prediction._mechanisms import (
    correlated_agreement,
    estimate_joint,
    logarithmic_score,
    plain_agreement,
    quadratic_score,
)
from peerloss.peer_prediction._reports import Reports
from peerloss.peer_prediction._simulate import (
    Strategy,
    constant,
    majority_guess,
    permuted,
    random_guess,
    simulate_reports,
    truthful,
)

__all__ = [
    "Reports",
    "Strategy",
    "constant",
    "correlated_agreement",
    "estimate_joint",
    "expected_ca_score",
    "expected_score",
    "logarithmic_matrix",
    "logarithmic_score",
    "majority_guess",
    "permuted",
    "plain_agreement",
    "quadratic_matrix",
    "quadratic_score",
    "random_guess",
    "simulate_reports",
    "truthful",
]
