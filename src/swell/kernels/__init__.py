"""The gradients of plain networks without autograd, for speed on a CPU."""
