"""Lowering rules, one module per family; `registry.RULES` imports every module here when it is first read."""
