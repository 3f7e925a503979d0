"""Markdown tables, read as cells."""


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of every row of the tables in a text, headers included, without the padding."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|-")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
