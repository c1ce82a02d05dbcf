"""Moving operators between versions of `ai.onnx`: one small rewrite per operator and version."""
