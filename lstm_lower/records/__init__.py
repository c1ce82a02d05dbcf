"""What a model keeps in its metadata and files: state, contracts, model files."""
