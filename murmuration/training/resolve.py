"""`resolve`: the one place where the defaults of a training run are filled in and bad requests are refused."""

import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from murmuration.core.recipe import Recipe, make_recipe
from murmuration.core.roles import ParameterRoles, roles_before_training
from murmuration.data import Data, DataOptions, open_training_data
from murmuration.data.preparation import FeaturePreparation
from murmuration.data.samplers import INSTANCE
from murmuration.likelihoods import (
    CLASSIFICATION,
    MULTI_LABEL,
    REGRESSION,
    Likelihood,
    checked_likelihood,
    fit_likelihood,
    likelihood_by_name,
    likelihood_for,
)
from murmuration.models.estimators.member import check_fit
from murmuration.models.estimators.storage import require_skops
from murmuration.models.estimators.table import is_model, kind_of, models_for, name_of, refuse_unused
from murmuration.models.features import feature_source
from murmuration.models.nets import edges_for
from murmuration.models.nets.adapt import Output, plain_module
from murmuration.models.nets.given_weights import State, Weights, describe_start, given_weights, with_weights
from murmuration.models.nets.inputs import COSINES, ending_in_cosines, for_preparation
from murmuration.models.nets.pretrained import HEAD, keeping_statistics, pretrained_state
from murmuration.models.nets.source import EVERY, Net, NetSource, check_net, net_source
from murmuration.models.nets.validation import check_initialisation, check_network, plain_tensors
from murmuration.prediction.ensemble import Ensemble
from murmuration.prediction.posthoc.fit import check_config
from murmuration.runs import directory as runs
from murmuration.runs.processes import refuse_several
from murmuration.system.devices import CPU, refuse_autocast
from murmuration.system.errors import Misuse, names_of, require_integer, unknown
from murmuration.system.progress import counting_bar
from murmuration.system.settings import settings_of
from murmuration.system.streams import kept_generators
from murmuration.training.batches import plan_for_loader, plan_for_steps
from murmuration.training.foreign_names import FOREIGN
from murmuration.training.loading import load
from murmuration.training.plan import Plan, plan_for
from murmuration.training.spec import TrainSpec
from murmuration.training.table_defaults import defaults_for, filled_settings

InitFrom = Weights | Ensemble  # weights that members start from; text is a run directory or a file
PARAMETERS = ("net", "data", "recipe", "plan", "likelihood", "folds", "out", "progress", "callback")  # of `fit` itself
LOSS = ("noise_std", "link")  # settings of the likelihood
START = ("init_from", "reset", "pretrained", "output")  # settings of the networks
OWN_TYPES = {  # of keywords that concern the networks
    "reset": (str, tuple, list),
    "pretrained": (bool, str, Path),
    "features": (str,),
    "features_from": (str, Path),
    "link": (str,),
}
FEATURES = ("features", "features_from")  # settings of a pretrained network in the place of inputs


@dataclass(frozen=True)
class Resolved:
    """A training run with every setting decided: what `fit` trains, `murmur plan` measures and studies describe.

    Attributes:
        net: Network, or a model that is not a network.
        data: Opened data.
        recipe: The four answers.
        plan: Settings of training, with every default filled in.
        loss: Likelihood or loss by name that was asked for or is the default, and settings of the default.
        settings: Keywords that concern the networks: `init_from`, `reset`, `pretrained`, `output`.
    """

    net: Any
    data: Data
    recipe: Recipe
    plan: Plan
    loss: dict[str, Any]
    settings: dict[str, Any]

    @property
    def is_estimator(self) -> bool:
        """Whether the members are not networks."""
        return is_model(self.net)

    def spec(self, data: Data | None = None) -> tuple[TrainSpec, NetSource]:
        """Return the specification of training networks, and the source of the networks.

        Args:
            data: Other data than that of the request, such as all folds together.
        """
        return make_spec(self.net, data or self.data, self.recipe, self.plan, **self.loss, **self.settings)

    def likelihood(self) -> Likelihood:
        """Return the likelihood, fitted to the training targets where it has statistics of them."""
        return choose_likelihood(self.data, self.recipe, **self.loss)


def resolve(
    net: Net | None,
    data: Any,
    recipe: str | Recipe = "deep-ensemble",
    plan: Plan | None = None,
    settings: dict[str, Any] | None = None,
    *,
    likelihood: Likelihood | str | None = None,
    out: str | Path | None = None,
    quiet: bool = True,
) -> Resolved:
    """Open the data and decide every setting of a training run; refuse what does not fit, before anything is trained.

    Args:
        net: Network or model, as `mm.fit` takes it.
        data: Data, as `mm.fit` takes it.
        recipe: Name of a preset, or a recipe.
        plan: Settings of training; those among `settings` take precedence.
        settings: Further keywords of `mm.fit`.
        likelihood: Likelihood, or a loss by name.
        out: Run directory, where features are kept while they are computed.
        quiet: Whether to show no progress of computing features.

    Raises:
        Misuse: With what was given, what was expected and what to write.
    """
    if torch.is_inference_mode_enabled():
        raise Misuse("training inside torch.inference_mode() has no gradients: leave the block")
    if not isinstance(plan, Plan | None):
        raise Misuse(f"plan={plan!r:.60}: need a mm.Plan, or its fields as keywords")
    settings = dict(settings or {})
    own = {name: settings.pop(name, None) for name in (*START, *LOSS, *FEATURES)}
    for name, types in OWN_TYPES.items():
        if own[name] is not None and not isinstance(own[name], types):
            raise Misuse(f"{name}={own[name]!r:.60}: need {' or '.join(kind.__name__ for kind in types)}")
    start = {name: own[name] for name in START if own[name] is not None and own[name] is not False}
    if not start.get("reset", True):
        del start["reset"]
    features, features_from = own["features"], own["features_from"]
    if is_model(net):
        if features is not None or any(name != "reset" for name in start):
            raise Misuse(f"init_from, pretrained, output or features with {name_of(net)}: they are for networks")
        refuse_several(name_of(net))
    elif net is not None:
        check_net(net)
    elif "init_from" in start:
        net = architecture_of(start["init_from"])
    chosen_recipe = make_recipe(recipe)
    training, reading = sort_settings(settings, net)
    if "members" in training:
        require_integer("members", training["members"], 1)
    filled = plan_for(chosen_recipe, plan, **training)
    refuse_autocast(filled.device)
    if out is None and filled.trajectory is not None:
        raise Misuse(f"trajectory='{filled.trajectory}' without out: checkpoints are files of a run; give out='runs/x'")
    task = getattr(likelihood, "task", None)
    if task in (MULTI_LABEL, REGRESSION) and not isinstance(data, Data):
        reading.setdefault("task", task)
    if features_from is not None and features is None:
        raise Misuse(f"features_from={str(features_from)!r} without features=: name the network of these weights")
    with counting_bar(f"features by {features}", quiet or features is None) as count:
        if features is not None:
            backbone = feature_source(features, features_from or True, reading.get("size"), out=out, count=count)
            reading |= {"features": backbone, "size": backbone.size}
        opened = open_training_data(data, **reading)
    random_start = "init_from" not in start and "pretrained" not in start
    defaults = defaults_for(opened, chosen_recipe, net) if plan is None and random_start else None
    if defaults is not None:
        net, filled = defaults.net, plan_for(chosen_recipe, **filled_settings(defaults, training))
        likelihood = defaults.loss if likelihood is None and own["noise_std"] is None else likelihood
    filled = plan_for_steps(plan_for_loader(filled, opened.train, training), opened.train)
    if out is not None and (chosen_recipe.models or (is_model(net) and kind_of(net).package == "sklearn")):
        require_skops()
    if is_model(net):
        filled = replace(filled, members=training.get("members") or getattr(plan, "members", 0) or 1)
    loss = {"likelihood": likelihood} | {name: own[name] for name in LOSS}
    return Resolved(net, opened, chosen_recipe, filled, loss, start)


def sort_settings(settings: dict[str, Any], net: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keywords of `fit` that are fields of `Plan`, and those that are keywords of `open_data`.

    None is a keyword that is left out, unless it is a value of the field.
    Refuses unknown keywords, and fields that do nothing for this network or model.
    """
    planned = {setting.name: setting for setting in settings_of(Plan)}
    reading = {setting.name for setting in settings_of(DataOptions)} - {"seed"}
    for name in settings:
        if name.lower() in FOREIGN:
            raise Misuse(f"unknown keyword of fit '{name}': write {FOREIGN[name.lower()]}")
        if name in PARAMETERS:
            raise Misuse(f"{name}= is of mm.fit alone: leave it out")
        if name not in {*planned, *reading}:
            names = {*planned, *reading, *PARAMETERS, *START, *LOSS, *FEATURES}
            raise unknown("keyword of fit", name, names, see="help(mm.fit)")
    given = {n: value for n, value in settings.items() if value is not None or (n in planned and planned[n].optional)}
    training, of_data = ({name: given[name] for name in given if name in names} for names in (planned, reading))
    refuse_unused(net, training)
    return training, of_data


def make_spec(
    net: Net | None,
    data: Data,
    recipe: Recipe,
    plan: Plan,
    *,
    likelihood: Likelihood | str | None = None,
    noise_std: float | None = None,
    link: str | None = None,
    init_from: InitFrom | None = None,
    reset: str | Sequence[str] = (),
    pretrained: bool | str | Path = False,
    output: Output | None = None,
) -> tuple[TrainSpec, NetSource]:
    """Return the specification of training a network on data by a recipe, and the source of its networks."""
    patterns = (reset,) if isinstance(reset, str) else names_of("reset", reset)
    if patterns and init_from is None:
        raise Misuse(f"reset={reset!r} without init_from: all weights are random anyway; leave reset out")
    if isinstance(data.preparation, FeaturePreparation) and recipe.sharing.frozen:
        raise Misuse("features and a frozen backbone: the heads on features have no body; choose sharing own")
    if init_from is not None and recipe.sharing.frozen:
        raise Misuse("init_from with a frozen backbone: the body is given by frozen=; leave one of the two out")
    if not len(data.val):
        raise Misuse(f"{data.name} has no validation examples: training needs some; give val= a share such as 0.15")
    if plan.augment and len(data.input_shape) != 3:
        raise Misuse(f"augment={','.join(plan.augment)} is for images, and {data.name} has none: leave it out")
    if plan.sampler != INSTANCE and data.task != CLASSIFICATION:
        raise Misuse(f"sampler={plan.sampler} is by class, and {data.name} is a {data.task}: leave it out")
    likelihood = choose_likelihood(data, recipe, likelihood, noise_std, link)
    classes = getattr(likelihood, "classes", None)
    if data.classes and classes is not None and classes != len(data.classes):
        name = type(likelihood).__name__
        raise Misuse(f"{name}({classes}) for data of {len(data.classes)} classes: write {name}({len(data.classes)})")
    if plan.posthoc is not None:
        check_config(plan.posthoc, likelihood.task)
    used_net = default_net(data) if net is None else net
    edges = edges_for(used_net, data.train.prepared)
    source = source_for(used_net, data.input_shape, likelihood, EVERY if init_from is None else patterns, edges)
    source = for_preparation(source, data.preparation, data.input_shape, output)
    keeps_weights = init_from is not None or True in (recipe.sharing.frozen, recipe.weights.init_from)
    if isinstance(net, nn.Module) and not keeps_weights:
        check_initialisation(plain_module(net))
    source = checked_source(source, data, likelihood, plan.device)
    published = None
    if pretrained:
        if init_from is not None:
            raise Misuse("pretrained= and init_from=: both are weights to begin with; leave one of them out")
        published = pretrained_state(net, source.structure(), pretrained, data.preparation)
        source = keeping_statistics(source)
        init_from, patterns = None if recipe.sharing.frozen else published, (HEAD,)
    backbone = next(trained_networks(recipe.sharing.frozen, "backbone:frozen", net, source, published), None)
    if init_from is not None:
        if isinstance(recipe.weights.init_from, str):
            raise Misuse("init_from twice, as a keyword and among the settings of the weights: leave one of them out")
        begin_with = starting_networks(init_from, patterns, net, source, plan.members)
        start = describe_start(init_from if published is None else f"pretrained {pretrained}", patterns)
        source = replace(source, record={**source.record, "init_from": start})
    else:
        begin_with = tuple(trained_networks(recipe.weights.init_from, "moped:init_from", net, source))
    start_settings: Any = {"backbone": backbone, "init_from": begin_with, "reset": patterns}
    spec = TrainSpec(source.build, data, likelihood, recipe, plan, **start_settings)
    for name in models_for(recipe.models, data.task):
        check_fit(name, data, likelihood)
    if COSINES in source.record:
        require_traceable_cosines(spec)
    return spec, source


def source_for(
    net: Net, input_shape: tuple[int, ...], likelihood: Likelihood, reset: Sequence[str] = EVERY, edges: Any = None
) -> NetSource:
    """Return the source of networks whose outputs a likelihood takes; a network by name may end in cosines."""
    source = net_source(net, input_shape, checked_likelihood(likelihood).width, reset, edges)
    return ending_in_cosines(source) if likelihood.takes_cosines and "name" in source.record else source


def choose_likelihood(
    data: Data, recipe: Recipe, likelihood: Likelihood | str | None, noise_std: float | None, link: str | None
) -> Likelihood:
    """Return the likelihood asked for, else that of the recipe's loss or of the task, fitted to the targets."""
    if likelihood is None and recipe.loss is not None:
        if data.task != CLASSIFICATION:
            data_is = f"{data.name} is a {data.task}"
            raise Misuse(f"recipe {recipe.name} is for classification, and {data_is}: choose another")
        likelihood = recipe.loss
    if likelihood is None:
        likelihood = likelihood_for(data.task, data.train.y, len(data.classes), noise_std, link)
    elif isinstance(likelihood, str) and noise_std is None:
        likelihood = likelihood_by_name(likelihood, data.task, len(data.classes), link)
    elif noise_std is not None or link is not None:
        raise Misuse("likelihood= and noise_std= or link=: give the likelihood alone, with its own settings")
    return fit_likelihood(likelihood, data.task, data.train.y)


def require_traceable_cosines(spec: TrainSpec) -> None:
    """Refuse a recipe that acts on kernels and cannot act on that of a last layer of cosines."""
    try:
        spec.method.trace  # noqa: B018
    except Misuse:
        advice = "write likelihood='ldam:scale=1', which leaves the last layer as it is"
        raise Misuse(f"recipe {spec.recipe.name} cannot act on a last layer of cosines: {advice}") from None


def architecture_of(init_from: InitFrom) -> Net | None:
    """Return the network of which weights are given, where it is known from them."""
    if isinstance(init_from, Ensemble):
        return init_from.groups[0].module
    if isinstance(init_from, str | Path) and os.path.isdir(init_from):
        named: str | None = runs.read_run(Path(init_from)).net.get("name")
        return None if is_model(named) else named
    first = init_from[0] if isinstance(init_from, list | tuple) and init_from else init_from
    return first if isinstance(first, nn.Module) else None


def starting_networks(
    init_from: InitFrom, reset: Sequence[str], net: Net | None, source: NetSource, members: int
) -> tuple[nn.Module, ...]:
    """Return the networks whose weights members begin with: one for all, or one each; of a run its first members."""
    if isinstance(init_from, str | Path) and os.path.isdir(init_from):
        init_from = load(init_from, net=None if isinstance(net, str) else net, posthoc=False)
    if isinstance(init_from, Ensemble):
        init_from = [init_from.member(index) for index in range(min(init_from.members, members))]
    states = given_weights(init_from)
    if len(states) not in (1, members):
        raise Misuse(f"init_from has {len(states)} networks for {members} members: give one, or one for each member")
    return tuple(with_weights(source.structure(), state, reset=reset) for state in states)


def trained_networks(
    what: bool | str, setting: str, net: Net | None, source: NetSource, published: State | None = None
) -> Iterator[nn.Module]:
    """Return the trained networks of a setting: none, the given or published one (True), or the members of a run."""
    if what is True:
        weights = net.state_dict() if isinstance(net, nn.Module) else published
        if weights is None:
            advice = f"give an nn.Module, pretrained=True, or a run's directory as {setting}=runs/x"
            raise Misuse(f"{setting.partition(':')[2]}=yes needs a trained net: {advice}")
        yield with_weights(source.structure(), weights, "the net")
    elif what:
        run = load(str(what), net=None if isinstance(net, str) else net, posthoc=False, device=CPU)
        yield from (with_weights(source.structure(), run.member(i).state_dict(), what) for i in range(run.members))


def default_net(data: Data) -> str:
    """Return the network for inputs of this shape when none is asked for."""
    if isinstance(data.preparation, FeaturePreparation):
        return "linear"
    return "small-cnn" if len(data.input_shape) == 3 else "mlp"


def checked_source(source: NetSource, data: Data, likelihood: Likelihood, device: str) -> NetSource:
    """Return the source with networks on the CPU, from where members move to `device`; refuse unfit networks."""
    with kept_generators():
        module = source.build()
        kind = torch.device(device).type
        for plain in plain_tensors(module) if kind != CPU else ():
            raise Misuse(f"'{plain}' of the net would not move to device='{device}': write self.register_buffer for it")
        net_device = next((t.device for t in module.parameters() if t.device.type != CPU), None)
        if net_device is not None and net_device.type != kind:
            raise Misuse(f"the net is on {net_device}, and device='{device}': write device='{net_device}'")
        on_cpu = source if net_device is None else NetSource(lambda: source.build().cpu(), source.record)
        return check_network(on_cpu, module.cpu(), data.train.prepared[:2], likelihood)


def parameter_roles(net: Net, recipe: str | Recipe, data: Any) -> ParameterRoles:
    """List the role of every parameter of a network under a recipe, without training.

    A recipe that would refuse the network says so in the last line.

    Args:
        net: Network, as `fit` takes it.
        recipe: Name of a preset, or a `Recipe`.
        data: What `fit` takes; or a tensor of inputs (N, ...) as the network takes them, for an `nn.Module` or a
            function that builds one.

    Returns:
        A table that prints itself.

    >>> roles = parameter_roles(nn.Linear(4, 3), "bayes", torch.zeros(2, 4))
    >>> roles["weight"].gaussian
    True
    """
    check_net(net)
    parsed_recipe = make_recipe(recipe)
    if isinstance(data, torch.Tensor):
        if isinstance(net, str):
            raise Misuse(f"net='{net}' with inputs alone, which do not say how many outputs it has: give data with y")
        return roles_before_training(plain_module(net if isinstance(net, nn.Module) else net()), parsed_recipe, data)
    spec, _ = resolve(net, data, parsed_recipe).spec()
    return roles_before_training(spec.member(0), parsed_recipe, spec.data.train.prepared[: spec.plan.batch_size])
