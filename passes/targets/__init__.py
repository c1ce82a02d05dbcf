"""What runtimes cannot run, and what a model needs to be run by them."""
