"""A first ensemble: train five small networks on handwritten digits and ask which answers to trust.

python examples/01_first_ensemble.py
"""

import murmuration as mm

MEMBERS = 5  # more members, better calibrated probabilities; the gain flattens after about ten
EPOCHS = 50  # enough for 1,258 images; larger sets need fewer


def main(quick: bool = False) -> dict[str, float]:
    data = mm.open_data("digits")
    members, epochs = (2, 3) if quick else (MEMBERS, EPOCHS)
    ensemble = mm.fit("small-cnn", data, recipe="deep-ensemble", members=members, epochs=epochs)
    predictive = ensemble.predict(data.test.x)  # outputs (S, N, K)

    scores = mm.score(predictive, data.test.y)
    print(f"accuracy {scores['accuracy']!r}, NLL {scores['nll']!r}")

    # The part of the uncertainty on which members disagree is the part that more data would remove.
    uncertain = predictive.mutual_information.argsort(descending=True)[:5]
    for index in uncertain.tolist():
        told, truth = data.classes[predictive.predicted[index]], data.classes[data.test.y[index]]
        print(f"test digit {index}: predicted {told} with confidence {predictive.confidence[index]:.2f}, truth {truth}")
    certain = predictive.confidence > 0.9
    correct = predictive.predicted == data.test.y
    return {
        "accuracy": float(scores["accuracy"]),
        "accuracy_when_certain": float(correct[certain].double().mean()),
        "fraction_certain": float(certain.double().mean()),
    }


if __name__ == "__main__":
    mm.keep_freed_memory()  # reuse freed memory: faster training in threads, for the whole process
    main()
