"""The gradient of every operator: a file a family; importing them registers their rules."""
