"""What may have been meant by a word that is not known: the nearest, or the field's word for it."""

import difflib
from collections.abc import Iterable

MEANT = {  # our options, and what other programs of the field call them
    "accumulate": "accumulation-steps gradient-accumulation-steps grad-accum grad-accumulation",
    "augment": "augmentation data-augmentation aug",
    "batch-size": "bs batch b minibatch mini-batch train-batch-size per-device-batch-size",
    "checkpoint-every": "ckpt-every save-every save-steps save-freq checkpoint-freq",
    "data": "dataset data-set ds",
    "data-dir": "data-root data-path data-folder root dataset-dir datadir",
    "devices": "gpus gpu num-gpus n-gpus ngpus num-devices device",
    "ema": "ema-decay model-ema",
    "epochs": "epoch num-epochs n-epochs num-train-epochs max-epochs e",
    "force": "overwrite rerun no-cache f",
    "hours": "timeout time-limit max-hours",
    "label-smoothing": "smoothing ls",
    "learning-rate": "lr base-lr initial-lr init-lr max-lr peak-lr eta",
    "max-minutes": "timeout time-limit max-time minutes",
    "model": "arch architecture net network m",
    "momentum": "beta beta1 mom",
    "new-run": "no-resume fresh restart",
    "out": "output output-dir out-dir o save-dir",
    "precision": "dtype amp fp16 bf16 mixed-precision half",
    "recipe": "config cfg",
    "sampler": "optimizer algorithm search-alg",
    "schedule": "scheduler lr-scheduler lr-schedule sched lr-scheduler-type lr-policy",
    "seed": "random-seed manual-seed rng-seed",
    "seeds": "num-seeds n-seeds nseeds repeats runs trials",
    "size": "image-size img-size input-size resolution",
    "steps": "iterations iters num-steps max-steps max-iters train-steps n-steps",
    "test-every": "eval-every eval-steps eval-freq",
    "train-examples": "max-train-samples num-examples subset limit",
    "trials": "num-trials n-trials ntrials max-trials",
    "warmup": "warmup-steps warmup-epochs warmup-ratio warmup-iters",
    "weight-decay": "wd l2 decay weightdecay",
    "workers": "num-workers n-jobs jobs j nproc processes",
}


def suggest(word: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean --learning-rate?`; empty where nothing is near."""
    bare = {choice.lstrip("-"): choice for choice in choices}
    asked = word.lstrip("-").replace("_", "-")
    meant = [ours for ours, theirs in MEANT.items() if ours in bare and asked in theirs.split()]
    near = meant or difflib.get_close_matches(asked, bare, n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""
