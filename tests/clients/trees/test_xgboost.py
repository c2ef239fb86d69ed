"""XGBoost: gradient boosting whose kernels nvcc made (thrust, cub, its own), against its own trees on the
CPU. Its wheel has PTX for compute capability 12.0 and 10.0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import xgboost as xgb

# Fewer rows than bins: else the two sketches of the data differ, and so do the trees.
ROWS, BINS, COLUMNS, ROUNDS = 250, 256, 6, 4
Data = tuple[np.ndarray, np.ndarray]


def data(seed: int = 0) -> Data:
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    y = 2 * x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3] + 0.1 * random.normal(size=ROWS)
    return x, y.astype(np.float32)


def trained(device: str, matrix: xgb.DMatrix, rounds: int = ROUNDS, **parameters: Any) -> xgb.Booster:
    wanted = {
        "tree_method": "hist",
        "max_depth": 4,
        "max_bin": BINS,
        "min_child_weight": 0,  # where it forbids the best of 32 splits, the GPU looks at none of the others
        "seed": 1,
        "device": device,
    }
    return xgb.train({**wanted, **parameters}, matrix, num_boost_round=rounds)


def same(x: Any, y: np.ndarray, **parameters: Any) -> None:
    """Both devices make the same trees. Weights see to it that no two splits are equally good."""
    matrix = xgb.DMatrix(x, y, weight=np.random.default_rng(2).uniform(0.5, 1.5, ROWS))
    made = [trained(device, matrix, **parameters).predict(matrix) for device in ("cpu", "cuda")]
    np.testing.assert_allclose(made[1], made[0], atol=1e-4)


def test_regression() -> None:
    x, y = data()
    same(x, y)
    predicted = trained("cuda", xgb.DMatrix(x, y), 20).predict(xgb.DMatrix(x))
    assert np.mean((predicted - y) ** 2) < 0.2 * np.var(y)


@pytest.mark.parametrize(
    "objective", ["binary:logistic", "reg:absoluteerror", "reg:quantileerror", "count:poisson"]
)
def test_objectives(objective: str) -> None:
    x, y = data()
    target = {"binary:logistic": y > 0, "count:poisson": np.floor(np.abs(y))}.get(objective, y)
    more = {"quantile_alpha": 0.3} if "quantile" in objective else {}
    same(x, target.astype(np.float32), objective=objective, **more)


def test_many_classes() -> None:
    x, y = data()
    same(x, np.digitize(y, [-2, 0, 2]), objective="multi:softprob", num_class=4)


def test_ranking() -> None:
    x, y = data()
    relevance = np.digitize(y, [-1, 1])
    made = []
    for device in ("cpu", "cuda"):
        matrix = xgb.DMatrix(x, relevance, qid=np.arange(ROWS) // 25)
        booster = trained(device, matrix, objective="rank:ndcg", eval_metric="ndcg")
        made.append(float(booster.eval(matrix).rsplit(":", 1)[1]))
    assert made[1] == pytest.approx(made[0], abs=0.02)
    assert made[1] > 0.7


def test_missing_and_sparse() -> None:
    x, y = data()
    x[np.random.default_rng(1).random(x.shape) < 0.3] = np.nan
    same(x, y)
    same(scipy.sparse.csr_matrix(np.nan_to_num(x)), y)


def test_categories() -> None:
    x, y = data()
    x[:, 0] = np.digitize(x[:, 0], [-1, 0, 1])
    made = []
    for device in ("cpu", "cuda"):
        matrix = xgb.DMatrix(x, y, feature_types=["c"] + ["q"] * (COLUMNS - 1), enable_categorical=True)
        made.append(trained(device, matrix, max_cat_to_onehot=2).predict(matrix))
    np.testing.assert_allclose(made[1], made[0], atol=1e-4)


def test_sampling_and_constraints() -> None:
    x, y = data()
    matrix = xgb.DMatrix(x, y)
    booster = trained(
        "cuda", matrix, subsample=0.5, sampling_method="gradient_based", monotone_constraints="(1)"
    )
    steps = np.zeros((50, COLUMNS), np.float32)
    steps[:, 0] = np.linspace(-2, 2, 50)
    assert (np.diff(booster.predict(xgb.DMatrix(steps))) >= -1e-6).all()
    same(x, y, interaction_constraints="[[0, 1], [2, 3, 4, 5]]", grow_policy="lossguide", max_leaves=12)


def test_contributions() -> None:
    """What each column adds to a prediction: on the GPU a kernel of its own."""
    x, y = data()
    booster = trained("cpu", xgb.DMatrix(x, y))
    expected = booster.predict(xgb.DMatrix(x), pred_contribs=True)
    booster.set_param({"device": "cuda"})
    found = booster.predict(xgb.DMatrix(x), pred_contribs=True)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    np.testing.assert_allclose(found.sum(axis=1), booster.predict(xgb.DMatrix(x)), atol=1e-3)


def test_evaluation_and_early_stop() -> None:
    x, y = data()
    x_other, y_other = data(1)
    told: dict[str, Any] = {}
    booster = xgb.train(
        {"tree_method": "hist", "device": "cuda", "max_depth": 6, "eta": 0.8, "eval_metric": ["rmse", "mae"]},
        xgb.DMatrix(x, y),
        num_boost_round=15,
        evals=[(xgb.DMatrix(x_other, y_other), "other")],
        early_stopping_rounds=3,
        evals_result=told,
        verbose_eval=False,
    )
    best = told["other"]["mae"][booster.best_iteration]
    predicted = booster.predict(xgb.DMatrix(x_other), iteration_range=(0, booster.best_iteration + 1))
    assert np.mean(np.abs(predicted - y_other)) == pytest.approx(best, rel=1e-4)


def test_saved_and_loaded(tmp_path: Path) -> None:
    x, y = data()
    booster = trained("cuda", xgb.DMatrix(x, y))
    booster.save_model(tmp_path / "model.ubj")
    loaded = xgb.Booster(model_file=tmp_path / "model.ubj")
    np.testing.assert_allclose(loaded.predict(xgb.DMatrix(x)), booster.predict(xgb.DMatrix(x)), atol=1e-6)


def test_data_that_comes_in_parts() -> None:
    class Parts(xgb.DataIter):  # type: ignore[misc]
        at = 0

        def next(self, input_data: Any) -> bool:
            if self.at == 3:
                return False
            x, y = data(self.at)
            input_data(data=x, label=y)
            self.at += 1
            return True

        def reset(self) -> None:
            self.at = 0

    matrix = xgb.QuantileDMatrix(Parts(), max_bin=BINS)
    x, y = data()
    assert np.mean((trained("cuda", matrix, 20).predict(xgb.DMatrix(x)) - y) ** 2) < 0.25 * np.var(y)
