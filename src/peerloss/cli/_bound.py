"""``peerloss bound``: what the paper's theorems guarantee for given noise rates and sample size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from peerloss.cli._bound_rows import BoundQuestion, bound_rows
from peerloss.cli._terminal import say_json

if TYPE_CHECKING:
    from peerloss.cli._bound_rows import BoundRow, Value


def bound(
    *,
    samples: Annotated[int, typer.Option(help="Number of noisy labels N.")],
    e_neg: Annotated[float, typer.Option(help="P(noisy 1 | clean 0), the paper's e₋₁.")],
    e_pos: Annotated[float, typer.Option(help="P(noisy 0 | clean 1), the paper's e₊₁.")],
    clean_prior: Annotated[float | None, typer.Option(help="P(clean 1), if known.")] = None,
    alpha: Annotated[float | None, typer.Option(help="α; by default α*, or 1 without --clean-prior.")] = None,
    confidence: Annotated[float, typer.Option(help="Probability 1 − δ with which bounds hold.")] = 0.95,
    hypotheses: Annotated[int, typer.Option(help="Number of classifiers |F| to choose from.")] = 1,
    target_excess: Annotated[
        float | None, typer.Option(help="Excess error for which to compute the number of labels.")
    ] = None,
    lipschitz: Annotated[float | None, typer.Option(help="Lipschitz constant L of the base loss.")] = None,
    weight_norm: Annotated[float | None, typer.Option(help="Bound on ‖w‖₂; ‖a‖₁ with --hidden-norm.")] = None,
    input_norm: Annotated[float | None, typer.Option(help="Bound on ‖x‖₂.")] = None,
    hidden_norm: Annotated[
        float | None, typer.Option(help="Bound on the weights of each hidden unit; selects two layers.")
    ] = None,
    loss_range: Annotated[float, typer.Option(help="Range of the base loss, maximum minus minimum.")] = 1.0,
    base: Annotated[str, typer.Option(help="Base loss, for Theorems 6 and 7 and Lemma 4.")] = "logistic",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Show what the paper's theorems guarantee for your noise rates and number of labels.

    Statements that need more information are listed with the options that they need.

    Example: peerloss bound --samples 5000 --e-neg 0.2 --e-pos 0.4 --clean-prior 0.5
    """
    question = BoundQuestion(
        samples=samples,
        e_neg=e_neg,
        e_pos=e_pos,
        clean_prior=clean_prior,
        alpha=alpha,
        confidence=confidence,
        hypotheses=hypotheses,
        target_excess=target_excess,
        lipschitz=lipschitz,
        weight_norm=weight_norm,
        input_norm=input_norm,
        hidden_norm=hidden_norm,
        loss_range=loss_range,
        base=base,
    )
    rows = bound_rows(question)
    if as_json:
        say_json([asdict(row) for row in rows])
    else:
        _print_table(rows)


def _print_table(rows: list[BoundRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What the theorems guarantee")
    for column in ("statement", "quantity", "value", "note"):
        table.add_column(column, overflow="fold")
    for row in rows:
        note = f"needs {row.needs}" if row.needs else row.note
        table.add_row(row.statement, row.quantity, _shown(row.value), note)
    console = Console()
    console.print(table)
    console.print(_summary(rows), markup=False, soft_wrap=True)


def _shown(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("[", "(").replace("]", ")")  # square brackets are markup to rich


def _summary(rows: list[BoundRow]) -> str:
    known = sum(row.value is not None for row in rows)
    excess = next(row.value for row in rows if row.quantity == "excess error of 0-1 minimisation")
    return (
        f"{known} of {len(rows)} statements evaluated; Theorem 5 allows an excess error of {_shown(excess)}."
    )
