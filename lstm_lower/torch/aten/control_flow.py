"""Control flow: branches, loops, and regions without gradients."""
