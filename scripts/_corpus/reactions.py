"""Atoms of products, mapped to those of the reactants, in records of the Golden benchmark.

The records are in chython's source; encoding and assignment are what its `reactions.attention` does
with the same model (chython/reactions/attention/_encode.py and _assign.py of 3.4).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from scripts._corpus.task import Batch, Predict, Task
from scripts._corpus.wheels import CHYTHON, RXNMAP

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.core.arrays import Array

    Integers = npt.NDArray[np.int64]

RECORDS = "chython/reactions/test/golden_subset.smi"
FIRST = "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca"
NUMBERS = {e: i for i, e in enumerate(FIRST.split(), 1)} | {"Br": 35, "I": 53}
"""Atomic numbers."""
TOKEN = re.compile(r"\[([A-Z][a-z]?)(?:H(\d?))?[+-]?\d?:(\d+)\]|%\d\d|\d|[()=#.-]")
"""A mapped atom, a ring's number, or a sign; bonds' orders are not looked at."""
EACH = 3
"""Every third record is calibrated on, the others are scored."""
UNREACHED, FAR, CROWDED = 1, 10, 14
"""Distance of atoms that nothing joins, the longest that is told, the most neighbours told."""
KEPT_BOND = 1.75
"""Factor of correspondences beside one that is taken: bonds stay, mostly."""


@dataclass(frozen=True)
class Side:
    """Molecules of one side of a reaction, atom by atom.

    Attributes:
        elements: atomic numbers, (atoms,).
        hydrogens: on each atom, (atoms,).
        maps: number that an atom keeps through the reaction, (atoms,).
        bonds: (atoms, atoms).
        starts: places of the molecules' first atoms.
    """

    elements: Integers
    hydrogens: Integers
    maps: Integers
    bonds: npt.NDArray[np.bool_]
    starts: tuple[int, ...]

    @property
    def molecules(self) -> list[slice]:
        """Atoms of each molecule."""
        ends = (*self.starts[1:], len(self.elements))
        return [slice(a, b) for a, b in zip(self.starts, ends, strict=True)]

    @cached_property
    def neighbors(self) -> Integers:
        """Atoms and hydrogens beside each atom, (atoms,)."""
        return np.asarray(self.bonds.sum(1) + self.hydrogens, np.int64)

    @cached_property
    def kinds(self) -> Integers:
        """Atoms in like places have one number: Morgan's refinement by neighbours, (atoms,)."""
        kinds = self.elements * 100 + self.neighbors
        for _ in range(len(kinds)):
            beside = [sorted(kinds[row].tolist()) for row in self.bonds]
            seen = [(kind, *each) for kind, each in zip(kinds.tolist(), beside, strict=True)]
            order = {each: i for i, each in enumerate(sorted(set(seen)))}
            kinds = np.array([order[each] for each in seen])
        return kinds


def parsed(smiles: str) -> Side:
    """Molecules of SMILES whose atoms all stand in brackets, with a number each."""
    tokens = _tokens(smiles)
    atoms = [
        (NUMBERS[token[1]], 0 if token[2] is None else int(token[2] or 1), int(token[3]))
        for token in tokens
        if token[1]
    ]
    bonds = np.zeros((len(atoms), len(atoms)), np.bool_)
    branches: list[int] = []
    rings: dict[str, int] = {}
    starts, last, read = [0], -1, 0
    for token in tokens:
        sign = token[0]
        if token[1]:
            bonds[read, last] = last >= 0
            last, read = read, read + 1
        elif sign == "(":
            branches.append(last)
        elif sign == ")":
            last = branches.pop()
        elif sign == ".":
            last = -1
            starts.append(read)
        elif sign in rings:
            bonds[rings.pop(sign), last] = True
        elif sign.strip("%").isdigit():
            rings[sign] = last
    elements, hydrogens, maps = np.array(atoms).T
    return Side(elements, hydrogens, maps, bonds | bonds.T, tuple(starts))


def _tokens(smiles: str) -> list[re.Match[str]]:
    tokens, at = [], 0
    while at < len(smiles):
        token = TOKEN.match(smiles, at)
        if token is None:
            raise ValueError(f"SMILES '{smiles}': '{smiles[at]}' at {at} is not read here")
        tokens.append(token)
        at = token.end()
    return tokens


@dataclass(frozen=True)
class Reaction:
    """Reactants and products whose atoms have numbers."""

    reactants: Side
    products: Side

    @cached_property
    def batch(self) -> Batch:
        """Inputs of the model: a token for the reaction, then one per molecule and per atom."""
        atoms, neighbors, roles, blocks = [0], [0], [1], []
        for category, side in ((2, self.reactants), (3, self.products)):
            for own in side.molecules:
                atoms += [1, *(side.elements[own] + 2).tolist()]
                neighbors += [0, *(np.minimum(side.neighbors[own], CROWDED) + 2).tolist()]
                roles += [0] + [category] * (own.stop - own.start)
                apart = distances(side.bonds[own, own])
                blocks.append(np.pad(apart, (1, 0), constant_values=UNREACHED))
        every = np.zeros((len(atoms), len(atoms)), np.int64)
        every[0, 0] = UNREACHED
        start = 1
        for block in blocks:
            end = start + len(block)
            every[start:end, start:end] = block
            start = end
        tokens = {"atoms": atoms, "neighbors": neighbors, "distances": every, "roles": roles}
        return {name: np.asarray(each, np.int64)[None] for name, each in tokens.items()}

    def hits(self, attention: Array) -> tuple[int, int]:
        """(atoms of products that are mapped to the right one or to its like, atoms with a map)."""
        roles = self.batch["roles"][0]
        ours, theirs = np.flatnonzero(roles == 3), np.flatnonzero(roles == 2)
        both = np.asarray(attention, np.float64)
        pairs = both[np.ix_(ours, theirs)] + both[np.ix_(theirs, ours)].T
        pairs = pairs * (self.products.elements[:, None] == self.reactants.elements)
        taken = assigned(pairs, self.reactants.bonds, self.products.bonds)
        known = np.isin(self.products.maps, self.reactants.maps)
        kinds = dict(zip(self.reactants.maps.tolist(), self.reactants.kinds.tolist(), strict=True))
        right = [
            atom >= 0 and self.reactants.kinds[atom] == kinds[number]
            for atom, number in zip(taken[known], self.products.maps[known].tolist(), strict=True)
        ]
        return sum(right), int(known.sum())


def distances(bonds: npt.NDArray[np.bool_]) -> Integers:
    """Bonds between each two atoms as the model is told them, (atoms, atoms)."""
    steps = np.where(bonds, 1, len(bonds))  # a molecule hangs together: no way is longer
    np.fill_diagonal(steps, 0)
    for via in range(len(bonds)):
        steps = np.minimum(steps, steps[:, via, None] + steps[None, via])
    return np.asarray(np.minimum(steps, FAR) + 2, np.int64)


def assigned(pairs: npt.NDArray[np.float64], before: Array, after: Array) -> Integers:
    """Atom of the reactants for each one of the products, or -1; every atom is taken once.

    The strongest pair is first. The next is the strongest of an atom that is bonded to those that
    have theirs; each pair makes the pairs of its neighbours likelier.

    Args:
        pairs: how much two atoms are one, (products' atoms, reactants' atoms).
        before: bonds of the reactants.
        after: bonds of the products.
    """
    pairs = np.array(pairs, np.float64)
    taken = np.full(len(pairs), -1)
    for _ in range(len(pairs)):
        beside = after[taken >= 0].any(0) & (taken < 0)
        rows = np.flatnonzero(beside) if beside.any() else np.arange(len(pairs))
        row, column = divmod(int(pairs[rows].argmax()), pairs.shape[1])
        atom = int(rows[row])
        if np.isclose(pairs[atom, column], 0):
            break
        taken[atom] = column
        pairs[np.ix_(after[atom], before[column])] *= KEPT_BOND
        pairs[atom], pairs[:, column] = 0, 0
    return taken


def reactions() -> list[Reaction]:
    """All records that are read here, in the benchmark's order."""
    lines = CHYTHON.read(RECORDS).decode().splitlines()
    records = [line.split("\t")[1].split(">>") for line in lines if not line.startswith("#")]
    return [Reaction(parsed(before), parsed(after)) for before, after in records]


def mapping() -> Task:
    """Atoms of products that are mapped to the right atom of the reactants."""
    every = reactions()
    scored = [each for i, each in enumerate(every) if i % EACH]

    def score(predict: Predict) -> float:
        counts = np.array([each.hits(predict(each.batch)[0]) for each in scored])
        right, atoms = counts.sum(0)
        return float(right / atoms)

    count = sum(int(np.isin(e.products.maps, e.reactants.maps).sum()) for e in scored)
    path = RXNMAP.extract("chython_rxnmap/rxnmap.onnx")
    return Task("chython-rxnmap", path, [e.batch for e in every[::EACH]], score, "atoms", count)
