"""Tables of the benchmarks: what each holds, and how it is split. Tables of packages that are missing are skipped."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import table_sets as sets

ROOT = Path(sets.__file__).parent
OFFLINE = [name for name, table in sets.TABLES.items() if table.source in (sets.GENERATED, sets.SKLEARN)]


@pytest.mark.parametrize("name", sets.TABLES)
def test_a_table_is_as_stated(name):
    table = sets.TABLES[name]
    try:
        frame = table.frame()
    except sets.MissingTableError as reason:
        assert name not in OFFLINE
        pytest.skip(str(reason))
    inputs = frame.drop(columns=table.target)
    texts = [column for column in inputs if not pd.api.types.is_numeric_dtype(inputs[column])]
    found = (len(frame), inputs.shape[1], len(texts), bool(inputs.isna().any(axis=None)))
    assert found == (table.rows, table.columns, table.categories, table.missing)
    assert frame[table.target].nunique() == table.classes or table.task == "regression"
    assert not inputs.isna().all().any()


def test_groups_are_apart_large_enough_and_balanced():
    choosing, reporting = (sets.group_names(group) for group in ("choosing", "reporting"))
    assert len(choosing) >= 10
    assert len(reporting) >= 24
    assert len({*choosing, *reporting}) == len(choosing) + len(reporting) == len(sets.TABLES)
    assert {"wine-quality", "concrete", "breast-cancer", "diabetes"} <= set(reporting)
    for group in sets.GROUPS.values():
        shares = [np.mean([getattr(table, trait) > 0 for table in group]) for trait in ("classes", "categories")]
        assert shares[0] == 0.5
        assert 0.25 <= shares[1] <= 0.5
        assert sum(table.missing for table in group) >= 3


def test_packages_are_those_of_the_requirements():
    listed = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert {table.source.name for table in sets.TABLES.values() if table.source.module} <= listed
    assert all(table.source.licence for table in sets.TABLES.values())


def test_splits_are_those_of_the_seed_with_at_most_4000_training_rows(monkeypatch):
    small = sets.open_table(sets.TABLES["wine-cultivars"], 3)
    assert [len(small.train), len(small.val), len(small.test)] == [114, 28, 36]
    assert sets.open_table(sets.TABLES["wine-cultivars"], 3).fingerprint == small.fingerprint
    assert not np.array_equal(sets.open_table(sets.TABLES["wine-cultivars"], 4).test.x, small.test.x)
    monkeypatch.setattr(sets, "ROWS", 500)
    drawn = [sets.open_table(sets.TABLES["friedman1"], seed) for seed in (0, 0, 1)]
    assert [len(part) for part in (drawn[0].train, drawn[0].val, drawn[0].test)] == [320, 80, 100]
    assert drawn[0].fingerprint == drawn[1].fingerprint != drawn[2].fingerprint
    assert round(6250 * (1 - sets.VAL_SHARE - sets.TEST_SHARE)) == sets.TRAIN_ROWS


def test_categories_and_missing_values_reach_the_contenders():
    data = sets.open_table(sets.TABLES["mixed-types"], 0)
    assert data.train.x["c3"].dtype == object
    assert data.train.x.isna().any(axis=None)
    assert (data.task, len(data.classes)) == ("classification", 3)
