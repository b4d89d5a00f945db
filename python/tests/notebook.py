"""Executes the code cells of notebooks, as Jupyter would: python3 notebook.py [--write] NOTEBOOK...

The blocks of Python in a text (`.md`) are cells, too.

The value of a cell's last expression is shown as a notebook shows it. With --write what cells print and show is kept in the
notebook. Without it the file stays as it is, and only what fails is told.
"""

import ast
import contextlib
import io
import json
import re
import sys
import tempfile
import traceback
from typing import Any, Dict, List


def execute(source: str, names: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Executes a cell; what it prints and shows, as notebooks keep it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: List[Dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data})
    return outputs


def lines(text: str) -> List[str]:
    return text.splitlines(keepends=True)


def blocks(text: str) -> Dict[str, Any]:
    """The blocks of Python in a text, as a notebook."""
    found = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return {"cells": [{"cell_type": "code", "source": lines(source)} for source in found]}


def run(path: str, write: bool) -> bool:
    """Executes a notebook. False: a cell failed."""
    with open(path, encoding="utf-8") as file:
        notebook = blocks(file.read()) if path.endswith(".md") else json.load(file)
    names: Dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        try:
            outputs = execute("".join(cell["source"]), names)
        except Exception:
            print(f"{path}: cell {count} failed:\n{''.join(cell['source'])}\n\n{traceback.format_exc()}", file=sys.stderr)
            return False
        cell["execution_count"] = count
        for output in outputs:
            if "execution_count" in output:
                output["execution_count"] = count
        cell["outputs"] = outputs
    if write:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(notebook, file, indent=1, ensure_ascii=False)
            file.write("\n")
    print(f"{path}: {count} cells")
    return count > 0


if __name__ == "__main__":
    arguments = sys.argv[1:]
    write = "--write" in arguments
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        done = [run(a, write) for a in arguments if a != "--write"]
    sys.exit(0 if done and all(done) else 1)
