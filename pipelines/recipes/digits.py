"""Small recipes of our own: a minute on a laptop, on data that needs no download."""

from pipelines.data import datasets
from pipelines.recipes.cost import seconds
from pipelines.recipes.recipe import Recipe

ALLCONV = Recipe(
    name="allconv-digits",
    source="the network of HM Table 1, narrower, on 8x8 digits",
    costs={"cpu": seconds(10)},
    model="allconv_resnet",
    model_args={
        "blocks_per_stage": 5,
        "widths": (8, 16, 32),
        "stem_width": 8,
        "shortcut": "identity",
        "use_bias": False,
        "fixed_projection": True,
        "init": "small",
    },
    data="digits",
    batch_size=32,
    steps=400,
    learning_rate=0.05,
    schedule="steps",
    schedule_args={"boundaries": (30_000 / 64_000, 50_000 / 64_000), "factor": 0.1},
    warmup=0.1,
    weight_decay=1e-4,
)
PLAIN = ALLCONV.override(
    name="plain-digits",
    source="allconv-digits without its identity shortcuts",
    model_args={"shortcut": "none", "init": "he"},
)
MLP = ALLCONV.override(
    name="mlp-digits",
    source="HM section 3: blocks x + V relu(U x), on 8x8 digits",
    costs={"cpu": seconds(5)},
    model="mlp",
    model_args={"depth": 4, "width": 64, "identity": True, "init": "small"},
    weight_decay=0.0,
)
TEACHER = Recipe(
    name="linear-teacher",
    source="HM section 2: (I+A_l)...(I+A_1) on samples y = Rx + noise",
    costs={"cpu": seconds(5)},
    model="linear_resnet",
    model_args={"depth": 8, "init": "zeros"},
    data="linear-teacher",
    data_args=datasets.get("linear-teacher").start({}),
    batch_size=256,
    steps=400,
    learning_rate=0.01,
    momentum=0.0,
)
# LY's rate is 1e-3, at which the same takes 40,000 steps.
STUDENT = TEACHER.override(
    name="relu-teacher",
    source="LY section 5.2: a student with the identity, and a teacher of its own form",
    costs={"cpu": seconds(10)},
    steps_per_execution=100,
    model="two_layer",
    model_args={
        "variant": "reslink",
        "start_norm": 0.6,
        "start_frobenius": 5.0,
        "hidden": 500,
    },
    data="relu-teacher",
    data_args={
        "dimension": 100,
        "noise": 0.0,
        "train_size": 100_000,
        "val_size": 10_000,
        "test_size": 10_000,
        "teacher_norm": 0.6,
        "teacher_frobenius": 5.7,
    },
    batch_size=200,
    steps=10_000,
    learning_rate=5e-3,
)
RELU_BLOCKS = TEACHER.override(
    name="relu-blocks-digits",
    source="LY section 5.4: blocks relu(x + W x), started from zeros, on 8x8 digits",
    costs={"cpu": seconds(5)},
    model="relu_blocks",
    model_args={"depth": 5, "identity": True, "init": "zeros"},
    data="digits",
    data_args={"standardized": False},
    batch_size=256,
    steps=400,
    learning_rate=0.02,
    schedule="steps",
    schedule_args={"boundaries": (0.8, 0.9), "factor": 0.1},
    momentum=0.9,
    nesterov=True,
    weight_decay=5e-4,
)
