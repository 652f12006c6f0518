"""Small networks on a CPU in machine code: acting, learning, and envs to learn from. Optional, by numba."""
