"""Records in a model's metadata and files: state, contracts, model files."""
