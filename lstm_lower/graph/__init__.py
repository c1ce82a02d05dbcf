"""What a graph is: its operators, what is known of its values, how nodes are emitted, names, verifier, dump."""
