"""Train the members of an ensemble in a loop of your own with `mm.Method`.

python examples/own_loop.py
"""

import torch

import murmuration as mm


def main(epochs: int = 5) -> float:
    """Return the test accuracy of an ensemble whose members repel each other's input gradients."""
    data = mm.open_data("digits")
    x, y = data.train.prepared, data.train.y
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    method = mm.Method(net, mm.Categorical(10), "forde", inputs=x, members=5)
    state = method.init(seed=0)

    # a learning-rate schedule of torch: its optimizer has nothing else to do
    clock = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(clock, T_max=epochs)
    for _ in range(epochs):
        losses = torch.zeros(5)
        batches = torch.randperm(len(x)).split(64)
        for rows in batches:
            losses += method.step(state, x[rows], y[rows], lr=schedule.get_last_lr()[0]) / len(batches)
        clock.step()
        schedule.step()
        print("mean loss of each member:", " ".join(f"{loss:.3f}" for loss in losses.tolist()))

    ensemble = method.ensemble(state).fit_posthoc(data.val.prepared, data.val.y)
    accuracy = float(mm.score(ensemble.predict(data.test.prepared), data.test.y)["accuracy"])
    print(f"test accuracy of the ensemble: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
