"""Pay annotators without gold labels, so that honest work pays best.

Twenty honest workers label 3000 tasks, few of which are positive; five more do not look at the tasks, or
report the opposite of what they see. Each row of the printed table is a strategy, each column a mechanism:

* plain agreement pays whoever always says the common label *more* than honest workers;
* correlated agreement (CA) pays those who do not look nothing, and the honest the most;
* the quadratic and the logarithmic score pay the honest the most too, when told the true joint distribution.

A last line shows the limit: when *everybody* swaps the labels, CA pays them as it pays truth, never more.

Run with ``python examples/truthful_scores.py``; it takes a few seconds.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from peerloss.noise import NoiseModel
from peerloss.peer_prediction import (
    Strategy,
    constant,
    correlated_agreement,
    logarithmic_score,
    majority_guess,
    permuted,
    plain_agreement,
    quadratic_score,
    random_guess,
    simulate_reports,
    truthful,
)
from peerloss.theory import delta_matrix

CLEAN_PRIOR = 0.1
NOISE = NoiseModel.binary(e_neg=0.1, e_pos=0.3)
N_TASKS, N_HONEST, SEED = 3000, 20, 0


def true_joint() -> np.ndarray:
    """P(own signal, peer's signal) of two honest workers: Tᵀ diag(π) T."""
    clean = np.diag([1.0 - CLEAN_PRIOR, CLEAN_PRIOR])
    return np.asarray(NOISE.transition.T @ clean @ NOISE.transition)


def score_table() -> pd.DataFrame:
    """Score honest workers beside one worker of each other strategy: strategies × mechanisms."""
    others: dict[str, Strategy] = {
        "majority guess": majority_guess(NOISE, CLEAN_PRIOR),
        "always positive": constant(1),
        "coin toss": random_guess(),
        "guess by frequency": random_guess(NOISE.noisy_prior(CLEAN_PRIOR)),
        "swapped": permuted(NOISE, [1, 0]),
    }
    honest = {f"honest {i}": truthful(NOISE) for i in range(N_HONEST)}
    table = simulate_reports(N_TASKS, honest | others, clean_prior=CLEAN_PRIOR, random_state=SEED)
    joint = true_joint()
    scores = pd.DataFrame(
        {
            "CA, Δ given": correlated_agreement(table, delta=delta_matrix(joint))["score"],
            "CA, Δ estimated": correlated_agreement(table)["score"],
            "quadratic": quadratic_score(table, joint=joint)["score"],
            "logarithmic": logarithmic_score(table, joint=joint)["score"],
            "plain agreement": plain_agreement(table)["score"],
        }
    )
    strategy = ["truth" if name in honest else name for name in scores.index]
    return scores.groupby(strategy, sort=False).mean().rename_axis("strategy")


def all_alike(strategy: Strategy) -> float:
    """Return the mean CA score when every worker follows the same strategy."""
    workers = {f"worker {i}": strategy for i in range(N_HONEST)}
    table = simulate_reports(N_TASKS, workers, clean_prior=CLEAN_PRIOR, random_state=SEED)
    return float(correlated_agreement(table)["score"].mean())


def main() -> None:
    """Print the table and the limit."""
    print(score_table().round(3).to_string())
    honest, swapped = all_alike(truthful(NOISE)), all_alike(permuted(NOISE, [1, 0]))
    print(f"\nCA when everybody is honest: {honest:.3f}; when everybody swaps: {swapped:.3f}.")


if __name__ == "__main__":
    main()
