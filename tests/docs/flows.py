"""Which files of the library a call passes through."""

import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

import peerloss
from peerloss.cli import app
from peerloss.functional import peer_loss
from peerloss.training import DeepRecipe, Sieve, train_deep

ROOT = Path(peerloss.__file__).parent
#: Files that compute nothing: they are not worth opening to understand a flow.
NOT_IN_A_FLOW = {"__init__.py", "_deprecation.py", "_lazy_names.py", "_progress.py"}


def files_of(call):
    """Return the Python files in which a function runs, in the order of their first use.

    The call is made twice, and the second one is traced: imports and compilation are not part of the flow.
    Functions that only accept deprecated names, import public names or report progress are not either.
    """
    files = {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.suffix == ".py" and path.is_relative_to(ROOT):
            files.setdefault(str(path.relative_to(ROOT)))

    call(0)
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        call(1)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [name for name in files if name not in NOT_IN_A_FLOW]


def flows(folder):
    """Return the five calls of the page on design by their headings."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)).astype(np.float32)
    noisy = np.where(rng.random(200) < 0.2, X[:, 0] <= 0, X[:, 0] > 0).astype(int)
    pd.DataFrame(X, columns=list("abc")).assign(label=noisy).to_csv(folder / "table.csv", index=False)

    def loss_call(_):
        logits = torch.randn(32, 3, requires_grad=True)
        peer_loss(logits, torch.arange(32) % 3, noisy_prior=torch.full((3,), 1 / 3)).backward()

    def fit(_):
        peerloss.PeerClassifier(random_state=0).fit(X, noisy)

    def command(*arguments):
        result = CliRunner().invoke(app, [str(part) for part in arguments])
        assert result.exit_code == 0, result.output

    def audit(i):
        command("audit", folder / "table.csv", "--target", "label", "-o", folder / f"audit{i}")

    def reproduce(i):
        options = ["--data-sets", "heart", "--methods", "nn", "--seeds", 1, "--jobs", 1]
        command("reproduce", "table-a1", *options, "-o", folder / f"runs{i}")

    def deep(i):
        network = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        train_deep(
            network,
            peerloss.PeerLoss(),
            X,
            noisy,
            recipe=DeepRecipe(epochs=8, batch_size=32, sieve=Sieve()),
            validation=(X[:50], noisy[:50]),
            device="cpu",
            checkpoint=folder / f"checkpoint{i}.pt",
            log_dir=folder / f"log{i}",
        )

    return {
        "A loss call": loss_call,
        "`PeerClassifier.fit`": fit,
        "An audit": audit,
        "A reproduction": reproduce,
        "`train_deep`": deep,
    }
