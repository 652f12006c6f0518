"""From envs and a learner to rollouts, and from envs and a policy to scores."""
