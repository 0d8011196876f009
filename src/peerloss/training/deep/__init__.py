"""The loop for deep networks: any model, any loss, data that stay on the device.

A reader follows the files in this order:

``_train_deep``         :func:`train_deep`: arguments, the epochs, resuming, log and checkpoints;
``_recipe``             :class:`DeepRecipe`: all settings, and the learning rate as a function of progress;
``_inputs``             checks of inputs and labels, and their transfer to the device;
``_deep_run``           one training: model, optimiser, averaging, schedules and steps;
``_divergence_check``   the errors for a loss or weights that are no longer usable;
``_augment``            crops, flips, stronger changes of images, and mixup;
``_average``            the moving average of the weights;
``_predict``            logits and probabilities of many rows;
``_sieve``              :class:`Sieve`: the settings of the sample sieve;
``_sieve_targets``      what both algorithms of the sieve share, and the loss of soft targets;
``_fixed_targets``      the sieve with targets that stay fixed within a round;
``_refreshed_targets``  the sieve with targets that follow the model;
``_checkpoint``         saving, loading, and checking that a checkpoint belongs to the training;
``_epoch_log``          ``metrics.csv``, TensorBoard and the progress bar.
"""
