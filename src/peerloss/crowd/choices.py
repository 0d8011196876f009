"""Values of the options of :func:`~peerloss.crowd.score_annotators`.

Nothing is imported here, so that the command line can check them before anything slow is imported.
"""

#: Values of ``mechanism``.
MECHANISMS = ("ca", "quadratic", "log")
#: Values of ``payment``.
PAYMENTS = ("affine", "untruthful_split")
