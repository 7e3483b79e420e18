"""The training of `run allconv-digits --scale smoke` without the product: Keras, MLflow, a script.

The network alone comes from here. STORE is an address for MLflow; what a person would keep of a
training is logged there: settings, curves, test error, the model.

    python -m benchmarks.bare_training STORE
"""

import sys

import keras
import mlflow
import numpy as np
from sklearn.datasets import load_digits

from keras_models import allconv_resnet

BATCH, STEPS, TRAIN, VALIDATION, RATE = 32, 8, 256, 280, 0.05


class Curves(keras.callbacks.Callback):
    """Logs the loss and the error of every step."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        logs = logs or {}
        metrics = {"batch_loss": logs["loss"], "batch_error_pct": 100 * (1 - logs["accuracy"])}
        mlflow.log_metrics(metrics, step=batch + 1)


def main(store: str) -> None:
    """Train, validate, test, and log it."""
    keras.utils.set_random_seed(0)
    digits = load_digits()
    pictures = ((digits.images - 4.88) / 6.02).astype(np.float32)[..., None]
    train, validation, test = (
        (pictures[part], digits.target[part])
        for part in np.split(np.arange(len(pictures)), [TRAIN, TRAIN + VALIDATION])
    )
    network = allconv_resnet.build(
        (8, 8, 1), 10, blocks_per_stage=1, widths=(8, 16, 32), stem_width=8
    )
    network.compile(
        keras.optimizers.SGD(RATE, momentum=0.9, weight_decay=1e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    mlflow.set_tracking_uri(store)
    with mlflow.start_run(run_name="bare"):
        mlflow.log_params({"batch": BATCH, "steps": STEPS, "rate": RATE, "train": TRAIN})
        fitted = network.fit(
            *train, BATCH, validation_data=validation, verbose=0, callbacks=[Curves()]
        )
        final = {name: values[-1] for name, values in fitted.history.items()}
        loss, accuracy = network.evaluate(*test, verbose=0)
        mlflow.log_metrics(
            {**final, "test_loss": loss, "test_error_pct": 100 * (1 - accuracy)}, step=STEPS
        )
        # without an example: MLflow 3.17.2 cannot store one of a Keras model, its issue 16183
        example = test[0][:1]
        signature = mlflow.models.infer_signature(example, network.predict(example, verbose=0))
        packages = [f"keras=={keras.__version__}"]  # or MLflow loads it again, to find them
        mlflow.keras.log_model(
            network, name="model", signature=signature, pip_requirements=packages
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
