"""How far to trust an ensemble when its inputs go wrong: corruptions, foreign inputs, sets and the right to decline.

python examples/04_trust_under_shift.py
"""

import torch

import murmuration as mm
from murmuration.evaluation import Corrupting, assess_foreign, assess_shift, familiar_of


def main(quick: bool = False) -> dict[str, float]:
    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=2 if quick else 5, epochs=5 if quick else 30)
    ensemble = ensemble.fit_posthoc(data.val.x, data.val.y)  # calibrated, with sets, on examples it has not seen

    found = mm.assess(ensemble, data)
    for sets in found.sets[:3]:
        print(f"{sets.method} sets of {sets.size:.2f} digits hold the truth {sets.coverage:.1%} of the time")

    corrupting = Corrupting(("gaussian_noise", "fog", "contrast"), severities=(1, 5))
    shift = assess_shift(ensemble, found.exam, corrupting, guard=ensemble.posthoc, applied=True)
    clean, worst = shift.clean["accuracy"], shift.by_severity[5]["accuracy"]
    held = shift.by_severity[5]["set_coverage"]
    print(f"accuracy {clean:.3f} clean, {worst:.3f} at severity 5, where sets hold the truth {held:.1%} of the time")

    noise = torch.randn(500, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    strange = assess_foreign(ensemble, familiar_of(ensemble, found.exam), "noise", noise)
    best = max(strange.detections, key=lambda name: strange.detections[name].auroc)
    print(f"noise is noticed best by {best}: AUROC {strange.detections[best].auroc!r}")
    return {"clean": float(clean), "worst": float(worst), "auroc": float(strange.detections[best].auroc)}


if __name__ == "__main__":
    main()
