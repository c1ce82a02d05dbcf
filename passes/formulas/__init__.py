"""Formulas shared by rules, decompositions and gradients: they know expressions, but no op and no registry."""
