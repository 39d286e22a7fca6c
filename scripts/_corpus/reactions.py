"""Atoms of products, mapped to those of the reactants: textbook reactions whose map is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import RXNMAP

if TYPE_CHECKING:
    import numpy.typing as npt

ELEMENTS = {"C": 6, "N": 7, "O": 8, "F": 9, "S": 16, "Cl": 17, "Br": 35, "I": 53}
REACTIONS = (
    (("CCBr", "N"), ("CCN",), (0, 1, 3)),
    (("CCCI", "O"), ("CCCO",), (0, 1, 2, 4)),
    (("CC(=O)O", "OC"), ("CC(=O)OC",), (0, 1, 2, 4, 5)),
    (("CC(=O)Cl", "NCC"), ("CC(=O)NCC",), (0, 1, 2, 4, 5, 6)),
    (("C1=CC=CC=C1Br", "NC"), ("C1=CC=CC=C1NC",), (0, 1, 2, 3, 4, 5, 7, 8)),
    (("CC(C)Br", "SC"), ("CC(C)SC",), (0, 1, 2, 4, 5)),
    (("CCC=O", "NC"), ("CCCNC",), (0, 1, 2, 4, 5)),
    (("CC(=O)CC",), ("CC(O)CC",), (0, 1, 2, 3, 4)),
    (("CCO", "CC(=O)O"), ("CCOC(C)=O",), (0, 1, 2, 4, 3, 5)),
    (("C1CCCCC1Cl", "OC"), ("C1CCCCC1OC",), (0, 1, 2, 3, 4, 5, 7, 8)),
)
"""Reactants, products, and for each atom of the products, in order, that of the reactants."""
CALIBRATED = (0, 3, 5)
"""Places of the reactions that are calibrated on; the others are scored."""
UNKNOWN, FAR = 1, 10
"""Distance of atoms that nothing joins, and the longest that is told."""


def parsed(smiles: str) -> tuple[list[str], list[tuple[int, int]]]:
    """(elements, bonds) of SMILES without brackets; orders of bonds are not looked at."""
    atoms: list[str] = []
    bonds: list[tuple[int, int]] = []
    branches: list[int] = []
    rings: dict[str, int] = {}
    last, i = -1, 0
    while i < len(smiles):
        sign = smiles[i : i + 2] if smiles[i : i + 2] in ELEMENTS else smiles[i]
        i += len(sign)
        if sign in ELEMENTS:
            atoms.append(sign)
            if last >= 0:
                bonds.append((last, len(atoms) - 1))
            last = len(atoms) - 1
        elif sign == "(":
            branches.append(last)
        elif sign == ")":
            last = branches.pop()
        elif sign.isdigit():
            if sign in rings:
                bonds.append((rings.pop(sign), last))
            else:
                rings[sign] = last
    return atoms, bonds


def encoded(reactants: tuple[str, ...], products: tuple[str, ...]) -> Batch:
    """Tokens of a reaction: its own first, then the atoms of each molecule."""
    atoms, neighbors, roles, blocks = [1], [0], [1], []
    for role, molecules in ((2, reactants), (3, products)):
        for elements, bonds in map(parsed, molecules):
            count = [sum(i in bond for bond in bonds) for i in range(len(elements))]
            atoms += [ELEMENTS[e] + 2 for e in elements]
            neighbors += [n + 2 for n in count]
            roles += [role] * len(elements)
            blocks.append(_distances(len(elements), bonds))
    distances = np.full((len(atoms), len(atoms)), 0)
    distances[0, 0] = UNKNOWN
    start = 1
    for block in blocks:
        end = start + len(block)
        distances[start:end, start:end] = block
        start = end
    tokens = (atoms, neighbors, distances, roles)
    names = ("atoms", "neighbors", "distances", "roles")
    return {n: np.asarray(x, np.int64)[None] for n, x in zip(names, tokens, strict=True)}


def _distances(atoms: int, bonds: list[tuple[int, int]]) -> npt.NDArray[np.int64]:
    steps = np.full((atoms, atoms), FAR)
    np.fill_diagonal(steps, 0)
    for a, b in bonds:
        steps[a, b] = steps[b, a] = 1
    for via in range(atoms):
        steps = np.minimum(steps, steps[:, via, None] + steps[None, via])
    return np.asarray(np.minimum(steps, FAR) + 2, np.int64)


def mapping() -> Task:
    """Atoms of products whose strongest attention, within their element, is the right one."""
    batches = [encoded(reactants, products) for reactants, products, _ in REACTIONS]

    def score(predict: Predict) -> float:
        hits: list[bool] = []
        for i, (reactants, _, wanted) in enumerate(REACTIONS):
            if i in CALIBRATED:
                continue
            attention = np.asarray(predict(batches[i])[0], np.float32)
            elements = batches[i]["atoms"][0, 1:]
            size = sum(len(parsed(one)[0]) for one in reactants)
            both = attention[1:, 1:] + attention[1:, 1:].T
            for place, atom in enumerate(wanted):
                row = np.where(
                    elements[:size] == elements[size + place], both[size + place, :size], 0
                )
                hits.append(int(row.argmax()) == atom)
        return float(np.mean(hits))

    path = RXNMAP.extract("chython_rxnmap/rxnmap.onnx")
    return Task("chython-rxnmap", path, [batches[i] for i in CALIBRATED], score, "atoms")
