"""What our training costs a step over bare Keras `fit`, and whether XLA pays on the CPU.

Each row adds one part to the row above it, up to all of `train`; the last has no input to prepare.
The rows take turns, in another order every round, so that a busy machine slows them alike: a ratio
is the median over rounds, after a first turn of each, which traces its graph. No row validates:
that is work which the recipe asks for. A row that logs pays for the delivery of what it logged.

    python -m benchmarks.train_step      3 minutes on 2 cores
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from pipelines import data, provenance, quiet
from pipelines.batches import Splits
from pipelines.errors import UserError
from pipelines.recipes import Recipe, named
from pipelines.tracking import Run, tracked

STEPS = {"allconv-digits": 96, "allconv-cifar10": 8}  # of a turn; cut to whole epochs
RATE = 1e-6  # the weights hardly move, so that no turn diverges, whichever came before it
BUDGET_S = 45.0  # a recipe, first turns left out; the round under way is finished
ROWS = {
    "bare_fit": "Keras's SGD, arrays in memory, no callbacks",
    "optimizer": "+ MomentumSGD and RateTable",
    "stream": "+ our tf.data stream, which augments if the recipe does",
    "journal": "+ Journal that logs to MLflow: all of train()",
    "xla": "+ jit_compile=True",
    "no_input": "as journal, with one batch in memory for a stream",
}

Round = dict[str, float]  # milliseconds a step of every row


def main() -> None:
    """Measure every recipe whose data is prepared; print the table and record it."""
    quiet.tensorflow()
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores. Ratios to bare_fit: median (least-most)")
    with tracked("train_step", experiment="benchmarks", kind="benchmark") as run:
        for name, steps in STEPS.items():
            recipe = named(name).override(learning_rate=RATE)
            try:
                splits = data.load(recipe.data)
            except UserError as error:
                print(f"\n{name}: skipped. {error}")
            else:
                epoch = min(steps, len(splits.train) // recipe.batch_size)
                _measure(recipe, splits, steps - steps % epoch, run)


def _measure(recipe: Recipe, splits: Splits, steps: int, parent: Run) -> None:
    """One recipe as a child run, to which its Journal logs, too."""
    title, params = f"train_step {recipe.name}", recipe.flat() | {"turn_steps": str(steps)}
    with tracked(
        title, experiment="benchmarks", kind="benchmark", params=params, parent=parent
    ) as run:
        turns = _turns(_Bench(recipe, splits, steps, run))
        first = {row: turn() for row, turn in turns.items()}
        rounds = _rounds(turns)
        print(f"\n{recipe.name}, batch {recipe.batch_size}: {len(rounds)} rounds of {steps} steps")
        for row in ROWS:
            ratios, step_ms = _ratios(rounds, row), median(times[row] for times in rounds)
            print(_line(row, step_ms, ratios, first_s=first[row] * steps / 1000))
            run.log({f"{row}_ms": step_ms, f"{row}_ratio": median(ratios)})
        for number, times in enumerate(rounds):
            run.log({f"{row}_round_ms": step_ms for row, step_ms in times.items()}, number)
        xla = _ratios(rounds, "xla", over="journal")
        run.log({"xla_over_journal": median(xla)})
        print(f"  XLA over journal {_spread(xla)}: above 1, XLA is slower")


def _line(row: str, step_ms: float, ratios: list[float], first_s: float) -> str:
    numbers = f"{step_ms:6.1f} ms  {_spread(ratios)}  first turn {first_s:4.1f} s"
    return f"  {row:9} {numbers}  {ROWS[row]}"


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def _rounds(turns: dict[str, Callable[[], float]]) -> list[Round]:
    """At least three rounds, and as many as begin within BUDGET_S."""
    rounds: list[Round] = []
    order, started = np.random.default_rng(0), time.perf_counter()
    while len(rounds) < 3 or time.perf_counter() - started < BUDGET_S:
        rounds.append({row: turns[row]() for row in order.permutation(list(turns))})
    return rounds


def _ratios(rounds: list[Round], row: str, over: str = "bare_fit") -> list[float]:
    return [times[row] / times[over] for times in rounds]


@dataclass(frozen=True)
class _Bench:
    """Makes the parts that the rows are put together from."""

    recipe: Recipe
    splits: Splits
    steps: int
    run: Run

    @property
    def epoch(self) -> int:
        return min(self.steps, len(self.splits.train) // self.recipe.batch_size)

    def network(self, sgd: bool = False, xla: bool = False) -> Any:
        """The recipe's network as `train` compiles it, but for what the arguments name."""
        import keras

        from pipelines.train import _compiled, plan

        recipe, splits = self.recipe, self.splits
        keras.utils.set_random_seed(recipe.seed)
        model = _compiled(recipe, splits, plan(recipe, len(splits.train)))
        if sgd:
            model.optimizer = keras.optimizers.SGD(recipe.learning_rate, recipe.momentum)
        model.jit_compile = xla
        return model

    def arrays(self) -> dict[str, Any]:
        """Whole batches in memory, so that every step has one shape."""
        size = self.recipe.batch_size
        x, y = self.splits.train.take(slice(self.epoch * size))
        return {"x": x, "y": y, "batch_size": size}

    def stream(self) -> dict[str, Any]:
        from pipelines.train import _train_stream

        stream = _train_stream(self.recipe, self.splits.train, self.steps)
        return {"x": stream, "steps_per_epoch": self.epoch, "shuffle": False}

    def one_batch(self) -> dict[str, Any]:
        import tensorflow as tf

        batch = self.splits.train.take(slice(self.recipe.batch_size))
        stream = tf.data.Dataset.from_tensors(batch).repeat()
        return {"x": stream, "steps_per_epoch": self.epoch, "shuffle": False}

    def fit(self, model: Any, inputs: dict[str, Any], log: bool = False) -> float:
        """Milliseconds a step of one turn, from the start of training to its last number sent."""
        import keras

        from pipelines.journal import progress_bar

        clock: list[float] = []
        watch = keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: clock.append(time.perf_counter())
        )
        with progress_bar(self.recipe.name, self.steps) as advance:
            callbacks = [watch, *([self._journal(advance)] if log else [])]
            model.fit(**inputs, epochs=self.steps // self.epoch, callbacks=callbacks, verbose=0)
            self.run.flush()
        return 1000 * (time.perf_counter() - clock[0]) / self.steps

    def _journal(self, advance: Callable[[float], Any]) -> Any:
        from pipelines.journal import Journal
        from pipelines.train import plan

        class Steps(Journal):
            def on_epoch_end(self, epoch: int, logs: Any) -> None:
                """Needs validation in a Journal."""

        rates = plan(self.recipe, len(self.splits.train))[: self.steps]
        return Steps(rates, self.recipe.batch_size, self.run.log, advance)


def _turns(bench: _Bench) -> dict[str, Callable[[], float]]:
    """A turn of every row; rows that differ in their data alone train the same network."""
    bare, ours, xla = bench.network(sgd=True), bench.network(), bench.network(xla=True)
    return {
        "bare_fit": lambda: bench.fit(bare, bench.arrays()),
        "optimizer": lambda: bench.fit(ours, bench.arrays()),
        "stream": lambda: bench.fit(ours, bench.stream()),
        "journal": lambda: bench.fit(ours, bench.stream(), log=True),
        "xla": lambda: bench.fit(xla, bench.stream(), log=True),
        "no_input": lambda: bench.fit(ours, bench.one_batch(), log=True),
    }


if __name__ == "__main__":
    main()
