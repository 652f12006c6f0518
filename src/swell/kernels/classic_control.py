"""Classic control, compiled: five of Gymnasium's envs, all of a batch in one call, from Python or from another kernel.

The arithmetic is that of Gymnasium 1.4's single envs with NumPy 2, operation by operation, so that both agree but for
the last digit of a sine. States are float64 [N, 4]; what an env does not need of them is zero:

    cart pole           position, velocity, angle, angular velocity
    acrobot             two angles, two angular velocities
    mountain cars       position, velocity
    pendulum            angle, angular velocity
"""

import math

import numpy as np

from swell.kernels.jit import exact_kernel

CARTPOLE, ACROBOT, MOUNTAIN_CAR, MOUNTAIN_CAR_CONTINUOUS, PENDULUM = range(5)

CART_TRACK = 2.4
POLE_LEANING = 12 * 2 * math.pi / 360
GRAVITY = 9.8
ACROBOT_STEP = 0.2
CAR_LEFT, CAR_RIGHT, CAR_SPEED = -1.2, 0.6, 0.07
PENDULUM_STEP, PENDULUM_SPEED, PENDULUM_TORQUE = 0.05, 8.0, np.float32(2.0)

# The continuous car is a float32 env: its goal and its bounds are rounded too.
CAR_POWER, CAR_GOAL = np.float32(0.0015), float(np.float32(0.45))

# SplitMix64 (Steele, Lea and Flood, 2014): a counter, and a hash of it. In numba a plain 30 would make a float of it.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
FIRST_SHIFT, SECOND_SHIFT, THIRD_SHIFT = np.uint64(30), np.uint64(27), np.uint64(31)
UNUSED_BITS = np.uint64(11)

State = tuple[float, float, float, float]


@exact_kernel
def step_envs(
    kind: int,
    limit: int,
    states: np.ndarray,
    elapsed: np.ndarray,
    random_states: np.ndarray,
    choices: np.ndarray,
    forces: np.ndarray,
    observations: np.ndarray,
    rewards: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    finals: np.ndarray,
) -> None:
    """One step of every env; where an episode ends, the env starts the next one at once.

    Read: `kind`, the time `limit` (0 is none) and either `choices` int64 [N] or `forces` float32 [N, 1]; the other is
    any array of that type with N rows.
    Changed: `states` float64 [N, 4], `elapsed` int64 [N] and `random_states` uint64 [N].
    Written: `finals` float32 [N, D], what each env shows after the step; `observations`, the same except where the next
    episode begins; `rewards` float64 [N]; the flags `terminated` and `truncated`, of which at most one is set.
    """
    for env in range(states.shape[0]):
        state = states[env]
        if kind == CARTPOLE:
            reward, is_terminal = _step_cartpole(state, choices[env])
        elif kind == ACROBOT:
            reward, is_terminal = _step_acrobot(state, choices[env])
        elif kind == MOUNTAIN_CAR:
            reward, is_terminal = _step_mountain_car(state, choices[env])
        elif kind == MOUNTAIN_CAR_CONTINUOUS:
            reward, is_terminal = _step_mountain_car_continuous(state, forces[env, 0], elapsed[env] == 0)
        else:
            reward, is_terminal = _step_pendulum(state, forces[env, 0])
        elapsed[env] += 1
        out_of_time = 0 < limit <= elapsed[env]
        rewards[env] = reward
        terminated[env] = is_terminal
        truncated[env] = out_of_time and not is_terminal
        _observe(kind, state, finals[env])
        if is_terminal or out_of_time:
            elapsed[env] = 0
            random_states[env] = _start(kind, state, random_states[env])
            _observe(kind, state, observations[env])
        else:
            observations[env] = finals[env]


@exact_kernel
def reset_envs(
    kind: int, states: np.ndarray, elapsed: np.ndarray, random_states: np.ndarray, observations: np.ndarray
) -> None:
    """Starts a new episode in every env and writes what it shows."""
    for env in range(states.shape[0]):
        elapsed[env] = 0
        random_states[env] = _start(kind, states[env], random_states[env])
        _observe(kind, states[env], observations[env])


@exact_kernel
def mixed(word: np.uint64) -> np.uint64:
    """A hash of 64 bits in which every bit of the word moves every other; no two words share one."""
    word = (word ^ (word >> FIRST_SHIFT)) * FIRST_FACTOR
    word = (word ^ (word >> SECOND_SHIFT)) * SECOND_FACTOR
    return word ^ (word >> THIRD_SHIFT)


@exact_kernel
def _uniform(random_state: np.uint64, low: float, high: float) -> tuple[float, np.uint64]:
    """A number of 53 random bits in [low, high), and the generator's next state."""
    random_state = random_state + GOLDEN_GAMMA
    return low + (high - low) * (float(mixed(random_state) >> UNUSED_BITS) * 2.0**-53), random_state


@exact_kernel
def _start(kind: int, state: np.ndarray, random_state: np.uint64) -> np.uint64:
    """Draws the first state of an episode; returns the generator's next state."""
    if kind == CARTPOLE:
        for place in range(4):
            state[place], random_state = _uniform(random_state, -0.05, 0.05)
    elif kind == ACROBOT:
        for place in range(4):
            start, random_state = _uniform(random_state, -0.1, 0.1)
            state[place] = np.float32(start)  # Gymnasium rounds them
    elif kind == PENDULUM:
        state[0], random_state = _uniform(random_state, -math.pi, math.pi)
        state[1], random_state = _uniform(random_state, -1.0, 1.0)
    else:
        state[0], random_state = _uniform(random_state, -0.6, -0.4)
        state[1] = 0.0
    return random_state


@exact_kernel
def _observe(kind: int, state: np.ndarray, observation: np.ndarray) -> None:
    if kind == ACROBOT:
        observation[0], observation[1] = math.cos(state[0]), math.sin(state[0])
        observation[2], observation[3] = math.cos(state[1]), math.sin(state[1])
        observation[4], observation[5] = state[2], state[3]
    elif kind == PENDULUM:
        observation[0], observation[1], observation[2] = math.cos(state[0]), math.sin(state[0]), state[1]
    else:
        for place in range(observation.shape[0]):
            observation[place] = state[place]


@exact_kernel
def _step_cartpole(state: np.ndarray, choice: int) -> tuple[float, bool]:
    """Euler's method over 0.02 s: cart of 1 kg, pole of 0.1 kg whose centre is 0.5 m away, a push of 10 N."""
    position, velocity, angle, turning = state[0], state[1], state[2], state[3]
    force = 10.0 if choice == 1 else -10.0
    cosine, sine = math.cos(angle), math.sin(angle)
    pole, total = 0.1 * 0.5, 0.1 + 1.0
    push = (force + pole * (turning * turning) * sine) / total
    angular = (GRAVITY * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / total))
    linear = push - pole * angular * cosine / total
    state[0] = position + 0.02 * velocity
    state[1] = velocity + 0.02 * linear
    state[2] = angle + 0.02 * turning
    state[3] = turning + 0.02 * angular
    return 1.0, abs(state[0]) > CART_TRACK or abs(state[2]) > POLE_LEANING


@exact_kernel
def _step_acrobot(state: np.ndarray, choice: int) -> tuple[float, bool]:
    """One step of the classical Runge-Kutta method; the goal is the tip a link's length above the bar."""
    torque, half = choice - 1.0, ACROBOT_STEP / 2.0
    start = (state[0], state[1], state[2], state[3])
    first = _acrobot_slopes(start, torque)
    second = _acrobot_slopes(_moved(start, half, first), torque)
    third = _acrobot_slopes(_moved(start, half, second), torque)
    fourth = _acrobot_slopes(_moved(start, ACROBOT_STEP, third), torque)
    for place in range(4):
        slopes = first[place] + 2 * second[place] + 2 * third[place] + fourth[place]
        state[place] = start[place] + ACROBOT_STEP / 6.0 * slopes
    state[0], state[1] = _wrapped(state[0]), _wrapped(state[1])
    state[2] = min(max(state[2], -4 * math.pi), 4 * math.pi)
    state[3] = min(max(state[3], -9 * math.pi), 9 * math.pi)
    is_terminal = -math.cos(state[0]) - math.cos(state[1] + state[0]) > 1.0
    return 0.0 if is_terminal else -1.0, is_terminal


@exact_kernel
def _acrobot_slopes(state: State, torque: float) -> State:
    """The book's equations of motion (Sutton and Barto, section 11.3 of 1998) for links of length, mass and inertia 1.

    The numbers are what their masses and lengths come to; 0.5 is the way from a joint to the centre of its link.
    """
    first, second, first_speed, second_speed = state
    cosine, sine = math.cos(second), math.sin(second)
    d1 = 0.25 + (1.0 + 0.25 + cosine) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cosine) + 1.0
    phi2 = 0.5 * GRAVITY * math.cos(first + second - math.pi / 2.0)
    phi1 = -0.5 * (second_speed * second_speed) * sine - second_speed * first_speed * sine
    phi1 = phi1 + (0.5 + 1.0) * GRAVITY * math.cos(first - math.pi / 2) + phi2
    pull = torque + d2 / d1 * phi1 - 0.5 * (first_speed * first_speed) * sine - phi2
    second_slope = pull / (0.25 + 1.0 - (d2 * d2) / d1)
    return first_speed, second_speed, -(d2 * second_slope + phi1) / d1, second_slope


@exact_kernel
def _moved(state: State, time: float, slopes: State) -> State:
    return (
        state[0] + time * slopes[0],
        state[1] + time * slopes[1],
        state[2] + time * slopes[2],
        state[3] + time * slopes[3],
    )


@exact_kernel
def _wrapped(angle: float) -> float:
    """The same angle within ±π."""
    while angle > math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


@exact_kernel
def _step_mountain_car(state: np.ndarray, choice: int) -> tuple[float, bool]:
    velocity = state[1] + ((choice - 1) * 0.001 + math.cos(3 * state[0]) * -0.0025)
    velocity = min(max(velocity, -CAR_SPEED), CAR_SPEED)
    position = min(max(state[0] + velocity, CAR_LEFT), CAR_RIGHT)
    if position == CAR_LEFT and velocity < 0:
        velocity = 0.0
    state[0], state[1] = position, velocity
    return -1.0, position >= 0.5 and velocity >= 0


@exact_kernel
def _step_mountain_car_continuous(state: np.ndarray, force: float, is_first: bool) -> tuple[float, bool]:
    """Gymnasium keeps this state as float32 and so computes in float32, except in an episode's first step."""
    position, velocity = state[0], state[1]
    tripled = 3 * position if is_first else np.float64(np.float32(3) * np.float32(position))
    push = min(max(force, np.float32(-1.0)), np.float32(1.0)) * CAR_POWER - np.float32(0.0025 * math.cos(tripled))
    velocity = np.float64(np.float32(velocity) + push)
    velocity = min(max(velocity, np.float64(np.float32(-CAR_SPEED))), np.float64(np.float32(CAR_SPEED)))
    position = np.float64(np.float32(position + velocity))
    position = min(max(position, np.float64(np.float32(CAR_LEFT))), np.float64(np.float32(CAR_RIGHT)))
    if position == np.float32(CAR_LEFT) and velocity < 0:
        velocity = 0.0
    state[0], state[1] = position, velocity
    is_terminal = bool(position >= CAR_GOAL and velocity >= 0)
    return (100.0 if is_terminal else 0.0) - np.float64(force) ** 2 * 0.1, is_terminal


@exact_kernel
def _step_pendulum(state: np.ndarray, force: float) -> tuple[float, bool]:
    """The cost is that of the angle and the speed before the step."""
    angle, speed = state[0], state[1]
    torque = min(max(force, -PENDULUM_TORQUE), PENDULUM_TORQUE)
    from_the_top = (angle + math.pi) % (2 * math.pi) - math.pi
    cost = from_the_top * from_the_top + 0.1 * (speed * speed) + np.float32(0.001) * (torque * torque)
    speed = speed + (15.0 * math.sin(angle) + np.float32(3.0) * torque) * PENDULUM_STEP
    speed = min(max(speed, -PENDULUM_SPEED), PENDULUM_SPEED)
    state[0], state[1] = angle + speed * PENDULUM_STEP, speed
    return -cost, False
