"""TensorFlow's files read without TensorFlow: graphs, meta graphs, SavedModels and checkpoints."""
