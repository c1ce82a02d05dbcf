"""onnxruntime: sessions, providers, checks, benchmarks."""
