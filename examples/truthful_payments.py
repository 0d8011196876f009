"""Pay annotators by three rules, and show which strategy pays one of them best.

All other workers look at the tasks and report what they see. One worker may do the same, or save the effort
and report something else. Each row shows what this worker is paid for a strategy.

* Paid by **plain agreement**, reporting "negative" always pays more than honest work.
* Paid by **correlated agreement** (CA) with `affine_payments`, a worker who does not look at the tasks
  expects the base pay, and honest work pays best, with many tasks and with few. This is
  `score_annotators(..., budget=...)`.
* **Splitting a budget** by positive CA scores (`untruthful_split`) is not truthful: with few tasks and a rare
  class, tossing a coin pays more than honest work.

The last lines show two limits. If *all* workers swap the labels, CA pays them as it pays honest work, but
never more. A worker who copies is paid, but `find_copiers` reports the pair.

Run with ``python examples/truthful_payments.py``. Only the package is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from peerloss.crowd import affine_payments, find_copiers, payment_terms, untruthful_split
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


@dataclass(frozen=True)
class Job:
    """Tasks with a share ``clean_prior`` of positives, for workers with the error rates of ``noise``."""

    n_tasks: int
    n_workers: int
    clean_prior: float
    noise: NoiseModel
    seeds: range

    def choices(self) -> dict[str, Strategy]:
        """Return the strategies of the one worker."""
        return {
            "look and tell": truthful(self.noise),
            "always say negative": constant(0),
            "always say positive": constant(1),
            "guess, as often as others": random_guess(self.noise.noisy_prior(self.clean_prior)),
            "toss a coin": random_guess(),
            "look and tell the opposite": permuted(self.noise, [1, 0]),
        }


JOBS = {
    "long": Job(500, 20, 0.1, NoiseModel.binary(e_neg=0.1, e_pos=0.3), range(200, 208)),
    "short": Job(10, 10, 0.05, NoiseModel.binary(e_neg=0.05, e_pos=0.05), range(300)),
}


def payments(job: Job, choice: Strategy, seed: int) -> dict[str, float]:
    """Pay all workers by the three rules; return the payments of the one who chose a strategy."""
    honest = {f"honest {i}": truthful(job.noise) for i in range(job.n_workers - 1)}
    table = simulate_reports(
        job.n_tasks, {"you": choice} | honest, clean_prior=job.clean_prior, random_state=seed
    )
    base, rate = payment_terms(BUDGET, len(table))  # fixed before the scores are computed
    tasks = np.full(job.n_workers, job.n_tasks)
    agreement, score = np.ones(job.n_workers), np.zeros(job.n_workers)
    if table["label"].min() < table["label"].max():  # otherwise all reports are equal
        agreement = plain_agreement(table)["score"].to_numpy()
        score = correlated_agreement(table)["score"].to_numpy()
    return {
        "agreement, affine": affine_payments(agreement, tasks, base=base, rate=rate)[0],
        "CA, affine": affine_payments(score, tasks, base=base, rate=rate)[0],
        "CA, split": untruthful_split(score, BUDGET)[0] if (score > 0).any() else 0.0,
    }


def everybody(job: Job, strategy: Strategy) -> float:
    """Return the mean CA score when all workers follow the same strategy."""
    workers = {f"worker {i}": strategy for i in range(job.n_workers)}
    table = simulate_reports(job.n_tasks, workers, clean_prior=job.clean_prior, random_state=job.seeds[0])
    return float(correlated_agreement(table)["score"].mean())


def with_a_copier(job: Job) -> pd.DataFrame:
    """Add a worker who copies the labels of another."""
    honest = {f"honest {i}": truthful(job.noise) for i in range(job.n_workers - 1)}
    table = simulate_reports(job.n_tasks, honest, clean_prior=job.clean_prior, random_state=job.seeds[0])
    copied = table[table["worker"] == "honest 0"].assign(worker="copier")
    return pd.concat([table, copied], ignore_index=True)


def main() -> None:
    """Print payments (mean ± standard error over the seeds) and the two limits."""
    for job in JOBS.values():
        rows = {
            name: pd.DataFrame([payments(job, choice, seed) for seed in job.seeds]).agg(show)
            for name, choice in job.choices().items()
        }
        base = BUDGET / job.n_workers / 2
        print(f"{job.n_tasks} tasks, {job.n_workers} workers, {job.clean_prior:.0%} positive.", end=" ")
        print(f"Of a budget of {BUDGET}, one worker earns (base {base:.2f})")
        print(pd.DataFrame(rows).T.to_string(), end="\n\n")
    job = JOBS["long"]
    honest, swapped = (everybody(job, permuted(job.noise, order)) for order in ([0, 1], [1, 0]))
    print(f"Mean CA score when everybody is honest: {honest:.4f}; when everybody swaps: {swapped:.4f}.")
    pairs = find_copiers(with_a_copier(job))[["worker", "other"]].to_numpy()
    print("Pairs who seem to copy:", ", ".join(f"{a} and {b}" for a, b in pairs))


def show(column: pd.Series) -> str:
    """Return mean ± standard error."""
    values = column.to_numpy(dtype=float)
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
