"""PyTorch's ATen in expressions of ours: what `torch.export` gives, operator by operator, as a model."""
