"""Convolutions, normalisation, embeddings and activations."""
