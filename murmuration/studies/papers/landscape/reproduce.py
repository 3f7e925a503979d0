"""The command: trains the networks, runs every study, and judges the claims of the paper."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from murmuration.core.recipe import make_recipe
from murmuration.data import Data, Split, open_data, open_inputs
from murmuration.evaluation import eval_set_of, shift_suite
from murmuration.prediction.ensemble import Ensemble
from murmuration.reports.html import Markup
from murmuration.studies.pages.studies import STUDIES, Choices, Subject, ood_splits
from murmuration.studies.papers import Options, Outcome, Show, check_least, check_parts
from murmuration.studies.papers.landscape.chains import chains_of
from murmuration.studies.papers.landscape.claims import verdicts
from murmuration.studies.papers.landscape.page import chains_section, page
from murmuration.studies.papers.landscape.settings import PARTS, Setting, chosen_setting
from murmuration.studies.papers.page import verdict_table
from murmuration.studies.papers.record import open_record, save_record
from murmuration.studies.papers.runs import trained
from murmuration.studies.trajectory import Trajectory, find_trajectory
from murmuration.studies.weight_space import labelled_outputs
from murmuration.system.devices import CPU
from murmuration.system.errors import Misuse, warn
from murmuration.system.records import plain_json
from murmuration.training.plan import Plan


def reproduce(options: Options, out: Path, show: Show, command: str = "") -> Outcome:
    """Return the record with verdicts, the page and the table of verdicts.

    Parts already computed are read from their pieces.
    """
    setting, plan = chosen_setting(options)
    check_least(setting, members=2, epochs=1, examples=1, **({} if setting.train is None else {"train": 1}))
    check_parts(setting.parts, PARTS)
    laboratory = Laboratory(setting, out, show)
    laboratory.check()
    record = open_record(out, "landscape", setting, extends=("parts", "device"), parts={})
    warn(plan)
    bodies: dict[str, Markup] = {}
    for part in setting.parts:
        result, bodies[part] = laboratory.compute(part)
        record["parts"][part] = plain_json(result)
        record |= {"networks": laboratory.about(), "plan": plan}
        save_record(out, record)
    judged = verdicts(record["parts"])
    full_record = plain_json({**record, "verdicts": judged})
    save_record(out, full_record)
    return Outcome(full_record, page(full_record, setting, judged, bodies, command), [verdict_table(judged)])


class Laboratory:
    """The networks of a reproduction, trained when a part first needs them, and its parts."""

    def __init__(self, setting: Setting, out: Path, show: Show) -> None:
        self.setting, self.out, self.show = setting, out, show

    @cached_property
    def data(self) -> Data:
        setting = self.setting
        data = open_data(setting.data, prepare=setting.prepare, val=setting.val)
        if data.task != "classification":
            raise Misuse(f"--data {setting.data} is a {data.task}: the experiment compares predicted classes")
        return data if setting.train is None else replace(data, train=data.train[: setting.train])

    def check(self) -> None:
        """Open data, OOD inputs and corrupted images, so that those that do not fit are refused before training."""
        preparation = self.data.preparation
        if self.setting.ood is not None:
            open_inputs(self.setting.ood, preparation=preparation, adapt=True)
        if self.setting.cifar_c is not None:
            shift_suite(eval_set_of(self.data), severities=self.setting.severities, official=self.setting.cifar_c)

    @cached_property
    def test(self) -> Split:
        return self.data.test[: self.setting.examples]

    @cached_property
    def runs(self) -> Ensemble:
        """Independent runs, with checkpoints of every epoch."""
        return self.trained("networks", "deep-ensemble", self.setting.plan(trajectory="every-epoch"))

    def trained(self, name: str, recipe: str, plan: Plan, **answers: str) -> Ensemble:
        """Return the ensemble of a run of this name, continued if it was begun; analyses are on the CPU."""
        path, built_recipe = self.out / "runs" / name, make_recipe(recipe, **answers)
        return trained(path, self.setting.net, self.data, built_recipe, plan, self.show).to(CPU)

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
        sources = [] if setting.ood is None or part != "sizes" else [setting.ood]
        ood = {name: split[: setting.examples] for name, split in ood_splits(sources, self.runs).items()}
        severities = setting.severities if len(self.data.input_shape) == 3 else ()  # of images
        samples = setting.subspace if part == "sizes" else None
        choices: dict[str, Any] = {"runs": setting.factorial_runs, "epochs": setting.factorial_epochs}
        choices |= {"rates": setting.rates, "grid": setting.grid, "samples": samples, "severities": severities}
        choices |= {"ood": ood, "cifar_c": setting.cifar_c, "paper": setting.paper_samplers}
        common = Choices(**choices), self.out / "pieces" / part, self.show
        outcome = STUDIES[part].run(Subject(self.runs, self.data, self.test, self.trajectory, *common))
        return outcome.record, outcome.body

    @cached_property
    def trajectory(self) -> Trajectory | None:
        return find_trajectory(self.out / "runs" / "networks") if self.runs else None

    def chains(self) -> tuple[Any, Markup]:
        """Return cSG-MCMC, one sample a cycle and chain, beside the runs."""
        setting = self.setting
        dynamics = f"csgmcmc:cycles={setting.cycles},{setting.chain_dynamics}"
        ensemble = self.trained("chains", "csgmcmc", setting.chain_plan(), dynamics=dynamics)

        def classes(networks: Ensemble) -> Tensor:
            outputs, y = labelled_outputs(networks, self.test, self.data.train)
            return outputs.scores(outputs.points.vectors, y).labels

        origins = ensemble.manifest.rows(ensemble.members)
        labels = classes(self.runs), classes(ensemble), self.test.y
        record = chains_of(*labels, origins, setting.chains, setting.cycles)
        return record, chains_section(record)
