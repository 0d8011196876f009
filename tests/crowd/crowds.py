"""Small crowds for the tests."""

import numpy as np
import pandas as pd

from peerloss.peer_prediction import Reports


def random_crowd(seed, *, n_tasks=12, n_workers=6, n_labels=3, answered=0.7, accuracy=0.6):
    """Draw reports of workers who are right with probability ``accuracy`` and guess otherwise."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_labels, size=n_tasks)
    labels = np.where(
        rng.random((n_workers, n_tasks)) < accuracy, truth, rng.integers(n_labels, size=(n_workers, n_tasks))
    )
    worker, task = np.nonzero(rng.random((n_workers, n_tasks)) < answered)
    order = rng.permutation(len(task))
    frame = pd.DataFrame({"task": task, "worker": worker, "label": labels[worker, task]})
    return frame.iloc[order].reset_index(drop=True)


def others_of(frame, row):
    """List the labels that other workers gave to the task of a row."""
    own = frame.loc[row]
    same = frame[(frame["task"] == own["task"]) & (frame["worker"] != own["worker"])]
    return same["label"].tolist()


def coded(frame):
    return Reports.from_table(frame)
