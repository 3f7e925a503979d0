"""Trust under shift: corrupted inputs, out-of-distribution inputs, conformal prediction sets.

python examples/trust_under_shift.py
"""

import torch

import murmuration as mm


def main(quick: bool = False) -> dict[str, float]:
    data = mm.open_data("digits")
    ensemble = mm.fit("small-cnn", data, members=2 if quick else 5, epochs=5 if quick else 30)
    noise = torch.randint(17, (500, 8, 8), generator=torch.Generator().manual_seed(0))  # grey levels, as digits have
    suite = mm.ShiftSuite(("gaussian_noise", "fog", "contrast"), severities=(1, 5))
    found = mm.evaluate(ensemble, data, shift=suite, ood={"noise": noise})  # out="results" would write the report

    for sets in found.coverage[:3]:
        print(f"{sets.method} sets of {sets.size:.2f} digits cover {sets.coverage:.1%} (target {sets.nominal:.0%})")
    clean, worst = found.shift.clean["accuracy"], found.shift.by_severity[5]["accuracy"]
    covered = found.shift.by_severity[5]["set_coverage"]
    print(f"accuracy {clean:.3f} clean, {worst:.3f} at severity 5, where the sets cover {covered:.1%}")

    detections = found.ood[0].detections
    best = max(detections, key=lambda name: detections[name].auroc)
    print(f"noise is detected best by {best}: AUROC {detections[best].auroc!r}")
    return {"clean": float(clean), "worst": float(worst), "auroc": float(detections[best].auroc)}


if __name__ == "__main__":
    main()
