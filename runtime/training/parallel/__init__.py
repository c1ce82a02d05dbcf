"""Data-parallel training: one step on several machines, each with a shard of the batch."""
