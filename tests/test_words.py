"""Names say what they hold: few local names are pronouns or participles, and `step` stays on a screen."""

import ast
import re
from pathlib import Path

import murmuration

ROOT = Path(murmuration.__file__).parent
VAGUE = frozenset(
    re.findall(
        r"\w+",
        "found chosen given known some each here made kept told mine wanted left taken held again alone others shown"
        " seen asked drawn what where which said written joined judged few many several whole rest such same this that",
    )
)
BUDGET = 0.01  # of all assigned names


def assigned_names() -> list[str]:
    """Return every name that the package assigns, as often as it does."""
    trees = (ast.parse(path.read_text()) for path in ROOT.rglob("*.py"))
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


def test_few_names_say_nothing():
    names = assigned_names()
    assert sum(name in VAGUE for name in names) / len(names) < BUDGET


def test_the_step_fits_on_a_screen():
    tree = ast.parse((ROOT / "core" / "step.py").read_text())
    (step,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "step"]
    body = step.body[1:] if ast.get_docstring(step) else step.body
    assert (step.end_lineno or 0) - body[0].lineno + 1 <= 30
