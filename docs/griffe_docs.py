"""Docstrings as the API reference shows them: those that decorators complete, with doctests as code blocks."""

import re
from importlib import import_module
from inspect import cleandoc
from typing import Any

from griffe import ExprSubscript, Extension

COMPLETED = ("documented", "declared_by")  # decorators that add to a docstring
EXAMPLE = re.compile(r"(?:^>>> .*\n?)(?:^.+\n?)*", re.MULTILINE)


class CompletedDocstrings(Extension):
    """Replace docstrings by those at run time where a decorator completes them, and fence doctests.

    `Annotated[int, Doc(...)]` is shown as `int`: the text is in the docstring.
    """

    def on_attribute_instance(self, *, attr: Any, **kwargs: Any) -> None:
        """Shorten the annotation of one field."""
        annotation = attr.annotation
        if isinstance(annotation, ExprSubscript) and annotation.canonical_path == "typing.Annotated":
            attr.annotation = annotation.slice.elements[0]

    def on_instance(self, *, obj: Any, **kwargs: Any) -> None:
        """Change the docstring of one class, function or attribute."""
        if obj.is_alias or obj.docstring is None:
            return
        if any(name in str(decorator.value) for decorator in getattr(obj, "decorators", ()) for name in COMPLETED):
            obj.docstring.value = cleandoc(getattr(import_module(obj.module.path), obj.name).__doc__)
        obj.docstring.value = EXAMPLE.sub(lambda match: f"\n```python\n{match[0].rstrip()}\n```\n", obj.docstring.value)
