"""The same in a `LightningModule`: Lightning runs the loop, `mm.Method` moves the members.

pip install 'torch-murmuration[lightning]'
python examples/own_loop_lightning.py
"""

from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import murmuration as mm


class EnsembleModule(lightning.LightningModule):
    """Members of an ensemble as a Lightning module; checkpoints hold the state of the members."""

    def __init__(self, method: mm.Method, lr: float = 5e-3) -> None:
        super().__init__()
        self.automatic_optimization = False  # the method moves the members
        self.method, self.lr, self.members = method, lr, method.init(seed=0)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        losses = self.method.step(self.members, *batch, lr=self.lr)
        self.log("loss", losses.nanmean(), prog_bar=True)

    def configure_optimizers(self) -> None:
        return None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["members"] = self.members.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.members = self.method.load_state(checkpoint["members"])


def main(epochs: int = 3) -> float:
    """Return the test accuracy of a BatchEnsemble trained by Lightning."""
    data = mm.open_data("digits")
    x, y = data.train.prepared.flatten(1), data.train.y
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    method = mm.Method(net, mm.Categorical(10), "batch-ensemble", inputs=x, members=4)
    module = EnsembleModule(method)
    quiet: Any = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", enable_progress_bar=False, **quiet)
    trainer.fit(module, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
    ensemble = method.ensemble(module.members)
    accuracy = float(mm.score(ensemble.predict(data.test.prepared.flatten(1)), data.test.y)["accuracy"])
    print(f"test accuracy of the ensemble: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
