"""The verbs: rules that lower an op, passes that improve a graph."""
