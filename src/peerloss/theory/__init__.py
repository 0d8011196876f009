"""The paper's statements as functions: α*, bounds, conditions, Δ and Sgn(Δ)."""

from peerloss.theory._agreement import (
    binary_delta,
    delta_matrix,
    is_categorical,
    is_stochastically_relevant,
    joint_of_conditionally_independent,
    joint_table,
    sign_matrix,
)
from peerloss.theory._balanced import (
    balanced_decision,
    balanced_posterior,
    balancing_label_weights,
    optimal_alpha_of_weighted,
    unbalancing_label_weights,
)
from peerloss.theory._bounds import (
    deviation_bound,
    excess_risk_bound,
    generalization_bound,
    rademacher_linear,
    rademacher_two_layer,
    required_samples,
)
from peerloss.theory._calibration import (
    CalibrationReport,
    ConvexityReport,
    calibration_condition,
    convexity_condition,
)
from peerloss.theory._invariance import (
    invariance_factor,
    noisy_joint,
    peer_risk,
    suboptimality_bound,
    zero_one_peer_risk,
)
from peerloss.theory._optimal_alpha import (
    clean_risk_difference,
    optimal_alpha,
    optimal_alpha_as_printed,
    optimal_alpha_from_noisy_prior,
    peer_decision,
    peer_threshold,
)
from peerloss.theory._transforms import (
    FLIP_SYMMETRIC_BASES,
    SYMMETRIC_CURVATURE_BASES,
    Transform,
    calibration_transform,
    invert_transform,
    peer_transform,
)

__all__ = [
    "FLIP_SYMMETRIC_BASES",
    "SYMMETRIC_CURVATURE_BASES",
    "CalibrationReport",
    "ConvexityReport",
    "Transform",
    "balanced_decision",
    "balanced_posterior",
    "balancing_label_weights",
    "binary_delta",
    "calibration_condition",
    "calibration_transform",
    "clean_risk_difference",
    "convexity_condition",
    "delta_matrix",
    "deviation_bound",
    "excess_risk_bound",
    "generalization_bound",
    "invariance_factor",
    "invert_transform",
    "is_categorical",
    "is_stochastically_relevant",
    "joint_of_conditionally_independent",
    "joint_table",
    "noisy_joint",
    "optimal_alpha",
    "optimal_alpha_as_printed",
    "optimal_alpha_from_noisy_prior",
    "optimal_alpha_of_weighted",
    "peer_decision",
    "peer_risk",
    "peer_threshold",
    "peer_transform",
    "rademacher_linear",
    "rademacher_two_layer",
    "required_samples",
    "sign_matrix",
    "suboptimality_bound",
    "unbalancing_label_weights",
    "zero_one_peer_risk",
]
