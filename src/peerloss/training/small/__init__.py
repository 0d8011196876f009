"""The batched engine: train many small networks of one architecture as one computation.

Read ``_engine`` first. ``_nets`` checks each :class:`Net` and draws its batches. ``_step_backends`` takes the
optimiser steps, in torch for many nets at once or in the compiled ``_numba_loop``. ``_trained_nets`` holds
the result.
"""
