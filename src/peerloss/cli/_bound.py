"""``peerloss bound``: what the paper's theorems guarantee for given noise rates and sample size."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._terminal import say_json
from peerloss.exceptions import NotIdentifiableError

if TYPE_CHECKING:
    from peerloss.noise import NoiseModel
    from peerloss.theory import CalibrationReport, Transform

Value = float | int | bool | str | list[list[int]] | None


@dataclass(frozen=True)
class BoundRow:
    """A statement of the paper with its value, or with the options that it needs."""

    statement: str
    quantity: str
    value: Value
    note: str = ""
    needs: str | None = None


@dataclass(frozen=True)
class BoundQuestion:
    """The options of the command; ``None`` if one was omitted."""

    samples: int
    e_neg: float
    e_pos: float
    clean_prior: float | None = None
    alpha: float | None = None
    confidence: float = 0.95
    hypotheses: int = 1
    target_excess: float | None = None
    lipschitz: float | None = None
    weight_norm: float | None = None
    input_norm: float | None = None
    hidden_norm: float | None = None
    loss_range: float = 1.0
    base: str = "logistic"


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
    options = {name: value for name, value in locals().items() if name != "as_json"}
    rows = bound_rows(BoundQuestion(**options))
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


def bound_rows(question: BoundQuestion) -> list[BoundRow]:
    """Return one row per statement, in the order of the paper; refuse noise that is not informative."""
    answer = _Answer(question)
    return [
        *answer.noise_rows(),
        *answer.alpha_rows(),
        *answer.sample_rows(),
        *answer.calibration_rows(),
        *answer.generalization_rows(),
    ]


class _Answer:
    """The rows for one question; each method returns a group of statements."""

    def __init__(self, question: BoundQuestion) -> None:
        from peerloss import theory
        from peerloss._validation import check_in_range
        from peerloss.noise import NoiseModel

        self.q = question
        self.theory = theory
        self.noise: NoiseModel = NoiseModel.binary(question.e_neg, question.e_pos)
        if question.clean_prior is not None:
            check_in_range(question.clean_prior, "clean_prior", 0.0, 1.0, low_open=True, high_open=True)
        self.theory.clean_risk_difference(0.0, self.noise)  # raises for Σe ≥ 1
        self.star, self.no_star = self._find_star()
        self.alpha, self.alpha_note = self._choose_alpha()

    def _find_star(self) -> tuple[float | None, str | None]:
        if self.q.clean_prior is None:
            return None, "--clean-prior"
        try:
            return self.theory.optimal_alpha(self.noise, self.q.clean_prior), None
        except NotIdentifiableError as error:
            return None, str(error)

    def _choose_alpha(self) -> tuple[float, str]:
        if self.q.alpha is not None:
            return self.q.alpha, "" if self._is_star(self.q.alpha) else "holds only if the given α is α*"
        if self.star is not None:
            return self.star, "at α = α*"
        return 1.0, "at α = 1, which is α* if P(clean 1) = ½"

    def _is_star(self, alpha: float) -> bool:
        return self.star is not None and abs(alpha - self.star) <= 1e-9

    def noise_rows(self) -> list[BoundRow]:
        import numpy as np

        prior = 0.5 if self.q.clean_prior is None else self.q.clean_prior
        signs = self.theory.sign_matrix(self.theory.binary_delta(prior, np.eye(2), self.noise))
        factor = self.theory.invariance_factor(self.noise)
        gap = ("Theorems 2, 3", "excess of the α = 1 minimiser, |δ_p|")
        return [
            BoundRow("Lemma 1", "Sgn(Δ)", signs.tolist(), "rows f*, columns noisy label"),
            BoundRow("Lemma 2", "1 − Σe", factor, "noise multiplies every peer risk by this factor"),
            BoundRow(*gap, None, needs="--clean-prior")
            if self.q.clean_prior is None
            else BoundRow(*gap, self.theory.suboptimality_bound(prior), "0: the minimiser of the clean risk"),
        ]

    def alpha_rows(self) -> list[BoundRow]:
        names = ("α* = (e_neg − e_pos)/δ_p̃", "α* as printed")
        if self.star is None:
            return [BoundRow("Theorem 4", name, None, needs=self.no_star) for name in names]
        printed = self.theory.optimal_alpha_as_printed(self.noise, self.q.clean_prior or 0.0)
        meaning = "peer risk ranks classifiers as clean risk does"
        return [
            BoundRow("Theorem 4", names[0], self.star, meaning),
            BoundRow("Theorem 4", names[1], printed, "1 − (1 − Σe)·δ_p/δ_p̃"),
        ]

    def sample_rows(self) -> list[BoundRow]:
        options: dict[str, Any] = {
            "alpha": self.alpha,
            "confidence": self.q.confidence,
            "n_hypotheses": self.q.hypotheses,
        }
        excess = self.theory.excess_risk_bound(self.q.samples, self.noise, **options)
        note = "; ".join(
            part for part in (self.alpha_note, "vacuous: above 1" if excess >= 1 else "") if part
        )
        first = BoundRow("Theorem 5", "excess error of 0-1 minimisation", excess, note)
        target = self.q.target_excess
        if target is None:
            return [first, BoundRow("Theorem 5", "labels required", None, needs="--target-excess")]
        count = self.theory.required_samples(target, self.noise, **options)
        return [first, BoundRow("Theorem 5", "labels required", count, f"for an excess of {target:g}")]

    def calibration_rows(self) -> list[BoundRow]:
        name = f"{self.q.base} peer loss"
        report = self._calibration()
        if report is None or self.q.clean_prior is None:
            return [
                BoundRow("Theorem 6", f"{name} is calibrated", None, needs="--clean-prior"),
                BoundRow("Lemma 4", f"{name} has a convex risk", None, needs="--clean-prior"),
            ]
        convexity = self.theory.convexity_condition(
            self.noise,
            self.q.clean_prior,
            alpha=self.alpha,
            symmetric_curvature=self.q.base in self.theory.SYMMETRIC_CURVATURE_BASES,
        )
        convex_base = self.q.base in (*self.theory.SYMMETRIC_CURVATURE_BASES, "hinge")
        reasons = convexity.reasons if convex_base else (f"{self.q.base} itself is not convex in the score.",)
        has_minimum = self.q.base == "margin_square" and not report.bounded_below
        remark = "(1 − t)² has a minimum for every α < 1." if has_minimum else report.reasons[-1]
        calibrated = " ".join([*report.reasons[:-1], remark])
        return [
            BoundRow("Theorem 6", f"{name} is calibrated", report.holds, calibrated),
            BoundRow(
                "Lemma 4", f"{name} has a convex risk", convex_base and convexity.convex, " ".join(reasons)
            ),
        ]

    def generalization_rows(self) -> list[BoundRow]:
        deviation, theorem = "deviation of empirical peer risks", "excess error of surrogate minimisation"
        missing = [
            f"--{name.replace('_', '-')}"
            for name in ("lipschitz", "weight_norm", "input_norm")
            if getattr(self.q, name) is None
        ]
        if missing:
            needs = ", ".join(missing)
            return [
                BoundRow("Appendix Lemma 3", deviation, None, needs=needs),
                BoundRow("Theorem 7", theorem, None, needs=needs),
            ]
        options: dict[str, Any] = {
            "alpha": self.alpha,
            "lipschitz": self.q.lipschitz,
            "rademacher": self._rademacher(),
            "loss_range": self.q.loss_range,
            "confidence": self.q.confidence,
        }
        spread = self.theory.deviation_bound(self.q.samples, **options)
        first = BoundRow("Appendix Lemma 3", deviation, spread, f"ℜ(F) ≤ {options['rademacher']:.4g}")
        needs_for_7 = self._missing_for_theorem_7()
        if needs_for_7 is not None:
            return [first, BoundRow("Theorem 7", theorem, None, needs=needs_for_7)]
        value = self.theory.generalization_bound(
            self.q.samples, self.noise, transform=self._peer_transform(), **options
        )
        note = "vacuous: at its maximum" if value >= 1 else "assumes no approximation error"
        return [first, BoundRow("Theorem 7", theorem, value, note)]

    def _rademacher(self) -> float:
        if self.q.hidden_norm is None:
            return self.theory.rademacher_linear(
                self.q.samples, weight_norm=self.q.weight_norm, input_norm=self.q.input_norm
            )
        return self.theory.rademacher_two_layer(
            self.q.samples,
            output_norm=self.q.weight_norm,
            hidden_norm=self.q.hidden_norm,
            input_norm=self.q.input_norm,
        )

    def _calibration(self) -> CalibrationReport | None:
        if self.q.base != "unhinged":
            self.theory.calibration_transform(self.q.base)  # raises for an unknown base
        if self.q.clean_prior is None:
            return None
        return self.theory.calibration_condition(
            self.noise,
            self.q.clean_prior,
            alpha=self.alpha,
            symmetric_curvature=self.q.base in self.theory.SYMMETRIC_CURVATURE_BASES,
            worst_on_flipped=self.q.base in self.theory.FLIP_SYMMETRIC_BASES,
        )

    def _peer_transform(self) -> Transform:
        """Return Ψ_peer; (1 − t)² has a minimum for every α < 1, and then Ψ_peer(u) = u²/(1 − α)."""
        import numpy as np

        if self.q.base == "margin_square" and self.alpha > self.q.e_neg + self.q.e_pos:
            return lambda u: np.square(u) / (1.0 - self.alpha)
        base = self.theory.calibration_transform(self.q.base)
        return self.theory.peer_transform(base, self.noise, alpha=self.alpha)

    def _missing_for_theorem_7(self) -> str | None:
        """Return what Theorem 7 lacks; our Ψ_peer also covers any base at α = α* ≤ e_neg + e_pos."""
        report = self._calibration()
        if report is None:
            return "--clean-prior"
        if self.q.base == "unhinged":
            return "a --base other than unhinged, which has no calibration transform"
        has_minimum = report.bounded_below or self.q.base == "margin_square"
        if report.condition == 1 or (self._is_star(self.alpha) and self.alpha < 1 and has_minimum):
            return None
        if report.holds:  # condition 2 as printed, but the risk has no minimum to compare with
            return f"a risk bounded below: {report.reasons[-1]}"
        return "a calibrated loss (Theorem 6): " + " ".join(report.reasons[:2])
