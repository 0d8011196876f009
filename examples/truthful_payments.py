"""What would you earn? A budget of 100 among annotators, shared by truthful scores or by plain agreement.

Nineteen people look at the tasks and say what they see; one in ten tasks is positive. The twentieth may look
too, or save the effort and say something else. Each row is what that one worker is paid for such a strategy.

* By **plain agreement** saying "negative" always pays more than honest work.
* By **correlated agreement** (CA), the score behind `score_annotators(..., budget=...)`, who does not look is
  paid next to nothing, and honest work pays best.

The last lines show two limits: when *everybody* swaps the labels, CA pays them as it pays truth, never more;
and a worker who copies is paid, but `find_copiers` names the pair.

Run with ``python examples/truthful_payments.py``; nothing is needed but the package.
"""

from __future__ import annotations

import pandas as pd

from peerloss.audit import find_copiers, score_annotators, split_budget
from peerloss.noise import NoiseModel
from peerloss.peer_prediction import (
    Strategy,
    constant,
    correlated_agreement,
    permuted,
    plain_agreement,
    random_guess,
    simulate_reports,
    truthful,
)

BUDGET = 100
CLEAN_PRIOR = 0.1
NOISE = NoiseModel.binary(e_neg=0.1, e_pos=0.3)
N_TASKS, N_WORKERS = 500, 20
SEEDS = range(200, 208)

CHOICES: dict[str, Strategy] = {
    "look and tell": truthful(NOISE),
    "always say negative": constant(0),
    "always say positive": constant(1),
    "guess, as often as others": random_guess(NOISE.noisy_prior(CLEAN_PRIOR)),
    "toss a coin": random_guess(),
    "look and tell the opposite": permuted(NOISE, [1, 0]),
}


def payments(choice: Strategy, seed: int) -> dict[str, float]:
    """Pay everybody by both rules; return what the one worker gets who chose."""
    honest = {f"honest {i}": truthful(NOISE) for i in range(N_WORKERS - 1)}
    table = simulate_reports(N_TASKS, {"you": choice} | honest, clean_prior=CLEAN_PRIOR, random_state=seed)
    agreement = plain_agreement(table)["score"]
    by_agreement = pd.Series(split_budget(agreement, BUDGET), index=agreement.index)
    by_truth = score_annotators(table, budget=BUDGET, random_state=seed)["payment"]
    return {"plain agreement": float(by_agreement["you"]), "correlated agreement": float(by_truth["you"])}


def everybody(strategy: Strategy, seed: int) -> float:
    """Return the mean CA score when all workers follow the same strategy."""
    workers = {f"worker {i}": strategy for i in range(N_WORKERS)}
    table = simulate_reports(N_TASKS, workers, clean_prior=CLEAN_PRIOR, random_state=seed)
    return float(correlated_agreement(table)["score"].mean())


def with_a_copier(seed: int) -> pd.DataFrame:
    """Let one worker hand in another's labels."""
    honest = {f"honest {i}": truthful(NOISE) for i in range(N_WORKERS - 1)}
    table = simulate_reports(N_TASKS, honest, clean_prior=CLEAN_PRIOR, random_state=seed)
    copied = table[table["worker"] == "honest 0"].assign(worker="copier")
    return pd.concat([table, copied], ignore_index=True)


def main() -> None:
    """Print payments (mean ± standard error over the seeds) and the two limits."""
    rows = {
        name: pd.DataFrame([payments(choice, seed) for seed in SEEDS]).agg(show)
        for name, choice in CHOICES.items()
    }
    print(f"Of a budget of {BUDGET}, a worker among {N_WORKERS} earns (equal parts would be 5.00)")
    print(pd.DataFrame(rows).T.to_string())
    honest, swapped = (everybody(permuted(NOISE, order), SEEDS[0]) for order in ([0, 1], [1, 0]))
    print(f"\nMean CA score when everybody is honest: {honest:.4f}; when everybody swaps: {swapped:.4f}.")
    pairs = find_copiers(with_a_copier(SEEDS[0]))
    print(
        "Pairs who seem to copy:", ", ".join(f"{a} and {b}" for a, b in pairs[["worker", "other"]].to_numpy())
    )


def show(column: pd.Series) -> str:
    """Return mean ± standard error."""
    values = column.to_numpy(dtype=float)
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
