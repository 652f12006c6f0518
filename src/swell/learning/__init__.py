"""What learners are made of: targets, losses, distributions, gradient steps."""
