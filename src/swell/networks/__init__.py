"""Networks: observations in, tensors out. Nothing here samples, computes a loss or knows an env."""
