"""How a peer loss is computed. Both twins, ``functional.peer_loss`` and ``PeerLoss``, call `dispatch`.

- `reference`: every peer loss in plain torch operations. The next three compute cross entropy with expected
  peers faster; their results equal those of `reference` up to rounding.
- `blocked`: blocks of rows that fit the cache; loss and gradient in one pass.
- `numba_cpu`: small batches on the CPU in compiled loops (needs numba).
- `triton_gpu`: batches on a GPU (needs Triton); `triton_source` holds the kernels.
- `fused_linear`: from the inputs and weights of the last layer, without storing the logits of all rows.
- `dispatch`: chooses among them. Its ``compute_peer_loss`` is the entry point for stored logits.
"""
