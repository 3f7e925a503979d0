"""The command: trains the networks, runs every study, and judges the claims of the paper."""

from functools import cached_property
from pathlib import Path
from typing import Any

from murmuration.core.recipe import make_recipe
from murmuration.data import Data, Split, open_data
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.html import Markup
from murmuration.runs.directory import MANIFEST
from murmuration.studies.pages.studies import STUDIES, Choices, Subject, ood_splits
from murmuration.studies.papers import Options, Outcome, ScreenTable, Show, check_least, check_parts, choose_settings
from murmuration.studies.papers.landscape.chains import chains_of
from murmuration.studies.papers.landscape.claims import claims
from murmuration.studies.papers.landscape.page import chains_section, page
from murmuration.studies.papers.landscape.settings import PARTS, PROFILES, Setting
from murmuration.studies.papers.record import open_record, save_record
from murmuration.studies.similarity import network_similarity
from murmuration.studies.trajectory import Trajectory, find_trajectory
from murmuration.system.errors import Misuse
from murmuration.system.files import read_json
from murmuration.system.records import plain_json
from murmuration.training.fitting import fit, load, resume
from murmuration.training.plan import Plan


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with claims, the page and the table of claims.

    Parts already computed are read from their pieces.
    """
    setting = choose_settings(PROFILES, options)
    check_least(setting, members=2, epochs=1, examples=1)
    check_parts(setting.parts, PARTS)
    record = open_record(out, "landscape", setting, extends=("parts",), parts={})
    laboratory = Laboratory(setting, out, show)
    bodies: dict[str, Markup] = {}
    for part in setting.parts:
        result, bodies[part] = laboratory.compute(part)
        record["parts"][part] = plain_json(result)
        record["networks"] = laboratory.about()
        save_record(out, record)
    judged_claims = claims(record["parts"])
    full_record = plain_json({**record, "claims": judged_claims})
    save_record(out, full_record)
    rows = [[claim.name, claim.verdict, claim.figure] for claim in judged_claims]  # the page has the numbers
    table = ScreenTable("claims", ["", "verdict", "figure of the paper"], rows, False)
    return Outcome(full_record, page(full_record, judged_claims, bodies, command), [table])


class Laboratory:
    """The networks of a reproduction, trained when a part first needs them, and its parts."""

    def __init__(self, setting: Setting, out: Path, show: Show) -> None:
        self.setting, self.out, self.show = setting, out, show

    @cached_property
    def data(self) -> Data:
        data = open_data(self.setting.data, prepare=self.setting.prepare)
        if data.task != "classification":
            raise Misuse(f"--data {self.setting.data} is a {data.task}: the experiment compares predicted classes")
        return data

    @cached_property
    def test(self) -> Split:
        return self.data.test[: self.setting.examples]

    @cached_property
    def runs(self) -> Ensemble:
        """Independent runs, with checkpoints of every epoch."""
        return self.trained("networks", "deep-ensemble", self.setting.plan(trajectory="every-epoch"))

    def trained(self, name: str, recipe: str, plan: Plan, **answers: str) -> Ensemble:
        """Return the ensemble of a run of this name, continued if it was begun."""
        path, epochs = self.out / "runs" / name, plan.epochs

        def show_epoch(text: str, done: int, total: int, record: dict[str, Any] | None) -> None:
            if total:
                self.show(f"training {name}, epoch {min(done * epochs // total + 1, epochs)}", done, total)

        if not (path / MANIFEST).exists():
            built_recipe = make_recipe(recipe, **answers)
            return fit(self.setting.net, self.data, recipe=built_recipe, plan=plan, out=path, progress=show_epoch)
        if read_json(path / MANIFEST)["status"] != "complete":
            return resume(path, data=self.data, show=show_epoch)
        return load(path, posthoc=False)

    def about(self) -> dict[str, Any]:
        """Return accuracies of the runs, and how long they trained."""
        last = self.runs.history[-1]
        return {
            "parameters": self.runs.groups[0].population.parameters_per_member(),
            "examples": {part: len(getattr(self.data, part)) for part in ("train", "val", "test")},
            "validation accuracy": last["val_accuracy"],
            "validation NLL": last["val_nll"],
        }

    def compute(self, part: str) -> tuple[Any, Markup]:
        """Return the record of a part, and its sections of the page."""
        if part == "chains":
            return self.chains()
        setting = self.setting
        sources = [] if setting.ood is None else [setting.ood]
        ood = {name: split[: setting.examples] for name, split in ood_splits(sources, self.runs).items()}
        severities = setting.severities if len(self.data.input_shape) == 3 else ()  # of images
        samples = setting.subspace if part == "sizes" else None
        factorial: dict[str, Any] = {"runs": setting.factorial_runs, "epochs": setting.factorial_epochs}
        factorial |= {"rates": setting.rates}
        choices = Choices(grid=setting.grid, samples=samples, severities=severities, ood=ood, **factorial)
        common = choices, self.out / "pieces" / part, self.show
        outcome = STUDIES[part].run(Subject(self.runs, self.data, self.test, self.trajectory, *common))
        return outcome.record, outcome.body

    @cached_property
    def trajectory(self) -> Trajectory | None:
        return find_trajectory(self.out / "runs" / "networks") if self.runs else None

    def chains(self) -> tuple[Any, Markup]:
        """Return cSG-MCMC: one sample a cycle and chain."""
        setting = self.setting
        plan = setting.plan(members=setting.chains, schedule=None, lr=5e-3)
        dynamics = f"csgmcmc:cycles={setting.cycles},samples=1"
        ensemble = self.trained("chains", "csgmcmc", plan, dynamics=dynamics)
        similarity = network_similarity(ensemble, self.test, train=self.data.train, cka=False)
        record = chains_of(ensemble, similarity, setting.chains, setting.cycles)
        return record, chains_section(record)
