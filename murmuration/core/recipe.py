"""A recipe: one answer to each of the four questions.

Named methods are presets. Because the questions are independent, any answer of a preset can be replaced.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from murmuration.core.coupling import COUPLINGS, Repulsion
from murmuration.core.dynamics import DYNAMICS, Dynamics
from murmuration.core.presets import preset_named
from murmuration.core.sharing import SHARING, Sharing
from murmuration.core.weights import WEIGHTS, WeightFamily
from murmuration.system.errors import Misuse, unknown
from murmuration.system.option_text import OBJECT, format_text, parse
from murmuration.system.progress import html_table

QUESTIONS: dict[str, Any] = {"sharing": SHARING, "weights": WEIGHTS, "coupling": COUPLINGS, "dynamics": DYNAMICS}
BatchOrder = Literal["own", "same", "split"]
POINT = WEIGHTS["point"].value


@dataclass(frozen=True, repr=False)
class Recipe:
    """A method: one answer to each of the four questions, as objects; `make_recipe` parses them from text.

    >>> print(make_recipe("deep-ensemble"))
    deep-ensemble: sharing own, weights point, coupling none, dynamics optimizer

    Attributes:
        name: Name of the recipe, for display and in the run.
        sharing: Question 1: what members share.
        weights: Question 2: what a member's weights are, such as points or Gaussians.
        coupling: Question 3: the repulsion between members; None to train them independently.
        dynamics: Question 4: how weights move, and which points of their path become the ensemble.
        members: Default number of members.
        fixed_members: Whether any other number of members is refused.
        loss: Default loss for classes, by name.
        batch_order: Default order of batches of several members: "own", "same" or "split".
        models: Names of models that are not networks, weighted with the networks by greedy selection.
    """

    name: str = "custom"
    sharing: Sharing = SHARING["own"].value
    weights: WeightFamily = POINT
    coupling: Repulsion | None = None
    dynamics: Dynamics = field(default_factory=Dynamics)
    members: int | None = None
    fixed_members: bool = False
    loss: str | None = None
    batch_order: BatchOrder | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = {"sharing": Sharing, "weights": WeightFamily, "dynamics": Dynamics, "coupling": Repulsion}
        for question, kind in kinds.items():
            answer, optional = getattr(self, question), " or None" if question == "coupling" else ""
            if not isinstance(answer, kind) and not (optional and answer is None):
                need = f"a {kind.__name__}{optional}"
                raise Misuse(f"{question}={answer!r}: need {need}; for text use make_recipe({question}='...')")
        self.weights.check_dynamics(self.dynamics)
        if self.sharing.what == "all" and not (self.weights.stochastic or self.weights.separates_members):
            both = f"sharing {self.text('sharing')} with weights {self.text('weights')}"
            raise Misuse(f"{both}: members would stay equal; write weights masks")

    def __str__(self) -> str:
        answers = self.answers() | ({"models": "+".join(self.models)} if self.models else {})
        return f"{self.name}: " + ", ".join(f"{question} {answer}" for question, answer in answers.items())

    def __repr__(self) -> str:
        return f"Recipe({self})"

    def _repr_html_(self) -> str:
        return html_table(f"recipe {self.name}", self.answers())

    def text(self, question: str) -> str:
        """Return the answer to one question as text.

        Args:
            question: "sharing", "weights", "coupling" or "dynamics".
        """
        return format_text(getattr(self, question), QUESTIONS[question])

    def answers(self) -> dict[str, str]:
        """Return the four answers as text, by question."""
        return {question: self.text(question) for question in QUESTIONS}

    @property
    def needs_kernels(self) -> bool:
        """Whether the recipe depends on which parameters of a network are kernels."""
        return self.sharing.rank_one or self.weights.needs_kernels

    def to_json(self) -> dict[str, Any]:
        """Return the recipe for a JSON file; the inverse of `recipe_from_json`."""
        settings: dict[str, Any] = {"members": self.members, "fixed_members": self.fixed_members, "loss": self.loss}
        optional = {"batch_order": self.batch_order, "models": list(self.models)}
        settings |= {key: value for key, value in optional.items() if value}
        return {"name": self.name, **self.answers(), **settings}


def _parsed(settings: dict[str, Any]) -> dict[str, Any]:
    """Parse the answers to questions among settings of a recipe that are text."""
    answers = {name: value for name, value in settings.items() if name in QUESTIONS and isinstance(value, str)}
    return settings | {name: parse(text, name, QUESTIONS[name]) for name, text in answers.items()}


def recipe_of(name: str, **settings: Any) -> Recipe:
    """Return the recipe with these fields, whose answers may be text."""
    return Recipe(name, **_parsed(settings))


def make_recipe(
    name: "str | Recipe" = "deep-ensemble", *, models: str | tuple[str, ...] | None = None, **answers: Any
) -> Recipe:
    """Make a recipe from a preset, with some of its answers replaced.

    Args:
        name: Name of a preset, or a recipe.
        models: Names of models beside the networks, rows of `MODELS`; in text separated by "+".
        **answers: New answers to `sharing`, `weights`, `coupling` or `dynamics`, as text or as objects.

    Returns:
        The recipe.

    Raises:
        Misuse: If the preset, a question or an answer is unknown.


    >>> print(make_recipe("forde", coupling="outputs"))
    forde: sharing own, weights point, coupling outputs, dynamics optimizer
    """
    if not isinstance(name, str | Recipe):
        raise Misuse(f"recipe={name!r}: expected a name such as 'deep-ensemble', or mm.make_recipe(...)")
    base = preset_named(name).value if isinstance(name, str) else name
    if models is not None:
        base = replace(base, models=tuple(models.split("+")) if isinstance(models, str) else tuple(models))
    for question in answers:
        if question not in QUESTIONS:
            raise unknown("question of a recipe", question, QUESTIONS)
    return replace(base, **_parsed({question: answer for question, answer in answers.items() if answer is not None}))


def parse_recipe(text: str) -> Recipe:
    """Parse a recipe in text: a preset, then after a colon the answers that replace its own and its number of members.

    Args:
        text: Such as `"forde"`, `"deep-ensemble:coupling=outputs:every=4"` or `"forde:members=10"`.

    Returns:
        The recipe; `text` is its name.

    Raises:
        Misuse: If the preset or a setting is unknown, or a setting is repeated.

    >>> parse_recipe("deep-ensemble:coupling=outputs:every=4,members=3").members
    3
    """
    name, _, options = text.partition(":")
    base, keys = make_recipe(name), (*QUESTIONS, "models", "members")
    parts = re.split(rf",(?=\s*(?:{'|'.join(keys)})\s*=)", options) if options else []
    answers = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
    wrong = [key for key in answers if key not in keys]
    if wrong:
        raise unknown(f"setting of the recipe '{text}' (name=value)", wrong[0], keys)
    if len(answers) < len(parts):
        raise Misuse(f"recipe '{text}' has a setting twice: write each once")
    members = answers.pop("members", None)
    if members is not None and base.fixed_members:
        raise Misuse(f"recipe '{text}': {name} has no number of members")
    if members is not None and not re.fullmatch("[1-9][0-9]*", members):
        raise Misuse(f"recipe '{text}': need a whole number, at least 1")
    return replace(make_recipe(base, **answers), name=text, members=int(members) if members else base.members)


def recipe_from_json(record: dict[str, Any], user_recipe: "str | Recipe | None" = None) -> Recipe:
    """Read a recipe from a run.

    Args:
        record: What `Recipe.to_json` returned.
        user_recipe: The recipe of a run with user-defined objects, which are not stored.

    Returns:
        The recipe; `user_recipe` if there is one.

    Raises:
        Misuse: If `user_recipe` has other answers than the record, or an answer is of a package that is not imported.
    """
    answers = {question: record[question] for question in QUESTIONS}
    if user_recipe is not None:
        user_recipe = make_recipe(user_recipe)
        if user_recipe.answers() != answers:
            raise Misuse(f"recipe= is {user_recipe}, and the run was made by {record['name']} with other answers")
        return user_recipe
    settings: Any = {name: record.get(name) for name in ("members", "fixed_members", "loss", "batch_order")}
    for question, answer in answers.items():
        name = str(answer).partition(":")[0]
        if name not in QUESTIONS[question] and name != OBJECT.removesuffix(":"):
            advice = "import the package that adds it first, or pass recipe= in Python"
            raise Misuse(f"the {question} '{name}' of this run is unknown here: {advice}")
    return recipe_of(record["name"], **settings, models=tuple(record.get("models", ())), **answers)
