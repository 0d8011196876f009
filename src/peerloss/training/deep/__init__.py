"""The loop for deep networks: any model, any loss, data that stay on the device if they fit.

Read ``_train_deep`` (the epochs) and ``_recipe`` (all settings), then ``_deep_run`` (the state of one
training run and its steps). It uses ``_inputs`` (checks), ``_input_rows``, ``_host_rows`` and
``_dataset_rows`` (where inputs are kept and how they are read), ``_batches`` and ``_augment`` (the batches of
an epoch), ``_predict`` (predictions with averaged weights), ``_sieve_targets`` (labels that are kept or
replaced), ``_ranks`` (several processes) and ``_training_output`` (checkpoint and log).
"""
