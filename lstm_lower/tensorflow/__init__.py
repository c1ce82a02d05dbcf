"""Import of TensorFlow training graphs; needs the extra [tensorflow]."""
