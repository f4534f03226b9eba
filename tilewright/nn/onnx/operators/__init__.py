"""ONNX nodes as drafts of layers, one after another; a file here for each family of operators.

A node that no layer can be made of is refused by its name, as is one whose value is neither images
nor rows of features. Files here are found, nothing lists them.
"""

import importlib
import pkgutil

from tilewright.errors import FileError
from tilewright.nn.graph import Node
from tilewright.nn.onnx.file import FREE_BATCH, File
from tilewright.nn.onnx.importer import OPERATORS, Importer, Traced

for _item in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_item.name}")


def convert(file: File) -> Importer:
    """Drafts of all nodes; the last one gives the output."""
    at = Importer(file)
    for node in file.graph.nodes:
        try:
            at.found[node.outputs[0]] = _converted(at, node)
        except (FileError, ValueError, TypeError, IndexError, KeyError) as error:
            raise file.refuse(node, str(error)) from None
    last = at.found.get(file.output)
    if last is None or last.condition is not None or last.pads is not None or not at.made:
        raise FileError(f"{file.label}: the output does not depend on the input")
    if last.order is not None or at.made[-1].name != last.draft:
        raise FileError(
            f"{file.label}: the output {file.output!r} must be the last node's, and no flattened"
            " image"
        )
    return at


def _converted(at: Importer, node: Node) -> Traced:
    if node.operator not in OPERATORS:
        raise FileError(f"accepted are {', '.join(sorted(OPERATORS))}")
    value = OPERATORS[node.operator](at, node)
    sizes, images = at.file.shape(node.outputs[0]), at.file.batch or FREE_BATCH
    if len(sizes) not in (2, 4) or sizes[0] != images:
        raise FileError(
            f"gives {list(sizes)}; accepted are images and rows of features, {images} of them as of"
            " the input"
        )
    return value


def documented() -> str:
    """The table of the docs, in Markdown."""
    rows = [f"| `{name}` | {taken.note} |" for name, taken in sorted(OPERATORS.items())]
    return "\n".join(["| operator | taken |", "|---|---|", *rows])
