"""The methods by name: how a learner is built for a stream, and what it is told."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from murmuration.applications.continual.baselines import ClassMeans, Memory, NetworkConfig, NetworkLearner
from murmuration.applications.continual.detection import DetectionConfig, Rule
from murmuration.applications.continual.ensembles import BayesianHCL, HCLEnsemble
from murmuration.applications.continual.flows import Flow, image_flow, vector_flow
from murmuration.applications.continual.hcl import HCL, HCLConfig, Means, Replay
from murmuration.applications.continual.learner import Learner
from murmuration.applications.continual.task_streams import BatchPlan, TaskStream
from murmuration.system.errors import Misuse, require_integer, unknown
from murmuration.system.streams import global_stream, stream_seed

FlowKind = Literal["vector", "image"]


@dataclass(frozen=True)
class MethodSettings:
    """Settings of all methods; each takes those that it has."""

    lr: float | None = None  # None: 1e-4 for flows of vectors, which start close to what they learn, else 1e-3
    told: bool = False  # whether the task of every batch is told
    flow: FlowKind = "vector"
    couplings: int = 6  # of a flow of vectors; of a flow of images, half as many at each of two scales
    hidden: int = 256  # width of the coupling nets
    means: Means = "data"
    strength: float = 10.0  # of the replay by HCL
    shrinkage: float = 0.1  # of covariances
    settle: int = 20
    threshold: float = 5.0
    window: int = 100
    warmup: int = 100
    rule: Rule = "deviation"
    net: str = "mlp"
    members: int = 5  # of ensembles, of flows or networks
    capacity: int = 500  # examples for replay
    penalty: float = 1000.0  # of elastic weight consolidation
    seed: int = 0

    def __post_init__(self) -> None:
        if self.flow not in ("vector", "image"):
            raise unknown("flow", self.flow, ("vector", "image"))
        for name in ("couplings", "hidden"):
            require_integer(name, getattr(self, name), 1)

    def rate(self, usual: float) -> float:
        """Return the learning rate, or the usual one of a method."""
        return usual if self.lr is None else self.lr


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


def hcl(replay: Replay, *, bayesian: bool = False) -> Callable[[TaskStream, MethodSettings], HCL]:
    """Return the builder of HCL with a kind of replay."""

    def build(stream: TaskStream, settings: MethodSettings) -> HCL:
        detection = DetectionConfig(settings.window, settings.threshold, settings.warmup, rule=settings.rule)
        config = HCLConfig(
            replay=replay,
            strength=settings.strength,
            means=settings.means,
            shrinkage=settings.shrinkage,
            settle=settings.settle,
            lr=settings.rate(1e-4 if settings.flow == "vector" else 1e-3),
            agnostic=not settings.told,
            detection=detection,
            seed=settings.seed,
        )
        return HCL(flow_for(stream, settings, bayesian=bayesian), config)

    return build


def several(stream: TaskStream, settings: MethodSettings) -> Learner:
    """Return flows with functional replay that differ by their seeds.

    The first finds the tasks unless they are told.
    """
    settings_of_members = [
        replace(settings, seed=member_seed(settings.seed, member), told=settings.told or member > 0)
        for member in range(settings.members)
    ]
    return HCLEnsemble([hcl("functional")(stream, member_settings) for member_settings in settings_of_members])


def drawn(stream: TaskStream, settings: MethodSettings) -> Learner:
    """Return draws of one flow with Bayesian coupling nets and functional replay."""
    return BayesianHCL(hcl("functional", bayesian=True)(stream, settings), settings.members)


def member_seed(seed: int, member: int) -> int:
    """Return the seed of a member; the first has that of the settings."""
    return seed if member == 0 else stream_seed(seed, "initialisation", member) % 2**32


def network(memory: Memory = "none", *, ensemble: bool = False, consolidate: bool = False) -> Callable[..., Learner]:
    """Return the builder of a network, or of an ensemble of them."""

    def build(stream: TaskStream, settings: MethodSettings) -> Learner:
        config = NetworkConfig(
            net=settings.net,
            members=settings.members if ensemble else 1,
            lr=settings.rate(1e-3),
            memory=memory,
            capacity=settings.capacity,
            penalty=settings.penalty if consolidate else 0.0,
            seed=settings.seed,
        )
        return NetworkLearner(stream.input_shape, len(stream.classes), config)

    return build


METHODS: dict[str, Method] = {
    "hcl-fr": Method("one flow, functional replay (HCL-FR)", hcl("functional"), flow=True),
    "hcl-gr": Method("one flow, generative replay (HCL-GR)", hcl("generative"), flow=True),
    "hcl-ensemble": Method("several flows, functional replay", several, flow=True),
    "hcl-bayes": Method("draws of a flow with Bayesian coupling nets, functional replay", drawn, flow=True),
    "lda": Method(
        "streaming linear discriminant analysis", lambda s, m: ClassMeans(s.input_shape, m.shrinkage), one_pass=True
    ),
    "ncm": Method("nearest class mean", lambda s, m: ClassMeans(s.input_shape, None), one_pass=True),
    "adam": Method("a network, plain training", network()),
    "replay": Method("a network, examples replayed from a reservoir", network("reservoir")),
    "replay-balanced": Method("a network, replayed examples balanced by class", network("balanced")),
    "ewc": Method(
        "a network, elastic weight consolidation; told the tasks", network(consolidate=True), needs_tasks=True
    ),
    "ensemble-replay": Method("a deep ensemble, replay from a reservoir", network("reservoir", ensemble=True)),
    "joint": Method("a network, all tasks at once: an upper bound", network(), joint=True),
}


def method_named(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
