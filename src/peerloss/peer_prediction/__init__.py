"""Peer prediction: pay for reports without gold labels so that truthful reports pay best.

Every mechanism is a K×K matrix ``S[own report, peer's report]``. Correlated agreement also subtracts the
score of reports on unrelated tasks, which takes the reward from uninformed reports.

:mod:`peerloss.crowd` applies these mechanisms to real crowds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.peer_prediction._mechanisms import (
        correlated_agreement,
        estimate_joint,
        logarithmic_score,
        plain_agreement,
        quadratic_score,
    )
    from peerloss.peer_prediction._score_matrices import (
        expected_ca_score,
        expected_score,
        logarithmic_matrix,
        quadratic_matrix,
    )
    from peerloss.peer_prediction._simulate import (
        Strategy,
        constant,
        majority_guess,
        permuted,
        random_guess,
        simulate_reports,
        truthful,
    )
    from peerloss.peer_prediction.reports import Reports

#: Module → public names that are imported from it.
_NAMES = {
    "_mechanisms": "correlated_agreement estimate_joint logarithmic_score plain_agreement quadratic_score",
    "_score_matrices": "expected_ca_score expected_score logarithmic_matrix quadratic_matrix",
    "_simulate": "Strategy constant majority_guess permuted random_guess simulate_reports truthful",
    "reports": "Reports",
}

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

__getattr__, __dir__ = lazy_names(__name__, _NAMES, modules=("reports", "shared_reports"))
