"""One bit of one file of a run turned over, then `swell resume`, `swell evaluate` and `swell report`."""

import random
import shutil
from pathlib import Path

from kill import outcome, same
from tests.faults.cases import SHORT_PQN
from tests.faults.commands import Ended, forked
from tests.faults.record import Kind, Row
from tests.faults.undisturbed import STATE, Workshop, judged

TRIES = 240
EVALUATE = ("evaluate", "run", "--episodes", "3", "--seed", "1")
REPORT = ("report", "run")


def kind(workshop: Workshop) -> Kind:
    return Kind(TRIES, lambda number: attempt(workshop, number))


def attempt(workshop: Workshop, number: int) -> Row:
    """Four in six are resumed; the others are finished runs that are scored or reported."""
    is_finished = number % 6 >= 4
    made = workshop.whole(SHORT_PQN) if is_finished else workshop.interrupted(SHORT_PQN)
    copy = workshop.fresh("flip") / "run"
    shutil.copytree(made, copy)
    drawn = random.Random(f"{workshop.seed} flip {number}")
    file = files_of(copy)[number % len(files_of(copy))]
    name = str(file.relative_to(copy))
    fault = flip_a_bit(file, drawn)
    if not is_finished:
        ended = forked(["resume", copy], copy.parent).ended()
        outcome, held = resumed(workshop, copy, name, ended)
        return Row(
            number, f"{kind_of_file(name)}: resume", f"{name}, {fault}", ended.exit_code, ended.line, outcome, held
        )
    command = EVALUATE if number % 6 == 4 else REPORT
    ended = forked(command, copy.parent).ended()
    outcome, held = scored(workshop, ended) if command == EVALUATE else reported(ended)
    subject = f"{kind_of_file(name)}: {command[0]}"
    return Row(number, subject, f"{name}, {fault}", ended.exit_code, ended.line, outcome, held)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size)


def kind_of_file(name: str) -> str:
    """`checkpoints/step-000000000700/state.json` -> `checkpoint, state.json`."""
    parts = Path(name).parts
    return {"checkpoints": f"checkpoint, {parts[-1]}", "tensorboard": "tensorboard"}.get(parts[0], parts[0])


def flip_a_bit(file: Path, drawn: random.Random) -> str:
    data = bytearray(file.read_bytes())
    place, bit = drawn.randrange(len(data)), drawn.randrange(8)
    data[place] ^= 1 << bit
    file.write_bytes(data)
    return f"bit {bit} of byte {place:,}"


def resumed(workshop: Workshop, directory: Path, name: str, ended: Ended) -> tuple[str, bool]:
    """Refused in a line, or the same end; logs may differ where it was said that they were lost."""
    if ended.is_told:
        return "refused in a line", True
    words, held = judged(workshop, SHORT_PQN, directory, ended)
    said = (ended.out + ended.err).count(Path(name).name if "checkpoints" not in name else "moved to bad-")
    if held:
        return f"{'said so, ' if said else ''}bit-identical", True
    if said and ended.exit_code == 0 and is_same_state(workshop, directory):
        return "said so, same weights and state", True
    return words, False


def is_same_state(workshop: Workshop, directory: Path) -> bool:
    found, expected = outcome(directory), workshop.expected(SHORT_PQN)
    return all(same(found[part], expected[part]) for part in STATE)


def scored(workshop: Workshop, ended: Ended) -> tuple[str, bool]:
    """The score of the undamaged run, or that of the checkpoint before it, or a refusal."""
    if ended.is_told:
        return "refused in a line", True
    if ended.exit_code == 0 and "using the checkpoint before it" in ended.err and not ended.has_traceback:
        return "said so, score of the checkpoint before", True
    if ended.exit_code == 0 and not ended.has_traceback and score_line(ended) == undamaged_score(workshop):
        return "same score", True
    return "another score" if ended.exit_code == 0 else "did not end well", False


def undamaged_score(workshop: Workshop) -> str:
    directory = workshop.fresh("scored")
    shutil.copytree(workshop.whole(SHORT_PQN), directory / "run")
    return score_line(forked(EVALUATE, directory).ended())


def score_line(ended: Ended) -> str:
    return next((line for line in ended.out.splitlines() if line.startswith("return")), "")


def reported(ended: Ended) -> tuple[str, bool]:
    """A report is of what can be read; it says so or is refused."""
    if ended.exit_code == 0 and not ended.has_traceback:
        return "reported", True
    return ("refused in a line", True) if ended.is_told else ("did not end well", False)
