"""onnxruntime-training's offline interface on stock onnxruntime: its scripts run once their import is changed.

    from lstm_lower.ort_training import artifacts, onnxblock
    from lstm_lower.ort_training.api import CheckpointState, LinearLRScheduler, Module, Optimizer

Names, arguments and their order are those of onnxruntime-training 1.19.2; what is written is plain ONNX. What cannot be
done is refused by name.
"""
