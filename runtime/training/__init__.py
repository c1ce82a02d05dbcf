"""Training a step in onnxruntime: trainer, checkpoints, runs."""
