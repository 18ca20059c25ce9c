"""Training: options, the engine, checkpoints."""
