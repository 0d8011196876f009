"""The loop for deep networks: any model, any loss, data that stay on the device.

Read ``_train_deep`` (the epochs) and ``_recipe`` (all settings), then ``_deep_run`` (the state of one
training run and its steps). It uses ``_inputs`` (checks), ``_augment``, ``_predict`` (predictions with
averaged weights), ``_sieve_targets`` (labels that are kept or replaced) and ``_training_output`` (checkpoint
and log).
"""
