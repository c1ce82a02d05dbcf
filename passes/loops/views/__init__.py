"""What passes on loops share: views of loops, dependences, batching."""
