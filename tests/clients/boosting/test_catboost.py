"""CatBoost: gradient boosting with oblivious trees, whose kernels nvcc made. What it has learned is asked on
the CPU, which has no part in learning it. Its threads wait for events without a context of their own. Its
wheel has PTX for compute capabilities from 3.5 to 9.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catboost import CatBoostClassifier, CatBoostRanker, CatBoostRegressor, Pool

ROWS, COLUMNS = 800, 8
GPU = {
    "iterations": 6,
    "depth": 4,
    "task_type": "GPU",
    "devices": "0",
    "gpu_ram_part": 0.2,
    "border_count": 32,
    "learning_rate": 0.5,
    "random_seed": 3,
    "verbose": False,
    "allow_writing_files": False,
}


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    return x, (2 * x[:, 0] + x[:, 1] ** 2).astype(np.float32)


def explained(predicted: np.ndarray, y: np.ndarray) -> float:
    """The part of the variance."""
    return float(1 - np.mean((predicted - y) ** 2) / np.var(y))


@pytest.mark.parametrize("how", ["SymmetricTree", "Depthwise", "Lossguide"])
def test_regression(how: str) -> None:
    x, y = data()
    model = CatBoostRegressor(grow_policy=how, **GPU).fit(x, y)
    assert explained(model.predict(x), y) > 0.85


def test_categories() -> None:
    x, y = data()
    kind = np.random.default_rng(1).integers(0, 5, ROWS)
    table = np.column_stack([x.astype(object), [f"kind {each}" for each in kind]])
    y = y + 3 * (kind == 2)
    model = CatBoostRegressor(cat_features=[COLUMNS], **GPU).fit(table, y)
    assert explained(model.predict(table), y) > 0.8
    assert model.get_feature_importance()[COLUMNS] > 1


@pytest.mark.parametrize("loss", ["Logloss", "MultiClass"])
def test_classes(loss: str) -> None:
    x, y = data()
    classes = np.digitize(y, [1.0] if loss == "Logloss" else [-1.0, 1.0, 4.0])
    model = CatBoostClassifier(loss_function=loss, **GPU).fit(x, classes)
    assert np.mean(np.ravel(model.predict(x)) == classes) > 0.85


@pytest.mark.parametrize("loss", ["Quantile:alpha=0.7", "MAE", "Poisson", "Lq:q=3"])
def test_losses(loss: str) -> None:
    x, y = data()
    target = np.floor(np.abs(y)) if loss == "Poisson" else y
    more: dict[str, Any] = {"eval_set": (x[:100], target[:100])}
    model = CatBoostRegressor(loss_function=loss, **GPU).fit(x, target, **more)
    learned = model.get_evals_result()["learn"]
    (steps,) = (values for name, values in learned.items() if name.split(":")[0] == loss.split(":")[0])
    assert steps[-1] < steps[0]


@pytest.mark.parametrize("loss", ["YetiRank", "PairLogit", "QueryRMSE"])
def test_ranking(loss: str) -> None:
    x, y = data()
    pool = Pool(x, (y - y.min()) / np.ptp(y), group_id=np.repeat(np.arange(ROWS // 10), 10))
    scores = CatBoostRanker(loss_function=loss, **GPU).fit(pool).predict(x)
    assert np.corrcoef(scores, y)[0, 1] > 0.5
