"""The batched engine: train many small networks of one architecture as one computation.

Read ``_engine`` first. It takes a :class:`Net` and its batches from ``_nets``, its steps from
``_step_backends`` (stacks in torch, or the compiled ``_numba_loop``), and returns ``_trained_nets``.
"""
