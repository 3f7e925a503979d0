"""Every network of `networks.py` trained by every preset on every engine: a table of what works, and what does not.

    python tests/own_models/contract.py [--networks mha,lstm] [--presets bayes,forde] [--json FILE]

| cell | meaning |
|---|---|
| Y | works in turns, stacked and in threads, with outputs that agree within `BOUND` |
| T | works in turns and in threads; stacked falls back to turns, and says why |
| L | works in turns; stacked and threads fall back, and say why |
| R | refused in one line that says what to write (`Misuse` or `Failure`) |
| D | an engine gives other outputs than taking turns, by more than `BOUND` and thrice the effect of one rounding |
| E | an error of another type, or a message of several lines |
| S | trained without effect on a part of the network, and nothing said so |

With --json the table is written after every network, and cells that are in the file are not computed again.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from networks import NETWORKS, OTHERS, Network, data_for
from torch import Tensor, nn

import murmuration as mm
from murmuration.core.presets import PRESETS
from murmuration.core.recipe import make_recipe
from murmuration.data import Data
from murmuration.system.errors import Failure, Misuse
from murmuration.training.plan import Plan

ENGINES = ("stacked", "threads")
BOUND = 1e-4  # of outputs of size 1 after few steps of SGD: a thousand roundings of single precision
FEW = {  # answers of presets that need more epochs than one otherwise
    "swa": "swa:start=0",
    "swag": "swag:draws=2,start=0",
    "multi-swag": "swag:draws=2,start=0",
    "snapshot": "snapshot:cycles=1",
    "csgmcmc": "csgmcmc:cycles=1,samples=1,sampling=0.5",
}
PLAN = Plan(epochs=1, batch_size=16, lr=0.02, optimizer="sgd", posthoc=None, engine="loop")


@dataclass(frozen=True)
class Cell:
    """One cell of the table: a letter, the reason in one line, and the largest difference between engines."""

    status: str
    reason: str = ""
    difference: float = 0.0


def train(net: Network, data: Data, preset: str, engine: str) -> mm.Ensemble:
    recipe = make_recipe(preset, dynamics=FEW.get(preset))
    optimizer = None if preset in ("ivon", "csgmcmc") else "sgd"
    settings = {"engine": engine, "optimizer": optimizer, "members": recipe.members or 2, "output": net.output}
    return mm.fit(net.build, data, recipe=recipe, plan=PLAN, progress=False, **settings)


def cell(net: Network, preset: str, engines: tuple[str, ...] = ENGINES, *, reload: bool = True) -> Cell:
    """The cell of a network and a preset."""
    data = data_for(net.inputs)
    before = [getattr(data, part).prepared.clone() for part in ("train", "val", "test")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _cell(net, data, preset, engines, reload)
    except (Misuse, Failure) as error:
        found = Cell("E", f"several lines: {error}") if "\n" in str(error) else Cell("R", str(error))
    except Exception as error:  # what a user would see as a traceback
        found = Cell("E", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
    after = [getattr(data, part).prepared for part in ("train", "val", "test")]
    if not all(map(torch.equal, before, after)):
        for now, then in zip(after, before, strict=True):
            now.copy_(then)
        found = Cell("S", "the caller's inputs were overwritten")
    return found


def _cell(net: Network, data: Data, preset: str, engines: tuple[str, ...], reload: bool) -> Cell:
    ensemble = train(net, data, preset, "loop")
    outputs = outputs_of(ensemble, data)
    gaps = [*uncovered(net, ensemble, outputs), *moved(net, ensemble)]
    if net.twin is not None:
        plain = outputs_of(train(replace(net, build=net.twin), data, preset, "loop"), data)
        if (difference := (plain - outputs).abs().max().item()) > BOUND:
            gaps.append(f"outputs differ by {difference:.1g} from those of the same function written plainly")
    if reload:
        gaps += changed_by_loading(net, ensemble, data, outputs)
    if gaps:
        return Cell("S", "; ".join(gaps))
    ran, reasons, worst = [], [], 0.0
    for engine in engines if ensemble.members > 1 and make_recipe(preset).members != 1 else ():
        other = train(net, data, preset, engine)
        chosen = other.manifest.engine
        ran += [engine] if chosen["name"] == engine else []
        reasons += [] if chosen["name"] == engine else [chosen["reason"]]
        worst = max(worst, (outputs_of(other, data) - outputs).abs().max().item())
    if worst > BOUND and worst > 3 * amplified(net, data, preset, outputs):
        return Cell("D", f"engines differ by {worst:.1g}", worst)
    letter = "Y" if not reasons else "T" if ran == ["threads"] else "L"
    return Cell(letter, "; ".join(reasons), worst)


def amplified(net: Network, data: Data, preset: str, outputs: Tensor) -> float:
    """How much the trained outputs change when every initial weight is rounded once more, of three such roundings.

    Batch-norm over a few values divides by small standard deviations, and training amplifies a rounding: engines cannot
    agree better than this.
    """

    def build(phase: float) -> nn.Module:
        made = net.build()
        with torch.no_grad():
            for each in made.parameters():
                signs = (torch.arange(each.numel()).view(each.shape) + phase).sin().sign()
                each.mul_(1 + torch.finfo(each.dtype).eps / 2 * signs.to(each.dtype))
        return made

    def nudged(phase: float) -> Tensor:
        return outputs_of(train(replace(net, build=partial(build, phase)), data, preset, "loop"), data)

    return max((nudged(phase) - outputs).abs().max().item() for phase in (0.0, 1.0, 2.0))


def outputs_of(ensemble: mm.Ensemble, data: Data) -> Tensor:
    """Outputs (S, N, K), which must be finite."""
    outputs = ensemble.predict(data.test.prepared.clone(), prepared=True).outputs
    assert torch.isfinite(outputs).all(), "outputs that are not finite"
    return outputs


def uncovered(net: Network, ensemble: mm.Ensemble, outputs: Tensor) -> Iterator[str]:
    """The parts of the network that the recipe should have changed, and did not."""
    population, name = ensemble.groups[0].population, ensemble.recipe.name
    fixed = {each for each, p in net.build().named_parameters() if not p.requires_grad}
    tensors = {**population.own, **population.shared}
    kernels = [
        each
        for each, tensor in tensors.items()
        if ":" not in each and each not in (*fixed, *net.no_kernels) and tensor.dim() - (each in population.own) > 1
    ]
    if name in ("bayes", "bayes-flipout"):
        yield from (f"{each} is no distribution" for each in kernels if f"{each}:std_param" not in tensors)
    if name.startswith("batch-ensemble") or name == "rank1-bnn":
        shared = [each for each in kernels if each in population.shared]
        yield from (f"{each} has no factors" for each in shared if not {f"{each}:in", f"{each}:out"} & set(tensors))
    if name == "bayes-last-layer":
        found = [each.partition(":")[0] for each in tensors if each.endswith("weight:std_param")]
        if "head.weight" in tensors and found != ["head.weight"]:
            yield f"distributions are {found}, not head.weight"
    stochastic = ensemble.family.stochastic or name == "mask-ensemble"
    if stochastic and not outputs.std(0).max() > 1e-6:
        yield "all draws are equal"


def moved(net: Network, ensemble: mm.Ensemble) -> Iterator[str]:
    """Parameters with requires_grad=False that training changed, and statistics that train() keeps."""
    start, end = net.build(), ensemble.member(0).state_dict()
    for name, parameter in start.named_parameters():
        if not parameter.requires_grad and not torch.equal(parameter, end[name]):
            yield f"{name} is frozen and moved"
    start.train()
    for name, module in start.named_modules():
        counted = f"{name}.num_batches_tracked"
        if counted in end and not module.training and end[counted] > 0:
            yield f"{name} is in evaluation mode and its statistics moved"


def changed_by_loading(net: Network, ensemble: mm.Ensemble, data: Data, outputs: Tensor) -> Iterator[str]:
    """Whether a saved ensemble predicts something else after loading."""
    with tempfile.TemporaryDirectory() as folder:
        ensemble.save(Path(folder) / "run")
        again = outputs_of(mm.load(Path(folder) / "run", net=net.build), data)
    if not torch.allclose(again, outputs, rtol=0, atol=BOUND):
        yield f"outputs differ by {(again - outputs).abs().max():.1g} after loading"


def table(cells: dict[str, dict[str, Cell]]) -> str:
    """The cells as text: a row for each network, a column for each preset."""
    presets = list(dict.fromkeys(preset for row in cells.values() for preset in row))
    lines = [f"{index + 1:3d} {preset}" for index, preset in enumerate(presets)]
    lines.append(" " * 20 + "".join(f"{index + 1:3d}" for index in range(len(presets))))
    for name, row in cells.items():
        letters = [row[preset].status if preset in row else " " for preset in presets]
        lines.append(f"{name:20}" + "".join(f"{letter:>3}" for letter in letters))
    flagged = [(name, preset, c) for name, row in cells.items() for preset, c in row.items() if c.status in "DES"]
    return "\n".join([*lines, *(f"{c.status} {name}, {preset}: {c.reason}" for name, preset, c in flagged)])


def importable(library: str) -> bool:
    """Whether a library is installed and fits torch."""
    try:
        __import__(library)
    except Exception:  # timm with a torchvision of another build raises RuntimeError
        return False
    return True


def main() -> None:
    networks = NETWORKS | {name: net for key, nets in OTHERS.items() if importable(key) for name, net in nets.items()}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(networks), help="names, comma-separated")
    parser.add_argument("--presets", default=",".join(PRESETS), help="names, comma-separated")
    parser.add_argument("--json", type=Path, help="file that the table is written to, and continued from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    known, told = record.get("cells", {}), record.get("special", {})
    cells = {name: {preset: Cell(**record) for preset, record in row.items()} for name, row in known.items()}
    for name in options.networks.split(","):
        row = cells.setdefault(name, {})
        for preset in options.presets.split(","):
            if preset not in row:
                torch.manual_seed(0)
                row[preset] = cell(networks[name], preset)
        print(f"{name:20}", *(row[preset].status for preset in options.presets.split(",")), flush=True)
        if options.json:
            special = told | {name: net.special for name, net in networks.items() if name in cells}
            record = {each: {preset: asdict(c) for preset, c in r.items()} for each, r in cells.items()}
            options.json.write_text(json.dumps({"bound": BOUND, "special": special, "cells": record}, indent=1) + "\n")
    print(table(cells))


if __name__ == "__main__":
    main()
