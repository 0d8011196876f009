"""The batched engine: train many small networks of one architecture as one computation.

A reader follows the files in this order:

``_engine``         :func:`train_nets`: checks, the training in parts, curves and the best weights;
``_nets``           :class:`Net`: one training, and its loss as coefficients of the loss matrix;
``_batches``        the random batches and first weights of a network, from its own seed;
``_step_backends``  the optimiser steps: stacks of networks in torch, or one network at a time in numba;
``_numba_loop``     the compiled loop of the numba backend;
``_objective``      the loss of a batch in torch, for stacks of networks;
``_trained_nets``   :class:`TrainedNets`: the result and its predictions, and the forward pass in torch.
"""
