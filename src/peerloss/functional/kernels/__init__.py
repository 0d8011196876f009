"""How a peer loss is computed. Both twins, ``functional.peer_loss`` and ``PeerLoss``, call `dispatch`.

- `reference`: the formula in plain torch operations. Every other file computes the same numbers.
- `blocked`: cross entropy over blocks of rows that fit the cache; loss and gradient in one pass.
- `numba_cpu`: small batches on the CPU in compiled loops (needs numba).
- `triton_gpu`: batches on a GPU (needs Triton); `triton_source` holds the kernels.
- `dispatch`: chooses among them. It has the one entry point, ``compute_peer_loss``.
"""
