"""The methods by name: how a learner is built for a stream, and what it is told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from murmuration.applications.continual.baselines import ClassMeans, NetworkConfig, NetworkLearner
from murmuration.applications.continual.detection import DetectionConfig
from murmuration.applications.continual.ensembles import BayesianHCL, HCLEnsemble
from murmuration.applications.continual.flows import Flow, image_flow, vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig
from murmuration.applications.continual.learner import Learner
from murmuration.applications.continual.settings import BatchPlan, MethodSettings
from murmuration.applications.continual.task_streams import TaskStream
from murmuration.system.errors import Misuse, unknown, warn
from murmuration.system.streams import global_stream, stream_seed

WARMUP, SETTLE = 100, 20  # batches of a new task that are not tested, and that only place its classes; at most


@dataclass(frozen=True)
class Method:
    """One method: a description, its learner, and how it meets the stream."""

    about: str
    build: Callable[[TaskStream, MethodSettings], Learner]
    flow: bool = False  # takes images only if its flow is one of images
    one_pass: bool = False  # the statistics of further epochs would be the same
    joint: bool = False  # learns all tasks at once
    needs_tasks: bool = False  # is told the tasks, whatever the settings say

    def stream(self, stream: TaskStream, settings: MethodSettings) -> TaskStream:
        """Return the stream as the learner meets it."""
        used = stream.joint() if self.joint else stream
        return used.flat() if self.flow and settings.flow == "vector" else used

    def plan(self, plan: BatchPlan) -> BatchPlan:
        return replace(plan, epochs=1) if self.one_pass else plan

    def is_told(self, settings: MethodSettings) -> bool:
        return self.needs_tasks or (settings.told and not self.joint)


def flow_for(stream: TaskStream, settings: MethodSettings, *, bayesian: bool = False) -> Flow:
    """Return the flow that the settings ask for, with initial values by the seed."""
    with global_stream(settings.seed, "initialisation", 0):
        if settings.flow == "vector":
            (dimensions,) = stream.input_shape
            return vector_flow(dimensions, couplings=settings.couplings, hidden=settings.hidden, bayesian=bayesian)
        if bayesian:
            raise Misuse("flow='image' for hcl-bayes: expected flow='vector', or another method")
        if not stream.has_images:
            raise Misuse(f"flow='image' for inputs of shape {stream.input_shape}: expected images, or flow='vector'")
        return image_flow(stream.input_shape, steps=max(1, settings.couplings // 2), hidden=settings.hidden)


def hcl(stream: TaskStream, settings: MethodSettings, *, replay: str = "functional", bayesian: bool = False) -> HCL:
    """Return HCL with a kind of replay."""
    usual_lr = 1e-4 if settings.flow == "vector" and settings.means == "data" else 1e-3
    warmup = WARMUP if settings.warmup is None else settings.warmup
    settle = SETTLE if settings.settle is None else settings.settle
    config = HCLConfig(
        replay=replay,
        lr=usual_lr if settings.lr is None else settings.lr,
        agnostic=not settings.told,
        detection=DetectionConfig(settings.window, settings.threshold, warmup, rule=settings.rule),
        settle=settle,
        **{name: getattr(settings, name) for name in ("strength", "means", "shrinkage", "seed")},
    )
    return HCL(flow_for(stream, settings, bayesian=bayesian), config)


def fit_to_tasks(settings: MethodSettings, batches: Sequence[int]) -> MethodSettings:
    """Return the settings with a warm-up that leaves batches of every task to test, by the batches of each segment.

    >>> short = fit_to_tasks(MethodSettings(), [40, 60])
    >>> short.warmup, short.settle, fit_to_tasks(MethodSettings(), [400]).warmup
    (20, 10, 100)
    """
    shortest = min(batches)
    if settings.warmup is not None and settings.warmup >= shortest:
        warn(
            f"warmup={settings.warmup}: a task of this stream has {shortest} batches, so changes cannot be noticed "
            f"in it; write warmup={shortest // 2}, or leave it out"
        )
    warmup = min(WARMUP, shortest // 2) if settings.warmup is None else settings.warmup
    settle = max(1, min(SETTLE, shortest // 4)) if settings.settle is None else settings.settle
    return replace(settings, warmup=warmup, settle=settle)


def several(stream: TaskStream, settings: MethodSettings) -> Learner:
    """Return flows with functional replay that differ by their seeds.

    The first finds the tasks unless they are told.
    """
    seeds = (stream_seed(settings.seed, "initialisation", member) % 2**32 for member in range(1, settings.members))
    members = [settings, *(replace(settings, seed=seed, told=True) for seed in seeds)][: settings.members]
    return HCLEnsemble([hcl(stream, member_settings) for member_settings in members])


def drawn(stream: TaskStream, settings: MethodSettings) -> Learner:
    """Return draws of one flow with Bayesian coupling nets and functional replay."""
    return BayesianHCL(hcl(stream, settings, bayesian=True), settings.members)


def network(
    stream: TaskStream,
    settings: MethodSettings,
    *,
    memory: str = "none",
    ensemble: bool = False,
    consolidate: bool = False,
) -> Learner:
    """Return a network, or an ensemble of them."""
    members, penalty = settings.members if ensemble else 1, settings.penalty if consolidate else 0.0
    lr = 1e-3 if settings.lr is None else settings.lr
    config = NetworkConfig(settings.net, members, lr, memory, settings.capacity, penalty, seed=settings.seed)
    return NetworkLearner(stream.input_shape, len(stream.classes), config)


def class_means(stream: TaskStream, settings: MethodSettings, *, whitened: bool) -> Learner:
    return ClassMeans(stream.input_shape, settings.shrinkage if whitened else None)


REPLAYED = partial(network, memory="reservoir")
METHODS: dict[str, Method] = {
    "hcl-fr": Method("one flow, functional replay (HCL-FR)", hcl, flow=True),
    "hcl-gr": Method("one flow, generative replay (HCL-GR)", partial(hcl, replay="generative"), flow=True),
    "hcl-ensemble": Method("several flows, functional replay", several, flow=True),
    "hcl-bayes": Method("draws of a flow with Bayesian coupling nets, functional replay", drawn, flow=True),
    "lda": Method("streaming linear discriminant analysis", partial(class_means, whitened=True), one_pass=True),
    "ncm": Method("nearest class mean", partial(class_means, whitened=False), one_pass=True),
    "adam": Method("a network, plain training", network),
    "replay": Method("a network, examples replayed from a reservoir", REPLAYED),
    "replay-balanced": Method("a network, replayed examples balanced by class", partial(network, memory="balanced")),
    "ewc": Method(
        "a network, elastic weight consolidation; told the tasks", partial(network, consolidate=True), needs_tasks=True
    ),
    "ensemble-replay": Method("a deep ensemble, replay from a reservoir", partial(REPLAYED, ensemble=True)),
    "joint": Method("a network, all tasks at once: an upper bound", network, joint=True),
}


def method_named(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
