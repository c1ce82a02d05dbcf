"""onnxruntime: sessions, the trainer, providers, checks."""
