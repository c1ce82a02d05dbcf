"""Definitions of the composite ops; `lstm_lower.opdef.REGISTRY` imports every module here when it is first read."""
