"""TensorFlow's files read without TensorFlow: graphs, meta graphs and SavedModels."""
