"""Recurrent layers and packed sequences."""
