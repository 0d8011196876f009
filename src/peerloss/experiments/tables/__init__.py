"""Experiments on tables: small networks and scikit-learn estimators on the paper's data sets."""
